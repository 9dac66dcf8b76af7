"""The overlay with clusters of its own: its parts name each other, and its rights are enough."""

from __future__ import annotations

import re
from binascii import crc_hqx
from collections import Counter
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from groupflow.servers import RabbitmqServer
from groupflow.settings.load import load_settings
from groupflow.settings.model import Settings
from groupflow.settings.transport import split_hosts
from groupflow.store.partitions import keys_of
from tests.deploy.manifests import CLUSTERS, DEPLOY, at, files_of, read
from tests.endtoend.conftest import rigs
from tests.endtoend.streams import mixed
from tests.running import run
from tests.servers.replicated import SLOTS, RedisCluster, command

DOMAIN = "groupflow.svc.cluster.local"
REDIS = read(CLUSTERS / "redis.yaml")["spec"]
RABBITMQ = next(yaml.safe_load_all((CLUSTERS / "rabbitmq.yaml").read_text()))["spec"]
PLAN = read(CLUSTERS / "kustomization.yaml")
POD = at(yaml.safe_load(at(PLAN, "patches/0/patch")), "spec/template/spec")
MADE = {each["name"]: each for each in (*PLAN["configMapGenerator"], *PLAN["secretGenerator"])}


def secret(name: str) -> str:
    return (CLUSTERS / "secrets" / f"{name}.example").read_text()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a pod: the file, the Secret, and the variables that the overlay adds."""
    for name, file in files_of(MADE["groupflow"]).items():
        (tmp_path / name).write_text((CLUSTERS / file).read_text())
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(tmp_path))
    for variable in at(POD, "containers/*/env"):
        monkeypatch.setenv(variable["name"], variable["value"])
    return load_settings(CLUSTERS / "groupflow.toml")


def test_the_operator_finds_the_users_of_redis() -> None:
    """By names that get no hash; its own password is beside the file that knows it."""
    users = at(REDIS, "kubernetesConfig/redisSecret")
    config = at(REDIS, "redisLeader/redisConfig/additionalRedisConfig")
    assert at(REDIS, "redisFollower/redisConfig/additionalRedisConfig") == config
    assert at(REDIS, "acl/secret/secretName") == users["name"]
    assert set(files_of(MADE[users["name"]])) == {users["key"], "user.acl"}
    for name in (config, users["name"]):
        assert at(MADE[name], "options/disableNameSuffixHash") is True


def test_daemons_know_every_node_and_trust_its_certificate(settings: Settings) -> None:
    redis = urlsplit(settings.redis.url.get_secret_value())
    rabbitmq = urlsplit(settings.rabbitmq.url.get_secret_value())
    assert (redis.scheme, redis.username, rabbitmq.scheme) == (
        *("rediss+cluster", "groupflow", "amqps"),
    )
    hosts = split_hosts(redis.netloc.rpartition("@")[2], 1)
    assert hosts == [
        (f"redis-{role}-{n}.redis-{role}-headless.{DOMAIN}", 6379)
        for role in ("leader", "follower")
        for n in range(REDIS["clusterSize"])
    ]
    certified = {
        each["spec"]["secretName"]: each["spec"].get("dnsNames", [])
        for each in yaml.safe_load_all((CLUSTERS / "certificates.yaml").read_text())
        if each["kind"] == "Certificate"
    }
    mount = at(POD, "containers/*/volumeMounts/*/mountPath")
    trusted = {
        at(source, "secret/name"): f"{mount}/{at(source, 'secret/items/*/path')}"
        for source in at(POD, "volumes/*/projected/sources")
    }
    ours, theirs = at(REDIS, "TLS/secret/secretName"), at(RABBITMQ, "tls/secretName")
    assert trusted == {ours: settings.redis.ca_file, theirs: settings.rabbitmq.ca_file}
    for name, host in ((theirs, rabbitmq.hostname or ""), *((ours, host) for host, _ in hosts)):
        assert any(fnmatchcase(host, each) for each in certified[name]), host


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
    added = {"+spublish", "+ssubscribe", "+sunsubscribe", "+cluster|info"}
    everywhere = {"~{groupflow:*}:*", "&{groupflow:*}:*"}
    words = {word for word in ours.split() if not word.startswith("#")}
    assert words == set(single.split()) | added | everywhere


def test_servers_are_set_up_as_daemons_want_them(settings: Settings) -> None:
    """As on one server, and a fail-over is over before a lease is; no daemon is without a queue."""
    ours, single = (
        dict(re.findall(r"^([a-z-]+) (.*)$", file.read_text(), re.MULTILINE))
        for file in (CLUSTERS / "redis.conf", DEPLOY / "redis" / "redis.conf")
    )
    del single["maxmemory"]  # the operator's, from the limit
    assert ours | single == ours
    assert int(ours["cluster-node-timeout"]) / 1000 + 2 < settings.workers.lease
    assert settings.redis.replicas == 1  # a copy of each batch that is acked
    patch = {each["path"]: each["value"] for each in yaml.safe_load(at(PLAN, "patches/1/patch"))}
    assert settings.rabbitmq.partitions == patch["/spec/maxReplicaCount"]
    assert settings.rabbitmq.partitions % RABBITMQ["replicas"] == 0


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
    head, _, *rows = guide.partition("<!-- lie:")[2].split("\n\n")[1].splitlines()
    assert len(rows) > 6
    for row in rows:
        there, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for count, cell in zip(map(int, re.findall(r"\d+", head)), cells, strict=True):
            if cell:
                found = lie("groupflow", int(there), count)
                assert cell == f"{max(found)} ({int(there) / count:.3g})", row


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
            for node in guarded.nodes:
                assert run(command(node, f"ACL SETUSER {line}")) == "OK"
            rig.start_all("d1", "d2")
            rig.publish(mixed(200, seed=31))
            rig.end(with_faults=False)
            for node in guarded.nodes:
                assert run(command(node, "ACL LOG")) in ("0", ""), "something was refused"
    finally:
        run(guarded.stop())
