"""`python -m elmo`."""

import sys

from elmo.cli.main import main

sys.exit(main())
