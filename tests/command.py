"""The command line in a process of its own."""

import subprocess
import sys


def elmo(*arguments, stdin=None):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "elmo", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
