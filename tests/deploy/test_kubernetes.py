"""The manifests: complete, agreeing with each other, with the settings and with the image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from groupflow.flow.workforce import HAND_BACK
from groupflow.settings.load import find_sources, load_settings
from groupflow.settings.model import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
EXAMPLE = DEPLOY / "kubernetes" / "overlays" / "example"
CLUSTERS = DEPLOY / "kubernetes" / "overlays" / "clusters"
NAME = {"app.kubernetes.io/name": "groupflow"}


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def daemon() -> dict[str, Any]:
    """The StatefulSet's spec."""
    spec = read(BASE / "statefulset.yaml")["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.fixture(scope="module")
def pod(daemon: dict[str, Any]) -> dict[str, Any]:
    spec = daemon["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("folder", [BASE, EXAMPLE, CLUSTERS])
def test_a_kustomization_lists_every_file(folder: Path) -> None:
    plan = read(folder / "kustomization.yaml")
    listed = {"kustomization.yaml", *plan["resources"]}
    for generator in (*plan.get("configMapGenerator", ()), *plan.get("secretGenerator", ())):
        listed |= {file.rpartition("=")[2] for file in generator["files"]}
    listed -= {"../../base", "../example"}
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert listed == there


def test_selectors_select_the_pods(daemon: dict[str, Any]) -> None:
    assert daemon["template"]["metadata"]["labels"] == NAME
    assert daemon["selector"]["matchLabels"] == NAME
    service = read(BASE / "service.yaml")
    assert service["spec"]["selector"] == NAME
    assert daemon["serviceName"] == service["metadata"]["name"]
    assert read(BASE / "poddisruptionbudget.yaml")["spec"]["selector"]["matchLabels"] == NAME
    assert read(BASE / "networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"] == NAME
    for spread in daemon["template"]["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == NAME


def test_everybody_means_the_same_port(container: dict[str, Any]) -> None:
    port, health = container["ports"]
    for file in (BASE, EXAMPLE, CLUSTERS):
        http = load_settings(file / "groupflow.toml").http
        assert http.listen == f"0.0.0.0:{port['containerPort']}"
        assert http.health == f"0.0.0.0:{health['containerPort']}"
    assert Settings().http.listen.endswith(f":{port['containerPort']}")
    for probe, path in (("startup", "startupz"), ("liveness", "livez"), ("readiness", "readyz")):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": f"/{path}", "port": health["name"]}
    (offered,) = read(BASE / "service.yaml")["spec"]["ports"]
    assert offered["targetPort"] == port["name"]
    (let_in,) = read(BASE / "networkpolicy.yaml")["spec"]["ingress"]
    assert let_in["ports"] == [{"protocol": "TCP", "port": port["name"]}]


def test_a_pod_is_not_killed_for_a_block_that_is_borne(container: dict[str, Any]) -> None:
    probe = container["livenessProbe"]
    for file in (BASE, EXAMPLE, CLUSTERS):
        workers = load_settings(file / "groupflow.toml").workers
        killed_after = probe["periodSeconds"] * (probe["failureThreshold"] - 1)
        assert killed_after > workers.max_block + workers.lease


def test_a_pod_has_time_to_drain(pod: dict[str, Any]) -> None:
    for file in (BASE, EXAMPLE, CLUSTERS):
        drain = load_settings(file / "groupflow.toml").workers.drain
        assert pod["terminationGracePeriodSeconds"] > drain + HAND_BACK


def test_a_daemon_has_its_pods_name(daemon: dict[str, Any], container: dict[str, Any]) -> None:
    assert read(BASE / "statefulset.yaml")["kind"] == "StatefulSet"
    assert container["args"][-2:] == ["--name", "$(POD_NAME)"]
    names = {each["name"]: each for each in container["env"]}
    assert names["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert daemon["podManagementPolicy"] == "Parallel"


def test_files_are_mounted_where_the_daemon_looks(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(places) == {volume["name"] for volume in pod["volumes"]}
    names = {each["name"]: each.get("value") for each in container["env"]}
    assert names["GROUPFLOW_SECRETS_DIR"] == places["secrets"]
    assert container["args"][:3] == ["run", "--config", f"{places['config']}/groupflow.toml"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    base, example = (read(each / "kustomization.yaml") for each in (BASE, EXAMPLE))
    assert volumes["config"]["configMap"]["name"] == base["configMapGenerator"][0]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == example["secretGenerator"][0]["name"]


def test_a_pod_is_restricted(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """What the `restricted` Pod Security Standard asks for, and a read-only root."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {kind for volume in pod["volumes"] for kind in volume} == {
        *("name", "configMap", "secret", "emptyDir")
    }
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    user = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert re.search(rf"^USER {user[0]}:{user[1]}$", dockerfile, re.MULTILINE)


def test_settings_load_from_a_mounted_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts links, through a folder that it swaps when the Secret changes."""
    (generator,) = read(EXAMPLE / "kustomization.yaml")["secretGenerator"]
    stamped = tmp_path / "..2026_11_21"
    stamped.mkdir()
    (tmp_path / "..data").symlink_to(stamped.name)
    for pair in generator["files"]:
        name, _, file = pair.partition("=")
        (stamped / name).write_text((EXAMPLE / file).read_text())
        (tmp_path / name).symlink_to(f"..data/{name}")
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(tmp_path))
    settings = load_settings(EXAMPLE / "groupflow.toml")
    named = ["groupflow_http__token", "groupflow_rabbitmq__url", "groupflow_redis__url"]
    assert find_sources().secret_files == named
    assert settings.http.token.get_secret_value()
    assert "@redis.example:6379/" in settings.redis_url()
    assert "@rabbitmq.example:5671/" in settings.rabbitmq_url()
    assert [rule.name for rule in settings.groups] == ["crm-entities"]


def test_keda_scales_what_is_there() -> None:
    scaled = read(EXAMPLE / "scaledobject.yaml")["spec"]
    target = read(BASE / "statefulset.yaml")
    assert scaled["scaleTargetRef"] == {
        "kind": target["kind"],
        "name": target["metadata"]["name"],
    }
    workers = load_settings(EXAMPLE / "groupflow.toml").workers
    limits = {each["name"]: int(each["metadata"]["threshold"]) for each in scaled["triggers"]}
    assert 0 < limits["groups"] <= workers.grouped
    assert 0 < limits["plain"] <= workers.plain
    for trigger in scaled["triggers"]:
        assert "max by" in trigger["metadata"]["query"]
    (patch,) = read(EXAMPLE / "kustomization.yaml")["patches"]
    assert {"op": "remove", "path": "/spec/replicas"} in yaml.safe_load(patch["patch"])
