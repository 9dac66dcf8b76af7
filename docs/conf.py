"""How Sphinx builds the documents: `make docs`. The pages load nothing from elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from groupflow import __version__  # noqa: E402

project = "groupflow"
release = version = __version__
author = copyright = "the groupflow authors"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
# The repository is the source, so that the documents at its top are pages too, and a link between
# two files is right on the page and in the repository.
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "deploy/**.md",
]
nitpicky = True

myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 4
myst_fence_as_directive: list[str] = []
suppress_warnings = [
    "myst.header",  # a README may begin at any level
    "misc.highlighting_failure",  # diagrams stay text: drawing them would take a script from afar
]

html_theme = "furo"
html_title = f"groupflow {release}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

linkcheck_timeout = 10


def _folders_are_text(app: Sphinx, name: str, content: list[str]) -> None:
    """A link to a folder leads somewhere in the repository; on a page it is mere text."""
    del app
    here = (ROOT / name).parent

    def shown(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    content[0] = re.sub(r"\[([^]]+)\]\(([^):#]+)\)", shown, content[0])


def _decisions_are_listed(app: Sphinx, name: str, content: list[str]) -> None:
    """Decisions are read from their list, and would fill the sidebar: they stand in no toctree."""
    del app
    if name.startswith("docs/adr/"):
        content[0] = f"---\norphan: true\n---\n\n{content[0]}"
    if name == "docs/decisions":
        for page in sorted((ROOT / "docs/adr").glob("*.md")):
            title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
            content[0] += f"\n- [{title}](adr/{page.name})"


def setup(app: Sphinx) -> None:
    """Sphinx calls this first."""
    app.connect("source-read", _decisions_are_listed)
    app.connect("source-read", _folders_are_text)
