"""The overlay with clusters of its own: its parts name each other, and its rights are enough."""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from groupflow.broker.partitions import PLUGIN
from groupflow.servers import RabbitmqServer
from groupflow.settings.load import load_settings
from groupflow.settings.model import Settings
from groupflow.settings.transport import split_hosts
from groupflow.store.keys import Keys
from groupflow.store.partitions import keys_of
from tests.deploy.against_crds import problems_in, schemas_in
from tests.endtoend.rig import Rig, run
from tests.endtoend.test_order import mixed
from tests.servers.replicated import RedisCluster, command

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAY = DEPLOY / "kubernetes" / "overlays" / "clusters"
DOMAIN = "groupflow.svc.cluster.local"
SLOTS = 16_384


def all_in(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((OVERLAY / name).read_text()))


def secret(name: str) -> str:
    return (OVERLAY / "secrets" / f"{name}.example").read_text()


@pytest.fixture(scope="module")
def redis() -> dict[str, Any]:
    """The RedisCluster."""
    (found,) = all_in("redis.yaml")
    return found


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    """The kustomization."""
    (found,) = all_in("kustomization.yaml")
    return found


@pytest.fixture(scope="module")
def certified() -> dict[str, list[str]]:
    """The names in each certificate, by the Secret that has it."""
    certificates = [each for each in all_in("certificates.yaml") if each["kind"] == "Certificate"]
    return {each["spec"]["secretName"]: each["spec"].get("dnsNames", []) for each in certificates}


@pytest.fixture
def settings(plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a pod: the file, the Secret, and the variables that the overlay adds."""
    (generator,) = [each for each in plan["secretGenerator"] if each["name"] == "groupflow"]
    for pair in generator["files"]:
        name, _, file = pair.partition("=")
        (tmp_path / name).write_text((OVERLAY / file).read_text())
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(tmp_path))
    for variable in container_in(plan)["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    return load_settings(OVERLAY / "groupflow.toml")


def pod_in(plan: dict[str, Any]) -> dict[str, Any]:
    patch = yaml.safe_load(plan["patches"][0]["patch"])
    spec = patch["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container_in(plan: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_in(plan)["containers"]
    assert isinstance(container, dict)
    return container


def test_daemons_know_every_node_of_redis(redis: dict[str, Any], settings: Settings) -> None:
    url = urlsplit(settings.redis.url.get_secret_value())
    assert (url.scheme, url.username) == ("rediss+cluster", "groupflow")
    assert split_hosts(url.netloc.rpartition("@")[2], 1) == [
        (f"redis-{role}-{n}.redis-{role}-headless.{DOMAIN}", 6379)
        for role in ("leader", "follower")
        for n in range(redis["spec"]["clusterSize"])
    ]
    assert redis["metadata"]["name"] == "redis"
    # With one primary the operator may empty it; three can outvote one that was cut off.
    assert redis["spec"]["clusterSize"] >= 3


def test_certificates_are_for_the_names_that_daemons_use(
    redis: dict[str, Any], settings: Settings, certified: dict[str, list[str]]
) -> None:
    (rabbitmq, _) = all_in("rabbitmq.yaml")
    hosts = urlsplit(settings.redis.url.get_secret_value()).netloc.rpartition("@")[2]
    asked = {
        redis["spec"]["TLS"]["secret"]["secretName"]: [host for host, _ in split_hosts(hosts, 1)],
        rabbitmq["spec"]["tls"]["secretName"]: [
            urlsplit(settings.rabbitmq.url.get_secret_value()).hostname or ""
        ],
    }
    for name, wanted in asked.items():
        for host in wanted:
            assert any(fnmatchcase(host, each) for each in certified[name]), host
    assert rabbitmq["spec"]["tls"]["disableNonTLSListeners"] is True
    assert settings.rabbitmq.url.get_secret_value().startswith("amqps://")


def test_daemons_trust_the_ca_of_the_certificates(
    plan: dict[str, Any], settings: Settings, certified: dict[str, list[str]]
) -> None:
    (volume,) = pod_in(plan)["volumes"]
    (mount,) = container_in(plan)["volumeMounts"]
    assert mount["name"] == volume["name"]
    there = {}
    for source in volume["projected"]["sources"]:
        (item,) = source["secret"]["items"]
        assert item["key"] == "ca.crt"
        there[source["secret"]["name"]] = f"{mount['mountPath']}/{item['path']}"
    assert there == {
        "redis-tls": settings.redis.ca_file,
        "rabbitmq-tls": settings.rabbitmq.ca_file,
    }
    assert set(there) <= set(certified)


def test_redis_gets_the_files_that_it_names(redis: dict[str, Any], plan: dict[str, Any]) -> None:
    made = {
        each["name"]: {file.partition("=")[0] for file in each["files"]}
        for each in (*plan["configMapGenerator"], *plan["secretGenerator"])
        # One whose name gets a hash is found by nobody but kustomize's own.
        if each.get("options", {}).get("disableNameSuffixHash")
    }
    spec = redis["spec"]
    for role in ("redisLeader", "redisFollower"):
        config = spec[role]["redisConfig"]["additionalRedisConfig"]
        assert made[config] == {"redis-additional.conf"}
    password = spec["kubernetesConfig"]["redisSecret"]
    (acl,) = spec["acl"]["secret"]["items"]
    assert spec["acl"]["secret"]["secretName"] == password["name"]
    assert made[password["name"]] == {password["key"], acl["key"]}
    assert acl["path"] == "user.acl"  # where the operator looks for it


def test_nobody_gets_in_without_a_password(settings: Settings) -> None:
    """Redis with an ACL file doesn't know `requirepass`: the file has the operator's too."""
    default, ours = secret("redis-users.acl").splitlines()
    password = urlsplit(settings.redis.url.get_secret_value()).password or ""
    assert default.split()[:3] == ["user", "default", "on"]
    assert _hash(secret("redis-password")) in default.split()
    assert _hash(password) in ours.split()
    assert "nopass" not in default + ours


def _hash(password: str) -> str:
    return "#" + sha256(password.encode()).hexdigest()


def test_the_user_may_do_what_it_may_on_one_server_and_what_a_cluster_asks_for() -> None:
    _, ours = secret("redis-users.acl").splitlines()
    single = (DEPLOY / "redis" / "groupflow.acl").read_text()
    added = {"+spublish", "+ssubscribe", "+sunsubscribe", "+wait", "+cluster|info"}
    everywhere = {"~{groupflow:*}:*", "&{groupflow:*}:*"}
    words = {word for word in ours.split() if not word.startswith("#")}
    assert words == set(single.split()) | added | everywhere


def test_redis_is_set_up_as_on_one_server(redis: dict[str, Any], settings: Settings) -> None:
    ours, single = (
        dict(re.findall(r"^([a-z-]+) (.*)$", file.read_text(), re.MULTILINE))
        for file in (OVERLAY / "redis.conf", DEPLOY / "redis" / "redis.conf")
    )
    del single["maxmemory"]  # the operator's, from the limit
    assert ours | single == ours
    assert 0 < redis["spec"]["redisConfig"]["maxMemoryPercentOfLimit"] <= 50
    # A fail-over is over before a lease is.
    assert int(ours["cluster-node-timeout"]) / 1000 + 2 < settings.workers.lease
    # One copy at least for each batch that is acked; the operator makes one a primary.
    assert settings.redis.replicas == 1
    assert ours["min-replicas-to-write"] == "0"


def test_what_redis_holds_outlives_its_pods(redis: dict[str, Any]) -> None:
    spec = redis["spec"]
    assert spec["persistenceEnabled"] is True
    assert spec["storage"]["nodeConfVolume"] is True
    assert spec["storage"]["keepAfterDelete"] is True
    kept = spec["kubernetesConfig"]["persistentVolumeClaimRetentionPolicy"]
    assert set(kept.values()) == {"Retain"}


def test_pods_of_redis_are_restricted(redis: dict[str, Any]) -> None:
    """The example's namespace admits no others."""
    spec = redis["spec"]
    assert spec["podSecurityContext"]["runAsNonRoot"] is True
    assert spec["podSecurityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for part in ("redisLeader", "redisFollower", "initContainer"):
        assert spec[part]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_daemons_and_the_operator_reach_redis(redis: dict[str, Any]) -> None:
    (policy,) = all_in("networkpolicy.yaml")
    selector = policy["spec"]["podSelector"]["matchLabels"]
    assert selector == {"cluster": redis["metadata"]["name"]}  # the operator's own label
    clients, nodes = policy["spec"]["ingress"]
    assert [each["port"] for each in clients["ports"]] == [6379]
    assert [each["port"] for each in nodes["ports"]] == [6379, 16379]
    assert nodes["from"] == [{"podSelector": {"matchLabels": selector}}]
    daemons, operator = clients["from"]
    labels = daemons["podSelector"]["matchLabels"]
    assert labels == {"app.kubernetes.io/name": "groupflow"}
    namespace = operator["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert f"--namespace {namespace}" in (DEPLOY / "README.md").read_text()


def test_rabbitmq_can_have_partitioned_queues(plan: dict[str, Any], settings: Settings) -> None:
    cluster, budget = all_in("rabbitmq.yaml")
    spec = cluster["spec"]
    assert spec["replicas"] == 3
    assert spec["rabbitmq"]["additionalPlugins"] == [PLUGIN]
    (most,) = [
        each["value"]
        for each in yaml.safe_load(plan["patches"][1]["patch"])
        if each["path"] == "/spec/maxReplicaCount"
    ]
    assert settings.rabbitmq.partitions == most  # none is without a queue
    assert settings.rabbitmq.partitions % spec["replicas"] == 0
    assert "queue_leader_locator = balanced" in spec["rabbitmq"]["additionalConfig"].splitlines()
    assert budget["spec"]["maxUnavailable"] == 1
    labels = {"app.kubernetes.io/name": cluster["metadata"]["name"]}
    assert budget["spec"]["selector"]["matchLabels"] == labels


def lie(namespace: str, partitions: int, primaries: int) -> list[int]:
    """How many partitions each primary has, where slots are shared out as redis-cli does."""
    tags = [keys.tag[1:-1] for keys in keys_of(namespace, partitions)]
    slots = [crc_hqx(tag.encode(), 0) % SLOTS for tag in tags]
    ends = [round(SLOTS * (n + 1) / primaries) - 1 for n in range(primaries)]
    found = Counter(next(n for n, end in enumerate(ends) if slot <= end) for slot in slots)
    return [found[n] for n in range(primaries)]


def test_partitions_are_shared_out_over_primaries(
    redis: dict[str, Any], settings: Settings
) -> None:
    there = settings.redis.partitions
    found = lie(settings.redis.namespace, there, redis["spec"]["clusterSize"])
    assert max(found) <= 1.2 * there / len(found)
    assert found == [6, 9, 9]  # as the file says


def test_the_guide_says_where_partitions_lie() -> None:
    guide = (ROOT / "docs" / "scaling.md").read_text()
    table = guide.partition("<!-- lie:")[2].split("\n\n")[1].splitlines()
    _, *primaries = map(int, re.findall(r"\d+", "0" + table[0]))
    assert len(table) > 8
    for row in table[2:]:
        there, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for count, cell in zip(primaries, cells, strict=True):
            if cell:
                found = lie("groupflow", int(there), count)
                assert cell == f"{max(found)} ({int(there) / count:.3g})", row


def test_a_field_that_no_schema_has_is_found() -> None:
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
    }
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing"}
    schemas = schemas_in([{"spec": {"group": "x.org", "names": names, "versions": [version]}}])

    def wrong(spec: dict[str, Any]) -> list[str]:
        thing = {"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a"}}
        return list(problems_in([{**thing, "spec": spec}], schemas))

    assert wrong({"size": 3}) == []
    assert len(wrong({"sise": 3})) == 1
    assert len(wrong({"size": "3"})) == 1


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RedisCluster]:
    """A Redis Cluster whose nodes have the overlay's user."""
    cluster = RedisCluster(tmp_path / "cluster")
    run(cluster.start())
    try:
        yield cluster
    finally:
        run(cluster.stop())


def test_the_user_is_enough_for_a_daemon(
    guarded: RedisCluster, tmp_path: Path, rabbitmq_server: RabbitmqServer
) -> None:
    _, ours = secret("redis-users.acl").splitlines()
    password = urlsplit(secret("redis-url")).password
    rig = Rig(
        tmp_path,
        rabbitmq_server,
        guarded,
        redis={
            "partitions": 4,
            "replicas": 1,
            "url": guarded.url.replace("://", f"://groupflow:{password}@"),
        },
    )
    try:
        assert rig.keys.namespace != Keys("groupflow").namespace
        line = ours.removeprefix("user ").replace("{groupflow", f"{{{rig.keys.namespace}")
        for node in guarded.nodes:
            assert run(command(node, f"ACL SETUSER {line}")) == "OK"
        rig.start_all("d1", "d2")
        rig.publish(mixed(200, seed=31))
        rig.wait_for_all()
        rig.stop_all()
        assert rig.judge(with_faults=False) == []
        for node in guarded.nodes:
            assert run(command(node, "ACL LOG")) in ("0", ""), "something was refused"
    finally:
        rig.close()
