"""`make mutants ARGS="code …"` damages the Python code, `ARGS="scripts …"` the Lua scripts.

Each part has its own options (`--help`) and exits with 1 where a mutant lives that isn't listed.
"""

from __future__ import annotations

import sys
from importlib import import_module

PARTS = {"code": "tests.verification.mutants.code", "scripts": "tests.verification.mutants.scripts"}


def main(arguments: list[str]) -> int:
    """Run one part, or say what there is."""
    if not arguments or arguments[0] not in PARTS:
        print(__doc__, file=sys.stderr)
        return 2
    part = import_module(PARTS[arguments[0]])
    code: int = part.main(arguments[1:])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
