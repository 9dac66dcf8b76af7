"""The exit codes of the public contract, which supervisors rely on (sysexits.h for 69 and 78)."""

from enum import IntEnum


class Exit(IntEnum):
    FINE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 69
    CONFIG = 78
    INTERRUPTED = 130
