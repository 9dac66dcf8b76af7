"""What is published of a commit: the same bytes each time, complete, and working by itself."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from groupflow import __version__
from tests.endtoend.process import REPOSITORY, environment
from tests.programs import must
from tests.verification.builds import HEAD, installed, released

NAME = f"groupflow-{__version__}"
WHEEL = f"{NAME}-py3-none-any.whl"
SOURCE = f"{NAME}.tar.gz"
BILL = f"{NAME}.cdx.json"
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
PYTHONS = re.findall(r"Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("release"))


def _committed(*below: str) -> set[str]:
    return set(must("git", "ls-tree", "-r", "--name-only", HEAD, *below).splitlines())


def test_two_builds_are_the_same_bytes(release: Path, tmp_path: Path) -> None:
    again = released(tmp_path / "again")
    assert {each.name for each in again.iterdir()} == {WHEEL, SOURCE, BILL, "SHA256SUMS"}
    assert (again / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    said = must("sha256sum", "--check", "SHA256SUMS", folder=release)
    assert said.count(": OK\n") == 3


def test_each_file_is_in_it_and_no_other(release: Path) -> None:
    """Scripts, the page's files, the demo's rows; the source archive is the repository.

    What is said of it has no address that isn't there.
    """
    with zipfile.ZipFile(release / WHEEL) as wheel:
        about = {f"{NAME}.dist-info/{each}" for each in ABOUT}
        assert set(wheel.namelist()) == _committed("groupflow") | about
        assert b"groupflow.example" not in wheel.read(f"{NAME}.dist-info/METADATA")
    with tarfile.open(release / SOURCE) as source:
        assert set(source.getnames()) == {f"{NAME}/{each}" for each in _committed() | {"PKG-INFO"}}


def test_the_bill_of_materials_is_what_the_lock_installs(release: Path) -> None:
    bill = json.loads((release / BILL).read_text())
    subject = bill["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("groupflow", __version__)
    uv = must(".ci/setup", "uv").strip()
    export = must(uv, "export", "--locked", "--no-dev", "--all-extras", "--no-emit-project")
    locked = set(re.findall(r"^([\w.-]+==[^\s;]+)", export, re.MULTILINE))
    assert {f"{each['name']}=={each['version']}" for each in bill["components"]} == locked
    for each in bill["components"]:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert all(file["hashes"] for file in each["externalReferences"]), each["name"]


def _interpreter(python: str) -> Path:
    """A Python of this version, as Debian has it or pyenv."""
    ours = Path.home().glob(f".pyenv/versions/{python}.*/bin/python")
    places = [Path(f"/usr/bin/python{python}"), *ours]
    if sys.version.startswith(f"{python}."):
        return Path(sys.executable)
    if found := [each for each in places if each.exists()]:
        return found[0]
    pytest.skip(f"there is no Python {python} here")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("package", "python"), [*((WHEEL, each) for each in PYTHONS), (SOURCE, PYTHONS[0])]
)
def test_it_works_in_an_empty_environment(
    release: Path, tmp_path: Path, package: str, python: str
) -> None:
    """Of each Python that it says it is for."""
    env = installed(release / package, tmp_path / "env", _interpreter(python))
    for each in ("groupflow.toml", "tenants.toml"):
        shutil.copy(REPOSITORY / "config" / each, tmp_path)

    def says(*words: str) -> str:
        return must(env / "bin/groupflow", *words, folder=tmp_path, env=environment(), seconds=150)

    assert says("--version") == f"groupflow {__version__}\n"
    assert says("check-config").endswith("\n# ok\n")
    if (package, python) == (WHEEL, PYTHONS[0]):
        assert "Equal to a serial import, row by row." in says("demo")
