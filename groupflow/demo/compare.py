"""Compares the tables that the daemons wrote with those of the serial import, row by row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupflow.demo.database import TABLES

# How many differences of a table are put into words; the rest is counted.
NAMED = 5

_Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """How one table came out.

    Attributes:
        table: its name.
        rows: rows that the serial import wrote.
        differing: rows that are missing, not expected, or have another value in some column.
        named: the first of them in words.
    """

    table: str
    rows: int
    differing: int
    named: tuple[str, ...]


def compare(serial: Path, found: Path) -> list[TableComparison]:
    """Compare all tables of two files.

    Args:
        serial: the file of the serial import: what is right.
        found: the file that the daemons wrote.
    """
    with closing(sqlite3.connect(serial)) as right, closing(sqlite3.connect(found)) as other:
        return [
            _compare_table(table, _rows(right, table, key), _rows(other, table, key))
            for table, key in TABLES.items()
        ]


def _rows(db: sqlite3.Connection, table: str, key: tuple[str, ...]) -> _Rows:
    cursor = db.execute(f"SELECT * FROM {table}")  # noqa: S608  the name is one of TABLES
    columns = [column[0] for column in cursor.description]
    rows = (dict(zip(columns, values, strict=True)) for values in cursor)
    return {tuple(row[column] for column in key): row for row in rows}


def _compare_table(table: str, right: _Rows, found: _Rows) -> TableComparison:
    differences = []
    for key in sorted(right.keys() | found.keys()):
        if key not in found:
            differences.append(f"{_name(table, key)} is missing")
        elif key not in right:
            differences.append(f"{_name(table, key)} should not be there")
        elif right[key] != found[key]:
            differences.append(f"{_name(table, key)}: {_changed(right[key], found[key])}")
    return TableComparison(table, len(right), len(differences), tuple(differences[:NAMED]))


def _name(table: str, key: tuple[Any, ...]) -> str:
    return f"{table} {'/'.join(str(part) for part in key)}"


def _changed(right: dict[str, Any], found: dict[str, Any]) -> str:
    return ", ".join(
        f"{column} is {found[column]!r} instead of {right[column]!r}"
        for column in right
        if right[column] != found[column]
    )
