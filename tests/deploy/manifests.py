"""Looks into the files of deploy/: a value by its path, as a table of what is wanted has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE, EXAMPLE, CLUSTERS = (
    DEPLOY / "kubernetes" / name for name in ("base", "overlays/example", "overlays/clusters")
)


def read(path: Path) -> Any:
    """The only document of a file."""
    (found,) = yaml.safe_load_all(path.read_text())
    return found


def at(document: Any, path: str) -> Any:
    """What lies there: names, places in lists, and `*` for the only one of a list."""
    for step in path.split("/"):
        if isinstance(document, list):
            assert step != "*" or len(document) == 1, f"{path}: there are {len(document)}"
            document = document[0 if step == "*" else int(step)]
        else:
            document = document[step]
    return document


def files_of(generator: Mapping[str, Any]) -> dict[str, str]:
    """What a generator of kustomize makes: the keys, and the file of each."""
    pairs = (each.partition("=") for each in generator["files"])
    return {name: file or name for name, _, file in pairs}
