"""`python -m groupflow` is the `groupflow` command."""

from groupflow.cli import main

main()
