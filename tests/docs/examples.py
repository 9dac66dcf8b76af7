"""The examples of the documents, as modules and as text."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"


def load_example(name: str) -> ModuleType:
    """Import an example as whoever copied it would."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_blocks(document: Path) -> list[str]:
    """The Python in a document, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)
