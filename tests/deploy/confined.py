"""Runs a command under the system call filters of a unit: `python confined.py UNIT COMMAND…`.

The sets (`@system-service`) are expanded by `systemd-analyze`, the filters built by libseccomp, as
systemd builds them: SystemCallFilter, RestrictAddressFamilies, MemoryDenyWriteExecute. What systemd
does beside filters (namespaces, mounts, users) is not done here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import sys
from pathlib import Path

from tests.programs import ran

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
EQUAL, MASKED, GREATER = 4, 7, 6
WRITE, EXEC = 2, 4  # of mmap(2)
EXEC_SHM = 0o100000  # of shmat(2)
NO_NEW_PRIVS = 38  # of prctl(2)


class Argument(ctypes.Structure):
    """libseccomp's ``scmp_arg_cmp``: a condition on one argument of a call."""

    _fields_ = (
        *(("arg", ctypes.c_uint), ("op", ctypes.c_int)),
        *(("datum_a", ctypes.c_uint64), ("datum_b", ctypes.c_uint64)),
    )


def words_of(unit: str, name: str) -> list[str]:
    """All that a setting has, over its lines; a line that starts with ~ has each word so."""
    words = []
    for line in re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE):
        sign = "~" if line.startswith("~") else ""
        words += [sign + word for word in line.removeprefix("~").split()]
    return words


def expand(name: str) -> set[str]:
    """The calls of a set, its sets' too."""
    if not name.startswith("@"):
        return {name}
    listed = ran("systemd-analyze", "syscall-filter", name).stdout.splitlines()[1:]
    words = [line.strip() for line in listed if not line.strip().startswith("#")]
    return set().union(*(expand(word) for word in words if word))


class Filter:
    """A filter in the making."""

    def __init__(self, default: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))

    def rule(self, action: int, call: str, *conditions: tuple[int, int, int, int]) -> None:
        """What becomes of a call whose arguments are so. Calls of other machines are left out."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return
        wanted = (Argument * len(conditions))(*(Argument(*each) for each in conditions))
        code = self._library.seccomp_rule_add_array(
            self._context, ctypes.c_uint32(action), number, len(conditions), wanted
        )
        if code:
            raise OSError(-code, f"no rule for {call}")

    def load(self) -> None:
        """From here on it holds, for programs that this process executes too."""
        if code := self._library.seccomp_load(self._context):
            raise OSError(-code, "the filter can't be loaded")


def confine(unit: str) -> None:
    """Put this process under the unit's filters."""
    allowed: set[str] = set()
    for word in words_of(unit, "SystemCallFilter"):
        allowed = allowed - expand(word[1:]) if word[0] == "~" else allowed | expand(word)
    calls = Filter(REFUSE)
    for call in sorted(allowed | expand("@default")):
        calls.rule(ALLOW, call)
    families = Filter(ALLOW)
    known = {int(getattr(socket, word)) for word in words_of(unit, "RestrictAddressFamilies")}
    for family in set(range(max(known))) - known:
        families.rule(REFUSE, "socket", (0, EQUAL, family, 0))
    families.rule(REFUSE, "socket", (0, GREATER, max(known), 0))
    memory = Filter(ALLOW)
    if words_of(unit, "MemoryDenyWriteExecute") == ["yes"]:
        memory.rule(REFUSE, "mmap", (2, MASKED, WRITE | EXEC, WRITE | EXEC))
        memory.rule(REFUSE, "mprotect", (2, MASKED, EXEC, EXEC))
        memory.rule(REFUSE, "pkey_mprotect", (2, MASKED, EXEC, EXEC))
        memory.rule(REFUSE, "shmat", (2, MASKED, EXEC_SHM, EXEC_SHM))
    ctypes.CDLL(None).prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    # The strictest last: it refuses the loading of more.
    for each in (families, memory, calls):
        each.load()


if __name__ == "__main__":
    confine(Path(sys.argv[1]).read_text())
    os.execv(sys.argv[2], sys.argv[2:])
