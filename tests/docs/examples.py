"""The examples of the documents, as modules and as text."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from textwrap import indent
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
LANGUAGES = DOCS.parent / ".languages"


def load_example(name: str) -> ModuleType:
    """Import an example as a copy of it would be."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(document: Path, language: str) -> list[str]:
    """What stands in a document in a language, block by block."""
    fences = rf"^```{language}\n(.*?)^```$"
    return re.findall(fences, document.read_text(), re.DOTALL | re.MULTILINE)


def python_of(document: Path) -> list[str]:
    """Its blocks of Python, without those that are parts of an example's file."""
    files = [file.read_text() for file in EXAMPLES.iterdir() if file.is_file()]
    shown = blocks(document, "python")
    return [block for block in shown if not any(_is_part(block, file) for file in files)]


def _is_part(block: str, file: str) -> bool:
    return any(indent(block, " " * depth) in file for depth in (0, 4))
