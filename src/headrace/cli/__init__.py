"""The command line. The same words as the Python API."""

from __future__ import annotations

import os
import sys

from headrace.cli.commands import run
from headrace.cli.parser import names_own, parse


def main(arguments: list[str] | None = None) -> int:
    """Run `headrace ...`; exit code 0 when done, 2 for a user's mistake, 1 for our bug, 130 when interrupted."""
    asked = parse(arguments if arguments is not None else sys.argv[1:])
    if names_own(asked):
        sys.path.insert(0, os.getcwd())  # so that `my_module:MyAlgorithm` is found, as `python -m` would
    return run(asked)
