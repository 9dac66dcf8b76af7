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
from tests.deploy.manifests import BASE, CLUSTERS, DEPLOY, EXAMPLE, at, differing, files_of, read

NAME = {"app.kubernetes.io/name": "groupflow"}
STATEFUL = read(BASE / "statefulset.yaml")
DAEMON = STATEFUL["spec"]
POD = DAEMON["template"]["spec"]
CONTAINER = at(POD, "containers/*")
ENVIRONMENT = {each["name"]: each for each in CONTAINER["env"]}


@pytest.mark.parametrize("folder", [BASE, EXAMPLE, CLUSTERS], ids=lambda folder: folder.name)
def test_a_kustomization_lists_every_file(folder: Path) -> None:
    plan = read(folder / "kustomization.yaml")
    listed = {"kustomization.yaml", *plan["resources"]}
    for generator in (*plan.get("configMapGenerator", ()), *plan.get("secretGenerator", ())):
        listed |= set(files_of(generator).values())
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert listed - {"../../base", "../example"} == there


def test_selectors_select_the_pods() -> None:
    assert differing(DAEMON, {"template/metadata/labels": NAME, "selector/matchLabels": NAME}) == {}
    for spread in POD["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == NAME
    for file, path in (
        ("service", "spec/selector"),
        ("poddisruptionbudget", "spec/selector/matchLabels"),
        ("networkpolicy", "spec/podSelector/matchLabels"),
    ):
        assert differing(read(BASE / f"{file}.yaml"), {path: NAME}) == {}
    assert at(read(BASE / "service.yaml"), "metadata/name") == DAEMON["serviceName"]


@pytest.mark.parametrize("folder", [BASE, EXAMPLE, CLUSTERS], ids=lambda folder: folder.name)
def test_ports_and_times_fit_the_settings(folder: Path) -> None:
    """A pod isn't killed for a block that is borne, and has time to drain."""
    settings = load_settings(folder / "groupflow.toml")
    port, health = (each["containerPort"] for each in CONTAINER["ports"])
    assert settings.http.listen == f"0.0.0.0:{port}"
    assert settings.http.health == f"0.0.0.0:{health}"
    assert Settings().http.listen.endswith(f":{port}")
    probe, workers = CONTAINER["livenessProbe"], settings.workers
    killed_after = probe["periodSeconds"] * (probe["failureThreshold"] - 1)
    assert killed_after > workers.max_block + workers.lease
    assert POD["terminationGracePeriodSeconds"] > workers.drain + HAND_BACK


def test_everybody_means_the_same_port() -> None:
    port, health = (each["name"] for each in CONTAINER["ports"])
    probes = {"startup": "startupz", "liveness": "livez", "readiness": "readyz"}
    for probe, path in probes.items():
        assert at(CONTAINER, f"{probe}Probe/httpGet") == {"path": f"/{path}", "port": health}
    assert at(read(BASE / "service.yaml"), "spec/ports/*/targetPort") == port
    let_in = at(read(BASE / "networkpolicy.yaml"), "spec/ingress/*/ports")
    assert let_in == [{"protocol": "TCP", "port": port}]


def test_a_daemon_has_its_pods_name() -> None:
    assert STATEFUL["kind"] == "StatefulSet"
    assert CONTAINER["args"][-2:] == ["--name", "$(POD_NAME)"]
    assert at(ENVIRONMENT, "POD_NAME/valueFrom/fieldRef/fieldPath") == "metadata.name"
    assert DAEMON["podManagementPolicy"] == "Parallel"


def test_files_are_mounted_where_the_daemon_looks() -> None:
    places = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert set(places) == set(volumes)
    assert at(ENVIRONMENT, "GROUPFLOW_SECRETS_DIR/value") == places["secrets"]
    assert CONTAINER["args"][:3] == ["run", "--config", f"{places['config']}/groupflow.toml"]
    base, example = (read(each / "kustomization.yaml") for each in (BASE, EXAMPLE))
    assert differing(volumes, {
        "config/configMap/name": at(base, "configMapGenerator/*/name"),
        "secrets/secret/secretName": at(example, "secretGenerator/*/name"),
    }) == {}  # fmt: skip


def test_a_pod_is_restricted() -> None:
    """What the `restricted` Pod Security Standard asks for, and a read-only root."""
    assert differing(POD, {
        "securityContext/runAsNonRoot": True,
        "securityContext/seccompProfile": {"type": "RuntimeDefault"},
        "containers/*/securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }) == {}  # fmt: skip
    kinds = {kind for volume in POD["volumes"] for kind in volume}
    assert kinds == {"name", "configMap", "secret", "emptyDir"}
    user, group = (POD["securityContext"][each] for each in ("runAsUser", "runAsGroup"))
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert re.search(rf"^USER {user}:{group}$", dockerfile, re.MULTILINE)


def test_settings_load_from_a_mounted_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts links, through a folder that it swaps when the Secret changes."""
    files = files_of(at(read(EXAMPLE / "kustomization.yaml"), "secretGenerator/*"))
    stamped = tmp_path / "..2026_11_21"
    stamped.mkdir()
    (tmp_path / "..data").symlink_to(stamped.name)
    for name, file in files.items():
        (stamped / name).write_text((EXAMPLE / file).read_text())
        (tmp_path / name).symlink_to(f"..data/{name}")
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(tmp_path))
    settings = load_settings(EXAMPLE / "groupflow.toml")
    assert find_sources().secret_files == sorted(files)
    assert settings.http.token.get_secret_value()
    assert "@redis.example:6379/" in settings.redis_url()
    assert "@rabbitmq.example:5671/" in settings.rabbitmq_url()
    assert [rule.name for rule in settings.groups] == ["crm-entities"]


def test_keda_scales_what_is_there() -> None:
    scaled = read(EXAMPLE / "scaledobject.yaml")["spec"]
    target = {"kind": STATEFUL["kind"], "name": at(STATEFUL, "metadata/name")}
    assert scaled["scaleTargetRef"] == target
    workers = load_settings(EXAMPLE / "groupflow.toml").workers
    limits: dict[str, Any] = {each["name"]: each["metadata"] for each in scaled["triggers"]}
    for name, most in (("groups", workers.grouped), ("plain", workers.plain)):
        assert 0 < int(limits[name]["threshold"]) <= most
        assert "max by" in limits[name]["query"]
    patch = yaml.safe_load(at(read(EXAMPLE / "kustomization.yaml"), "patches/*/patch"))
    assert {"op": "remove", "path": "/spec/replicas"} in patch
