"""Check manifests against the schemas of custom resources, more strictly than a server does.

    kubectl kustomize OVERLAY | python -m tests.deploy.against_crds CRD.yaml…

A server drops a field that it doesn't know without a word; here it is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

Kind = tuple[str, str]  # apiVersion and kind


def schemas_in(definitions: Iterable[Any]) -> dict[Kind, Any]:
    """The schemas of all versions that CustomResourceDefinitions serve."""
    found = {}
    for definition in definitions:
        spec = definition["spec"]
        for version in spec["versions"]:
            if version["served"]:
                kind = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[kind] = _closed(version["schema"]["openAPIV3Schema"])
    return found


def _closed(schema: Any) -> Any:
    """The schema, refusing what it doesn't name, except where it says that it takes anything."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(each) for name, each in schema.items()}
    if isinstance(closed.get("properties"), dict):
        open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "type" not in schema
        # `metadata` is named, and described elsewhere.
        if not open_:
            closed.setdefault("additionalProperties", False)
    return closed


def problems_in(manifests: Iterable[Any], schemas: dict[Kind, Any]) -> Iterator[str]:
    """What is wrong with those of the kinds that there are schemas for."""
    for each in manifests:
        kind = each["apiVersion"], each["kind"]
        if kind in schemas:
            name = f"{each['kind']}/{each['metadata']['name']}"
            for error in Draft7Validator(schemas[kind]).iter_errors(each):
                yield f"{name}: {error.json_path}: {error.message}"


def main() -> int:
    """Say what was checked, and what is wrong with it."""
    schemas = schemas_in(
        each for file in sys.argv[1:] for each in yaml.safe_load_all(Path(file).read_text())
    )
    manifests = list(yaml.safe_load_all(sys.stdin))
    found = list(problems_in(manifests, schemas))
    checked = [each for each in manifests if (each["apiVersion"], each["kind"]) in schemas]
    for each in checked:
        print(f"checked {each['kind']}/{each['metadata']['name']}")
    print("\n".join(found) or f"nothing wrong with {len(checked)}")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
