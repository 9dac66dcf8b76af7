"""The checks: what is asked, what is wanted, what to do.

A check has rows, which are tried in order on the facts that were asked for: the first that holds is
what doctor says. A check of which none holds says nothing. Texts may name the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from groupflow.core.checkup import Check, Verdict

SLOTS = 16384
# The first Redis whose scripts carry flags, which settling needs when memory is full.
_OLDEST_REDIS = (7, 0)
_OLDEST_RABBITMQ = (3, 8)  # the first with quorum queues
_NEAR_FULL = 0.9  # of maxmemory
_UNEVEN = 2  # times the average number of partitions of a node


@dataclass(frozen=True, slots=True)
class Case:
    """What is said where its condition holds."""

    verdict: Verdict
    when: Callable[[Any], object]  # the condition, on the facts as attributes
    found: str
    remedy: str = ""


def judge(*names: str, **facts: Any) -> list[Check]:
    """What some checks say, given the facts."""
    attributes = SimpleNamespace(**facts)
    rows = {name: next((r for r in TABLE[name] if r.when(attributes)), None) for name in names}
    return [
        Check(
            name.partition(" ")[0].format_map(facts),
            row.verdict,
            row.found.format_map(facts),
            row.remedy.format_map(facts),
        )
        for name, row in rows.items()
        if row is not None
    ]


def always(_facts: object) -> bool:
    return True


def _is(*arguments: str) -> Callable[[Any], bool]:
    return lambda facts: facts.argument in arguments


ok, warn, fail = partial(Case, "ok"), partial(Case, "warn"), partial(Case, "fail")

_ACL = "deploy/redis/groupflow.acl has all that the user needs."
_REDIS_LOG = "See Redis's own log."
_PERMISSIONS = "See deploy/rabbitmq/permissions.sh."
_UNTOLD = " Until then events wait in Redis, and at events.max_memory nothing is claimed."
_ANEW = (
    "An argument can't be changed: stop the publishers, let the queue run empty, delete it and let "
    "`groupflow run` declare it (or declare one under another name)."
)
_HAS = "{queue!r} has {argument} = {value}"
_FAILS_OVER = (
    "{there} connected, redis.replicas = {wanted}: a fail-over loses what was acked and had not "
    "reached the next primary"
)
_REBIND = (
    "Delete the exchange {ring!r} and start a daemon, which declares it again. Until then messages "
    "are handed back to their publishers, or go to a queue that no daemon consumes."
)
_MORE_SENTINELS = "Bring them back: too few of them can't replace a primary that is gone."
_SPREAD = "groupflow repartition to several times the primaries, or move slots."

# A second word in a name tells apart two checks that are shown under one.
# fmt: off
TABLE: Mapping[str, tuple[Case, ...]] = {
    "{section}.reachable": (
        ok(lambda s: not s.found, "{address}"),
        fail(lambda s: "CERTIFICATE_VERIFY_FAILED" in s.found, "{found}",
             "Its certificate isn't of a CA that is trusted here: set {section}.ca_file to it."),
        fail(lambda s: s.is_refused, "{found}",
             "Are user and password in {section}.url right (percent-encoded)?"),
        fail(always, "{found}", "Is it running, and is {section}.url right?")),
    "{section}.transport": (
        ok(lambda s: not s.found and s.is_tls, "TLS, the server's certificate is verified"),
        ok(lambda s: not s.found and s.stays_here, "plaintext, within this machine"),
        warn(lambda s: not s.found, "plaintext to another machine",
             "Use TLS unless the network itself is safe; it was allowed by "
             "{section}.allow_plaintext.")),
    "redis.version": (
        fail(lambda i: i.version < _OLDEST_REDIS, "{product}",
             "Use Redis 7.0 or newer, or Valkey."),
        ok(always, "{product}")),
    "redis.role": (
        fail(lambda i: i.role != "master", "a replica of {master_host}:{master_port}",
             "Give redis.url the address of the primary."),
        warn(lambda i: i.is_node and i.leader != "cluster", "a node of a cluster",
             "Give redis.url as redis+cluster://, with several of its nodes."),
        ok(lambda i: i.leader != "cluster", "a primary"),
        ok(lambda i: i.is_node, "a primary of a cluster")),
    "redis.cluster": (
        fail(lambda i: i.role == "master" and i.leader == "cluster" and not i.is_node,
             "it is no node of a cluster",
             "Give redis.url as redis://host:port/0; redis+cluster:// is for a Redis Cluster."),),
    "redis.eviction": (
        ok(lambda i: i.maxmemory_policy == "noeviction", "maxmemory-policy noeviction"),
        warn(lambda i: i.maxmemory_policy == "unknown",
             "Redis does not say its maxmemory-policy", "Look it up."),
        fail(always,
             "maxmemory-policy {maxmemory_policy}: when memory is full, Redis deletes tasks and "
             "locks",
             "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf (or the "
             "provider's console). A cache belongs on another Redis.")),
    "redis.persistence": (
        warn(lambda i: i.loading, "it is loading its file", "Wait until it has."),
        warn(lambda i: i.failed, "{failed} failed",
             "See Redis's log, and whether its disk is full: until then it refuses writes. Once it "
             "writes again, run BGREWRITEAOF before it restarts (docs/operating.md)."),
        ok(lambda i: i.aof_enabled, "appendonly yes"),
        warn(always,
             "appendonly no: a restart of Redis loses what came since its last snapshot, or "
             "everything",
             "CONFIG SET appendonly yes with appendfsync everysec, and the same in redis.conf.")),
    "redis.memory": (
        warn(lambda i: not i.most,
             "{used} MiB used, maxmemory not set: the kernel kills what grows too far",
             "CONFIG SET maxmemory to what the machine can spare, or set redis.max_memory. At "
             "either limit intake pauses, and what is queued still drains."),
        warn(lambda i: i.used_memory >= _NEAR_FULL * i.most, "{used} of {limit} MiB used",
             "Raise maxmemory or redis.max_memory, the lower one, add workers, or look for a group "
             "that stands: groupflow status."),
        ok(always, "{used} of {limit} MiB used")),
    "redis.clock": (
        warn(lambda i: i.server_time_usec and i.apart > i.lease / 4,
             "Redis's clock is {apart:.3f} s {side} this one",
             "Set both by NTP. Leases and delays go by Redis's clock alone, so nothing breaks, but "
             "times in logs and on the page don't agree."),
        ok(lambda i: i.server_time_usec, "Redis's clock is {apart:.3f} s {side} this one")),
    "redis.replicas": (
        warn(lambda i: i.there < i.wanted, "{there} connected, redis.replicas = {wanted}",
             "Until more of them are connected, intake stands; workers go on."),
        warn(lambda i: not i.wanted and i.leader, _FAILS_OVER,
             "Set redis.replicas = 1: then no message is acked before a replica has it."),
        ok(lambda i: not i.wanted and i.there, _FAILS_OVER),
        ok(always, "{there} connected, redis.replicas = {wanted}")),
    # Where it is set, Redis tells how many replicas are near enough. A cut-off node of a cluster
    # stops by itself.
    "redis.min_replicas": (
        warn(lambda i: i.leader == "sentinel" and i.min_slaves_good_slaves is None,
             "min-replicas-to-write 0: a primary that is cut off goes on for those who reach it",
             "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 5, and the same in "
             "redis.conf, if it shall rather stand than go on alone; see docs/delivery.md."),),
    "redis.fsync": (
        warn(lambda c: c.is_appending and c.appendfsync == "no",
             "appendfsync no: a power cut may lose the last 30 s",
             "CONFIG SET appendfsync everysec, and the same in redis.conf."),
        ok(lambda c: c.is_appending, "appendfsync {appendfsync}")),
    "redis.snapshots": (
        ok(lambda c: not c.is_appending and c.save, "save {save}"),
        warn(lambda c: not c.is_appending, "save none")),
    "redis.info": (
        warn(always, "the user may not run INFO",
             "Grant +info: without it we see no eviction policy that loses tasks, nor that "
             "another server leads, which may have lost claims."),),
    "redis.rights": (
        ok(lambda r: r.step == "done", "the user may do all that scripts need on {words}"),
        fail(lambda r: r.step == "any", "it lets the user do nothing: {words}", _ACL),
        fail(lambda r: r.step == "load", "scripts can't be loaded: {words}", _ACL),
        fail(lambda r: r.step == "run", "scripts can't be run on {words}", _ACL),
        fail(lambda r: r.step == "denied", "the user may not: {words}", _ACL),
        fail(lambda r: r.step == "wait", "the user may not: WAIT",
             "Grant +wait, as deploy/redis/groupflow.acl does; or set redis.replicas = 0."),
        # It answered before: it is busy, or can't write its disk.
        fail(lambda r: r.step == "busy", "{words}", _REDIS_LOG)),
    "redis.answers": (fail(always, "{words}", _REDIS_LOG),),
    "redis.nodes": (
        fail(lambda n: n.count > 1, "they disagree where the first partition is: {said}",
             "Name the nodes of one cluster in redis.url, and of that alone. In the midst of a "
             "fail-over they differ for some seconds: look again."),),
    "redis.partitions away": (
        fail(always, "away: {which} ({why})",
             "Bring the node back, or let its replica take over; the other partitions go on."),),
    "redis.cluster as a whole": (
        warn(lambda c: c.state is None, "it doesn't say how it is",
             "Grant +cluster|info: without it we don't see slots that no node serves."),
        fail(lambda c: not c.is_whole, "cluster_state {state}, {slots} of 16384 slots are served",
             "redis-cli --cluster check says which; partitions in the others are away."),
        ok(always, "cluster_state ok, {primaries} primaries, all slots served")),
    "redis.partitions": (
        warn(lambda c: c.is_whole and c.used < c.primaries,
             "{count} on {used} of {primaries} primaries: the others serve nothing", _SPREAD),
        warn(lambda c: c.is_whole and c.most > _UNEVEN * c.count / c.used,
             "{count} on {used} of {primaries} primaries: one serves {most} of them", _SPREAD),
        ok(lambda c: c.is_whole, "{count} on {used} of {primaries} primaries")),
    "redis.sentinels": (
        ok(lambda s: not s.wrong, "{count} of {count} say: {said}"),
        # More than half of them must agree before another primary leads.
        warn(lambda s: s.wrong * 2 < s.count, "{said}", _MORE_SENTINELS),
        fail(always, "{said}", _MORE_SENTINELS)),
    "rabbitmq.version": (
        warn(lambda b: not b.numbers, "it doesn't say its version", "Is it RabbitMQ?"),
        fail(lambda b: b.numbers < _OLDEST_RABBITMQ, "RabbitMQ {version}", "Use 3.8 or newer."),
        ok(always, "RabbitMQ {version}")),
    "rabbitmq.nodes": (
        warn(lambda n: n.error, "{error}",
             "While it is away connections go to the others. Is it running, and in rabbitmq.url?"),
        fail(lambda n: n.names > 1, "they are of different clusters: {told}",
             "Messages are in one of them alone: name the nodes of one cluster."),
        ok(lambda n: n.answered == n.count, "all {count} answer, and are of one cluster")),
    "rabbitmq.queue": (
        ok(lambda q: q.state == "missing",
           "{queue!r} is not there yet: `groupflow run` or `publish` declares it"),
        warn(lambda q: q.state == "untold",
             "{queue!r} can't be checked without the right to configure it (RabbitMQ {version})",
             _PERMISSIONS),
        warn(lambda q: q.state == "denied",
             "{queue!r} is there; the user may not declare it, so its arguments stay unseen",
             _PERMISSIONS),
        warn(lambda q: q.state, "RabbitMQ said nothing of {queue!r}: {words}"),
        ok(always, "{queue!r}: durable, quorum, single active consumer")),
    "rabbitmq.queue argument": (
        ok(lambda a: a.argument.startswith("x-max-length") and a.overflow == "reject-publish",
           "{queue!r} has {argument} = {value}, and refuses what is over it"),
        fail(lambda a: (a.argument, a.value) == ("x-queue-type", "stream"),
             _HAS + ": a stream hands its messages out again and again", _ANEW),
        fail(_is("durable"), _HAS + ": a restart of RabbitMQ loses it and its messages", _ANEW),
        fail(_is("x-single-active-consumer"),
             _HAS + ": two daemons consume at once and mix up the order", _ANEW),
        warn(_is("x-queue-type"),
             _HAS + ": its messages are on one node only, and are lost with its disk", _ANEW),
        fail(_is("x-message-ttl"),
             _HAS + ": messages that wait too long are lost, as is one past its own expiration; "
             "`expires` of a rule ends tasks that wait too long", _ANEW),
        fail(_is("x-expires"),
             _HAS + ": unused for so long, it is deleted with its messages", _ANEW),
        fail(_is("x-max-length", "x-max-length-bytes"),
             _HAS + ": what is over it is dropped from the head", _ANEW),
        warn(_is("x-max-priority"),
             _HAS + ": priorities change the order in which messages come", _ANEW),
        ok(always, _HAS)),
    "rabbitmq.delivery-limit": (
        ok(lambda d: not d.bound, "none: a message comes again however often daemons die with it"),
        warn(always,
             "{bound}: a message that so many daemons died with, or lost their connection, {then}",
             "Declare the queue with x-delivery-limit = -1. " + _ANEW)),
    "rabbitmq.reading": (
        fail(lambda r: r.refusal == "denied", "the user may not consume: {words}", _PERMISSIONS),
        ok(lambda r: r.refusal == "missing", "{queue!r} is not there yet"),
        ok(lambda r: r.refusal in ("", "differs"), "the user may consume {queue!r}"),
        warn(always, "RabbitMQ did not say whether the user may consume: {words}")),
    "rabbitmq.waiting": (
        warn(lambda q: q.waiting and not q.consumers,
             "{queue!r}: {waiting:,} messages wait, and nothing consumes them",
             "Start a daemon: groupflow run."),
        ok(always, "{queue!r}: messages that wait {waiting:,}, consumers {consumers}")),
    "rabbitmq.partitions left": (
        warn(lambda p: p.others, "{others}: of another number of partitions than {partitions}",
             "Daemons that start consume them as well. Once they are empty, and publishers send "
             "no more to them, delete them; or set rabbitmq.partitions to what it was."),),
    "rabbitmq.partitions": (
        ok(lambda e: e.missing,
           "no exchange {missing}: what is published to {queue!r} is handed back until a daemon, "
           "or `groupflow publish`, declares it"),
        ok(always, "{partitions} queues behind {queue!r}")),
    "rabbitmq.plugin": (
        warn(lambda p: p.is_there is None, "RabbitMQ did not say whether it has {plugin}"),
        fail(lambda p: not p.is_there, "{plugin} is not enabled", "{remedy}"),
        ok(always, "{plugin} is enabled")),
    "rabbitmq.alarms": (
        warn(lambda a: a.refusal == "silent",
             "no confirm within {within:g} s: an alarm on memory or disk blocks publishers",
             "See `rabbitmqctl status`; free memory or disk. What is in the queue still drains."),
        ok(lambda a: a.refusal == "denied",
           "the user may not publish to the default exchange"),
        warn(lambda a: a.refusal, "RabbitMQ took no message: {words}"),
        ok(always, "none: publishes are confirmed")),
    "rabbitmq.replies": (
        warn(lambda r: r.refusal == "denied" and r.replies,
             "the user may not publish to the default exchange: what asks for a reply gets none",
             _PERMISSIONS + " To reply to no message, set events.replies = []."),),
    "rabbitmq.events": (
        fail(lambda e: e.state == "differs", "{exchange!r} is no exchange of ours: {words}",
             "Delete it, or name another one in events.exchange: it must be a durable topic "
             "exchange, without arguments." + _UNTOLD),
        fail(lambda e: e.state == "denied", "the user may not declare {exchange!r}: {words}",
             _PERMISSIONS + _UNTOLD),
        fail(lambda e: e.is_denied, "the user may not publish to {exchange!r}",
             _PERMISSIONS + _UNTOLD),
        ok(lambda e: e.state == "missing", "{exchange!r} is not there yet: a daemon declares it"),
        warn(lambda e: e.state, "RabbitMQ said nothing of {exchange!r}: {words}"),
        ok(always, "{exchange!r}: a durable topic exchange")),
    "rabbitmq.events bindings": (
        warn(lambda e: e.bound == [],
             "no queue is bound to {exchange!r}: RabbitMQ drops every event",
             "Bind one, for example with the key done.#; or leave events.exchange empty."),),
    "rabbitmq.management": (
        warn(always, "{place}: {error}",
             "Is rabbitmq.management right: http(s)://user:password@host:15672, the user with the "
             "tag `monitoring`, the plugin rabbitmq_management enabled?"),),
    "rabbitmq.leaders untold": (
        ok(always, "AMQP can't tell how queues are bound, nor which nodes lead them",
           "Set rabbitmq.management, or see `rabbitmqctl list_bindings` and `list_queues name "
           "leader`."),),
    "rabbitmq.bindings": (
        ok(lambda b: not b.problems, "all {partitions} queues are bound to {ring!r}"),
        fail(lambda b: b.foreign, "{problems}", _REBIND),
        warn(always, "{problems}", _REBIND)),
    "rabbitmq.leaders": (
        fail(lambda q: q.leaderless, "no node leads {leaderless}: too few of its nodes are there",
             "Start the nodes that are away."),
        warn(lambda q: q.away, "copies are away: on {away}",
             "Start those nodes: one more may be one too many."),
        warn(lambda q: q.count > 1 and q.nodes > 1 and q.leading == 1, "all on one node: {told}",
             "`rabbitmq-queues rebalance quorum` spreads them over the nodes; it is wanted after a "
             "restart of one."),
        ok(lambda q: q.count, "{told} of {count}")),
    "schedules.{name}": (
        warn(lambda s: s.rival, "daemon {rival} has another definition of it than {daemon}",
             "That of {daemon} counts, whose configuration was loaded later: give both the same, "
             "and reload."),
        warn(lambda s: s.is_nobodys,
             "no daemon has had it for {away}; {daemon} was last",
             "Start a daemon with it, or forget it: groupflow schedules drop {name}. It makes no "
             "ticks.")),
    "schedules": (
        ok(lambda s: s.count, "{count}, each of one definition, and with a daemon"),),
    "daemons": (
        warn(lambda d: not d.running, "none is running{late}",
             "Start one: groupflow run. Until then tasks wait, and messages in RabbitMQ."),
        warn(lambda d: d.late, "{running} running{late}",
             "Another takes its tasks over. Is its process there, and does it reach Redis?"),
        ok(always, "{running} running")),
    "types": (
        warn(lambda t: t.missing, "no running daemon has a handler for {missing}",
             "This configuration names it: reload the daemons, or start one with it."),),
    "types waiting": (
        warn(lambda t: t.waiting, "no running daemon has a handler for {waiting}",
             "Start a daemon that has one: then they run. Once no daemon has known a type for "
             "workers.unknown_for, its tasks are dead letters."),),
    "http.listen": (
        ok(lambda h: not h.listen, "nothing listens"),
        ok(lambda h: h.listens_here, "{listen}, this machine alone; {actions}"),
        warn(always, "{listen}: plain HTTP beyond this machine; {looking}; {actions}",
             "Put a proxy with TLS in front, or listen on 127.0.0.1.")),
    "http.health": (
        ok(lambda h: not h.health, "the daemon itself doesn't listen"),
        ok(lambda h: h.tells_here, "{health}, this machine alone"),
        ok(lambda h: h.in_kubernetes,
           "{health}: health and metrics beyond this machine, without a token, as the kubelet's "
           "probes need it"),
        warn(always, "{health}: health and metrics beyond this machine, without a token",
             "Listen on 127.0.0.1, or let only probes and Prometheus reach it.")),
    "files": (
        ok(lambda f: not f.can, "no other user may write the configuration or read its secrets"),
        warn(lambda f: f.secret, "{path}, the {what}, has mode {mode:04o}: {who} can {can}",
             "chmod 600 {path}, or 640 with the daemon's group."),
        warn(always, "{path}, the {what}, has mode {mode:04o}: {who} can {can}",
             "chmod go-w {path}.")),
}
