"""The manifests agree with each other, with the settings and with the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from groupflow.flow.workforce import HAND_BACK
from groupflow.settings.load import find_sources, load_settings
from groupflow.settings.model import Settings
from tests.deploy.manifests import BASE, CLUSTERS, DEPLOY, EXAMPLE, at, files_of, read

NAME = {"app.kubernetes.io/name": "groupflow"}
STATEFUL = read(BASE / "statefulset.yaml")
POD = at(STATEFUL, "spec/template/spec")
CONTAINER = at(POD, "containers/*")
ENVIRONMENT = {each["name"]: each for each in CONTAINER["env"]}
PORT, HEALTH = CONTAINER["ports"]
REDIS = at(read(CLUSTERS / "redis.yaml"), "spec/redisLeader")


@pytest.mark.parametrize("folder", [BASE, EXAMPLE, CLUSTERS], ids=lambda folder: folder.name)
def test_a_kustomization_lists_every_file(folder: Path) -> None:
    plan = read(folder / "kustomization.yaml")
    listed = {"kustomization.yaml", *plan["resources"]}
    for generator in (*plan.get("configMapGenerator", ()), *plan.get("secretGenerator", ())):
        listed |= set(files_of(generator).values())
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert listed - {"../../base", "../example"} == there


def test_all_mean_the_same_pods_and_port() -> None:
    labels = [
        *("statefulset/spec/template/metadata/labels", "statefulset/spec/selector/matchLabels"),
        *("service/spec/selector", "poddisruptionbudget/spec/selector/matchLabels"),
        "networkpolicy/spec/podSelector/matchLabels",
    ]
    wanted: dict[str, Any] = dict.fromkeys(labels, NAME)
    ports = ("service/spec/ports/*/targetPort", "networkpolicy/spec/ingress/*/ports/*/port")
    wanted |= dict.fromkeys(ports, PORT["name"])
    wanted["statefulset/spec/serviceName"] = at(read(BASE / "service.yaml"), "metadata/name")
    found = {each: each.split("/", 1) for each in wanted}
    assert {each: at(read(BASE / f"{f}.yaml"), path) for each, (f, path) in found.items()} == wanted


@pytest.mark.parametrize("folder", [BASE, EXAMPLE, CLUSTERS], ids=lambda folder: folder.name)
def test_ports_and_times_fit_the_settings(folder: Path) -> None:
    """A pod isn't killed for a block that is borne, and has time to drain."""
    settings = load_settings(folder / "groupflow.toml")
    assert settings.http.listen == f"0.0.0.0:{PORT['containerPort']}"
    assert settings.http.health == f"0.0.0.0:{HEALTH['containerPort']}"
    assert Settings().http.listen.endswith(f":{PORT['containerPort']}")
    for probe, path in (("startup", "startupz"), ("liveness", "livez"), ("readiness", "readyz")):
        asked = at(CONTAINER, f"{probe}Probe/httpGet")
        assert asked == {"path": f"/{path}", "port": HEALTH["name"]}
    probe, workers = CONTAINER["livenessProbe"], settings.workers
    killed_after = probe["periodSeconds"] * (probe["failureThreshold"] - 1)
    assert killed_after > workers.max_block + workers.lease
    starting, reading = CONTAINER["startupProbe"], at(REDIS, "livenessProbe")
    assert starting["periodSeconds"] * starting["failureThreshold"] > (
        reading["periodSeconds"] * reading["failureThreshold"]
    ), "a Redis that reads its file would have daemons restarted"
    assert POD["terminationGracePeriodSeconds"] > workers.drain + HAND_BACK


def test_a_daemon_has_its_pod_s_name_and_finds_its_files() -> None:
    """And the user is the image's."""
    assert CONTAINER["args"][-2:] == ["--name", "$(POD_NAME)"]
    assert at(ENVIRONMENT, "POD_NAME/valueFrom/fieldRef/fieldPath") == "metadata.name"
    places = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert set(places) == set(volumes)
    assert at(ENVIRONMENT, "GROUPFLOW_SECRETS_DIR/value") == places["secrets"]
    assert CONTAINER["args"][:3] == ["run", "--config", f"{places['config']}/groupflow.toml"]
    base, example = (read(each / "kustomization.yaml") for each in (BASE, EXAMPLE))
    made = at(base, "configMapGenerator/*/name"), at(example, "secretGenerator/*/name")
    assert at(volumes, "config/configMap/name") == made[0]
    assert at(volumes, "secrets/secret/secretName") == made[1]
    user, group = (POD["securityContext"][each] for each in ("runAsUser", "runAsGroup"))
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert f"\nUSER {user}:{group}\n" in image
    # Not the daemon is the first process: it reaps none but its own.
    assert 'ENTRYPOINT ["tini", "-s", "--", "groupflow"]' in image
    assert "command" not in CONTAINER


def test_settings_load_from_a_mounted_secret(tmp_path: Path, monkeypatch: Any) -> None:
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


def test_keda_scales_what_is_there() -> None:
    scaled = read(EXAMPLE / "scaledobject.yaml")["spec"]
    target = {"kind": STATEFUL["kind"], "name": at(STATEFUL, "metadata/name")}
    assert scaled["scaleTargetRef"] == target
    assert at(scaled, "fallback/behavior") == "currentReplicasIfHigher", "it stops daemons that run"
    workers = load_settings(EXAMPLE / "groupflow.toml").workers
    limits: dict[str, Any] = {each["name"]: each["metadata"] for each in scaled["triggers"]}
    for name, most in (("groups", workers.grouped), ("plain", workers.plain)):
        assert 0 < int(limits[name]["threshold"]) <= most
    patch = yaml.safe_load(at(read(EXAMPLE / "kustomization.yaml"), "patches/*/patch"))
    assert {"op": "remove", "path": "/spec/replicas"} in patch
