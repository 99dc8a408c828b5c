"""How fast we embed text beside AllenNLP 2.10.1: the same as `elmo bench`, with its options.

python benchmarks/embed.py --sizes small --repeats 3 --json report.json
"""

import sys

from elmo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
