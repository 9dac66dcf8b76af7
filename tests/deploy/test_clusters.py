"""The overlay with clusters of its own: its parts name each other, and its rights are enough."""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections import Counter
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
from groupflow.store.partitions import keys_of
from tests.deploy.against_crds import problems_in, schemas_in
from tests.deploy.manifests import CLUSTERS, DEPLOY, at, differing, files_of, read
from tests.endtoend.conftest import rigs
from tests.endtoend.rig import run
from tests.endtoend.test_order import mixed
from tests.servers.replicated import RedisCluster, command

DOMAIN = "groupflow.svc.cluster.local"
SLOTS = 16_384
REDIS = read(CLUSTERS / "redis.yaml")["spec"]
RABBITMQ, BUDGET = yaml.safe_load_all((CLUSTERS / "rabbitmq.yaml").read_text())
PLAN = read(CLUSTERS / "kustomization.yaml")
POD = at(yaml.safe_load(at(PLAN, "patches/0/patch")), "spec/template/spec")
MADE = {
    each["name"]: files_of(each) for each in (*PLAN["configMapGenerator"], *PLAN["secretGenerator"])
}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def secret(name: str) -> str:
    return (CLUSTERS / "secrets" / f"{name}.example").read_text()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a pod: the file, the Secret, and the variables that the overlay adds."""
    (generator,) = [each for each in PLAN["secretGenerator"] if each["name"] == "groupflow"]
    for name, file in files_of(generator).items():
        (tmp_path / name).write_text((CLUSTERS / file).read_text())
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(tmp_path))
    for variable in at(POD, "containers/*/env"):
        monkeypatch.setenv(variable["name"], variable["value"])
    return load_settings(CLUSTERS / "groupflow.toml")


def test_redis_is_restricted_and_outlives_its_pods() -> None:
    """The example's namespace admits no other pods; one primary alone the operator may empty."""
    files = {name for name, files in MADE.items() if "redis-additional.conf" in files}
    (config,) = files
    assert differing(REDIS, {
        "clusterSize": 3,
        "persistenceEnabled": True,
        "storage/nodeConfVolume": True,
        "storage/keepAfterDelete": True,
        "kubernetesConfig/persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": "Retain", "whenScaled": "Retain"
        },
        "podSecurityContext/runAsNonRoot": True,
        "podSecurityContext/seccompProfile": {"type": "RuntimeDefault"},
        "redisLeader/securityContext": RESTRICTED,
        "redisFollower/securityContext": RESTRICTED,
        "initContainer/securityContext": RESTRICTED,
        "redisLeader/redisConfig/additionalRedisConfig": config,
        "redisFollower/redisConfig/additionalRedisConfig": config,
        # Where the operator looks for the users, and for its own password beside them.
        "acl/secret/items/*/path": "user.acl",
        "acl/secret/secretName": at(REDIS, "kubernetesConfig/redisSecret/name"),
    }) == {}  # fmt: skip
    users = at(REDIS, "kubernetesConfig/redisSecret")
    assert set(MADE[users["name"]]) == {users["key"], at(REDIS, "acl/secret/items/*/key")}
    assert 0 < at(REDIS, "redisConfig/maxMemoryPercentOfLimit") <= 50
    for name in (config, users["name"]):  # one whose name gets a hash isn't found by the operator
        (made,) = [
            each
            for each in (*PLAN["configMapGenerator"], *PLAN["secretGenerator"])
            if each["name"] == name
        ]
        assert at(made, "options/disableNameSuffixHash") is True


def test_daemons_know_every_node_of_redis(settings: Settings) -> None:
    url = urlsplit(settings.redis.url.get_secret_value())
    assert (url.scheme, url.username) == ("rediss+cluster", "groupflow")
    assert split_hosts(url.netloc.rpartition("@")[2], 1) == [
        (f"redis-{role}-{n}.redis-{role}-headless.{DOMAIN}", 6379)
        for role in ("leader", "follower")
        for n in range(REDIS["clusterSize"])
    ]


def test_certificates_are_for_the_names_that_daemons_use(settings: Settings) -> None:
    """And daemons trust the CA of each."""
    certified = {
        each["spec"]["secretName"]: each["spec"].get("dnsNames", [])
        for each in yaml.safe_load_all((CLUSTERS / "certificates.yaml").read_text())
        if each["kind"] == "Certificate"
    }
    hosts = urlsplit(settings.redis.url.get_secret_value()).netloc.rpartition("@")[2]
    rabbitmq = urlsplit(settings.rabbitmq.url.get_secret_value())
    names = at(REDIS, "TLS/secret/secretName"), at(RABBITMQ, "spec/tls/secretName")
    asked = dict(
        zip(names, ([h for h, _ in split_hosts(hosts, 1)], [rabbitmq.hostname]), strict=True)
    )
    for name, wanted in asked.items():
        for host in wanted:
            assert any(fnmatchcase(host or "", each) for each in certified[name]), host
    assert at(RABBITMQ, "spec/tls/disableNonTLSListeners") is True
    assert rabbitmq.scheme == "amqps"
    mount = at(POD, "containers/*/volumeMounts/*")
    assert mount["name"] == at(POD, "volumes/*/name")
    there = {}
    for source in at(POD, "volumes/*/projected/sources"):
        assert at(source, "secret/items/*/key") == "ca.crt"
        there[at(source, "secret/name")] = (
            f"{mount['mountPath']}/{at(source, 'secret/items/*/path')}"
        )
    assert there == dict(
        zip(names, (settings.redis.ca_file, settings.rabbitmq.ca_file), strict=True)
    )


def _hash(password: str) -> str:
    return "#" + sha256(password.encode()).hexdigest()


def test_users_of_redis(settings: Settings) -> None:
    """None without a password, and ours may do what it may on one server and a cluster asks for.

    Redis with an ACL file doesn't know `requirepass`: the file has the operator's user too.
    """
    default, ours = secret("redis-users.acl").splitlines()
    password = urlsplit(settings.redis.url.get_secret_value()).password or ""
    assert default.split()[:3] == ["user", "default", "on"]
    assert _hash(secret("redis-password")) in default.split()
    assert _hash(password) in ours.split()
    assert "nopass" not in default + ours
    single = (DEPLOY / "redis" / "groupflow.acl").read_text()
    added = {"+spublish", "+ssubscribe", "+sunsubscribe", "+wait", "+cluster|info"}
    everywhere = {"~{groupflow:*}:*", "&{groupflow:*}:*"}
    words = {word for word in ours.split() if not word.startswith("#")}
    assert words == set(single.split()) | added | everywhere


def test_redis_is_set_up_as_on_one_server(settings: Settings) -> None:
    ours, single = (
        dict(re.findall(r"^([a-z-]+) (.*)$", file.read_text(), re.MULTILINE))
        for file in (CLUSTERS / "redis.conf", DEPLOY / "redis" / "redis.conf")
    )
    del single["maxmemory"]  # the operator's, from the limit
    assert ours | single == ours
    # A fail-over is over before a lease is.
    assert int(ours["cluster-node-timeout"]) / 1000 + 2 < settings.workers.lease
    # One copy at least for each batch that is acked; the operator makes one a primary.
    assert settings.redis.replicas == 1
    assert ours["min-replicas-to-write"] == "0"


def test_only_daemons_and_the_operator_reach_redis() -> None:
    policy = read(CLUSTERS / "networkpolicy.yaml")["spec"]
    nodes = {"matchLabels": {"cluster": "redis"}}  # the operator's own label, for this name
    assert at(read(CLUSTERS / "redis.yaml"), "metadata/name") == "redis"
    wanted = {
        "podSelector": nodes,
        "ingress/0/ports/*/port": 6379,
        "ingress/0/from/0/podSelector/matchLabels": {"app.kubernetes.io/name": "groupflow"},
        "ingress/1/from": [{"podSelector": nodes}],
    }
    assert differing(policy, wanted) == {}
    assert [each["port"] for each in at(policy, "ingress/1/ports")] == [6379, 16379]
    assert (len(policy["ingress"]), len(at(policy, "ingress/0/from"))) == (2, 2)
    labels = at(policy, "ingress/0/from/1/namespaceSelector/matchLabels")
    namespace = labels["kubernetes.io/metadata.name"]
    assert f"--namespace {namespace}" in (DEPLOY / "README.md").read_text()


def test_rabbitmq_can_have_partitioned_queues(settings: Settings) -> None:
    assert differing(RABBITMQ, {
        "spec/replicas": 3, "spec/rabbitmq/additionalPlugins": [PLUGIN]
    }) == {}  # fmt: skip
    patch = {each["path"]: each["value"] for each in yaml.safe_load(at(PLAN, "patches/1/patch"))}
    partitions = settings.rabbitmq.partitions
    assert partitions == patch["/spec/maxReplicaCount"]  # no daemon is without a queue
    assert partitions % at(RABBITMQ, "spec/replicas") == 0
    lines = at(RABBITMQ, "spec/rabbitmq/additionalConfig").splitlines()
    assert "queue_leader_locator = balanced" in lines
    labels = {"app.kubernetes.io/name": at(RABBITMQ, "metadata/name")}
    wanted = {"spec/maxUnavailable": 1, "spec/selector/matchLabels": labels}
    assert differing(BUDGET, wanted) == {}


def lie(namespace: str, partitions: int, primaries: int) -> list[int]:
    """How many partitions each primary has, where slots are shared out as redis-cli does."""
    tags = [keys.tag[1:-1] for keys in keys_of(namespace, partitions)]
    slots = [crc_hqx(tag.encode(), 0) % SLOTS for tag in tags]
    ends = [round(SLOTS * (n + 1) / primaries) - 1 for n in range(primaries)]
    found = Counter(next(n for n, end in enumerate(ends) if slot <= end) for slot in slots)
    return [found[n] for n in range(primaries)]


def test_partitions_are_shared_out_over_primaries(settings: Settings) -> None:
    """As the file says, and the table of the guide."""
    found = lie(settings.redis.namespace, settings.redis.partitions, REDIS["clusterSize"])
    assert found == [6, 9, 9]
    guide = (DEPLOY.parent / "docs" / "scaling.md").read_text()
    table = guide.partition("<!-- lie:")[2].split("\n\n")[1].splitlines()
    _, *primaries = map(int, re.findall(r"\d+", "0" + table[0]))
    assert len(table) > 8
    for row in table[2:]:
        there, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for count, cell in zip(primaries, cells, strict=True):
            if cell:
                found = lie("groupflow", int(there), count)
                assert cell == f"{max(found)} ({int(there) / count:.3g})", row


@pytest.mark.parametrize(
    ("spec", "problems"), [({"size": 3}, 0), ({"sise": 3}, 1), ({"size": "3"}, 1)]
)
def test_a_field_that_no_schema_has_is_found(spec: dict[str, Any], problems: int) -> None:
    text, sized = {"type": "string"}, {"size": {"type": "integer"}}
    properties: dict[str, Any] = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
    properties |= {"spec": {"type": "object", "properties": sized}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version = {"name": "v1", "served": True, "schema": schema}
    definition = {"group": "x.org", "names": {"kind": "Thing"}, "versions": [version]}
    thing = {"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}
    assert len(list(problems_in([thing], schemas_in([{"spec": definition}])))) == problems


def test_the_user_is_enough_for_a_daemon(tmp_path: Path, rabbitmq_server: RabbitmqServer) -> None:
    """On a Redis Cluster whose nodes have the overlay's user."""
    _, ours = secret("redis-users.acl").splitlines()
    user = f"://groupflow:{urlsplit(secret('redis-url')).password}@"
    guarded = RedisCluster(tmp_path / "cluster")
    run(guarded.start())
    redis = {"partitions": 4, "replicas": 1, "url": guarded.url.replace("://", user)}
    try:
        with rigs(tmp_path, rabbitmq_server, guarded, redis=redis) as make_rig:
            rig = make_rig()
            line = ours.removeprefix("user ").replace("{groupflow", f"{{{rig.keys.namespace}")
            assert line.count(rig.keys.namespace) == ours.count("{groupflow")
            for node in guarded.nodes:
                assert run(command(node, f"ACL SETUSER {line}")) == "OK"
            rig.start_all("d1", "d2")
            rig.publish(mixed(200, seed=31))
            rig.end(with_faults=False)
            for node in guarded.nodes:
                assert run(command(node, "ACL LOG")) in ("0", ""), "something was refused"
    finally:
        run(guarded.stop())
