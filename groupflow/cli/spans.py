"""Spans of time as people write them behind `--for`."""

from __future__ import annotations

import typer

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
YEAR = 366 * 86400.0


def seconds_for(text: str) -> float:
    """The seconds of ``30s``, ``10m``, ``2h`` or ``1d``.

    Raises:
        typer.BadParameter: it can't be read, or is longer than a year.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        raise typer.BadParameter(f"--for {text!r} is no time; write 30s, 10m, 2h or 1d.")
    seconds = float(number) * _UNITS[unit]
    if not 0 < seconds <= YEAR:
        raise typer.BadParameter(f"--for {text!r} is not between 0 s and a year.")
    return seconds
