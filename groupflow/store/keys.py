"""Every key that groupflow writes; no other module names one.

All keys of one partition share a hash tag, so that each script runs within one slot of a Redis
Cluster: ``{ns}`` where a namespace has a single one, else ``{ns:3}``. Scripts say ``K.lane`` for a
kind, which `spelled` writes out for them, behind the tag that they are called with; a name is
spelled only here.

| key | type | holds |
|---|---|---|
| ``plain`` | list | entries of plain tasks in order of arrival; pushed left, taken right |
| ``ordered`` | zset | entries of plain tasks not in that order, and that came back → order_time |
| ``quarantined_plain`` | zset | the same of those that have crashes, in place of ``ordered`` |
| ``lane:<group>`` | list | entries of a group's waiting tasks in order; pushed left, taken right |
| ``ready`` | zset | groups whose head may be claimed now → what `workers.order` sorts by |
| ``quarantined_groups`` | zset | the same of those whose head has crashes, in place of ``ready`` |
| ``pool_ordered:<pool>`` | zset | the same as ``ordered``, for workers that pull from a pool |
| ``pool_quarantined_plain:<pool>`` | zset | the same as ``quarantined_plain``, for these |
| ``pool_ready:<pool>`` | zset | the same as ``ready``, for these |
| ``pool_quarantined_groups:<pool>`` | zset | the same as ``quarantined_groups``, for these |
| ``pools`` | hash | names of pools that ever had a task or a worker → since when |
| ``pool_pullers:<pool>`` | zset | ``pool/<pool>/<worker>``, as daemons → when its lease runs out |
| ``pool_holders:<pool>`` | zset | those of them that hold tasks → how many; under '' their sum |
| ``held`` | zset | groups whose head isn't due yet → due |
| ``lock:<group>`` | string | the group runs: ``fence daemon slot`` |
| ``runs`` | hash | group → the last fence that its run has, and how far in its lane that reaches |
| ``limits`` | hash | what the configuration says of concurrency and rates; see `limits.lua` |
| ``by_hand`` | hash | limits that an operator set for a while: see `by_hand.lua` |
| ``by_hand_ends`` | zset | the same → until when |
| ``by_hand_news`` | list | which of them began and ended, until a daemon's log has it (JSON) |
| ``sharing`` | zset | claims of groups that several tasks may run in, in place of locks |
| ``rates`` | zset | ``g`` and a group → when its next start is due in the long run |
| ``closed`` | zset | the same → until when nothing of it starts, since a handler asked for that |
| ``waits:<kind><tenant>`` | zset | what waits for a tenant's turn; see `tenants.lua` |
| ``waiting_groups`` | hash | group → kind and tenant, of those that wait so |
| ``turns`` | hash | kind and tenant → which of them stands where claims look |
| ``standing`` | zset | tenants of which nothing may start → until when |
| ``charged`` | hash | fence → tenant, of claims that count for one |
| ``charges`` | zset | the same claims, to be counted by tenant |
| ``caps`` | hash | limits of types, by pattern, as configured and by hand: see `caps.lua` |
| ``cap_waits:<place>`` | zset | what waits for the limit of its type |
| ``cap_lines`` | zset | the places where something waits so, by pattern |
| ``cap_groups``, ``cap_tasks`` | hash | group, or plain task's entry → where it waits so |
| ``cap_turns`` | hash | place → which of them stands where claims look too |
| ``cap_standing`` | zset | patterns of which nothing may start → until when |
| ``cap_reviews`` | zset | lines that are still to be looked through, since types' limits changed |
| ``cap_charged`` | hash | fence → pattern, of claims that count for one |
| ``cap_charges`` | zset | the same claims, to be counted by pattern |
| ``shares:<pool>`` | zset | tenant → its virtual time, where tenants share by weight |
| ``delayed`` | zset | entries of tasks that stand aside until they are due → due |
| ``aside`` | hash | group → how many of its tasks stand in ``delayed`` |
| ``drains`` | hash | group → what has ended of it since it was drained: `draining.lua` |
| ``debouncing`` | hash | group, scope, type → the task that newer ones replace: `debouncing.lua` |
| ``late`` | zset | ids of tasks that wait for a message's delay, theirs or one ahead → until when |
| ``tasks`` | hash | id → the envelope: a JSON array, a line feed, the body's raw bytes |
| ``task_state:<id>`` | hash | what has happened to a task that left the straight path; see below |
| ``fence`` | counter | the last fence handed out; sessions take theirs from it too |
| ``daemons`` | zset | daemon → when its lease runs out |
| ``daemon:<name>`` | hash | session, process, what it tells (JSON, twice), its quarantined claim |
| ``worker:<daemon>`` | hash | slot → checkpoint: the claim it holds, or the last one it settled |
| ``lost:<daemon>`` | list | the process that lost its lease, then the ids that it held |
| ``losing`` | zset | the same daemons → when that counts as a death |
| ``parked``, ``paused`` | hash | group → why and since when (JSON) |
| ``resumes`` | zset | groups whose pause ends by itself, '' for everything → when |
| ``paused_all`` | string | since when and by whom nothing may be claimed (JSON) |
| ``expiring`` | zset | ids of tasks that have to start in time, and haven't started → until when |
| ``progress:<daemon>`` | hash | slot → fence, and how far it has got: `progress.lua` |
| ``types:<daemon>`` | hash | the types that a daemon has handlers of |
| ``unknown`` | zset | types that no living daemon knows → since when: `unknown.lua` |
| ``unknown_tasks:<type>`` | zset | ids of tasks that wait for one that does → sequence number |
| ``cancels`` | hash | ids of tasks that are to be cancelled and haven't ended: `ending.lua` |
| ``dead`` | zset | ids of dead letters → when they died |
| ``bodies`` | zset | ids of those of them that are here whole → when they died |
| ``staying`` | zset | the same of those whose bodies RabbitMQ refused, in place of ``bodies`` |
| ``history:new``, ``history:old`` | hash | id → how it ended; also the memory of the dedup window |
| ``segments`` | hash | when the two history segments began; salts of derived ids; who archives |
| ``renamed`` | hash | scope and message id → number of its newest derived id; see `ids.lua` |
| ``count`` | hash | totals |
| ``outbox`` | list | what RabbitMQ is to be told, the oldest first; see `outbox.lua` |
| ``outbox_full`` | string | nothing is claimed: the outbox has as many bytes as it may |
| ``results:new``, ``results:old`` | hash | id → what a task's handler gave as its result (JSON) |
| ``lately:new``, ``lately:old`` | list | ids of tasks of groups that ended, the newest right |
| ``carried`` | hash | tenant → bytes that its tasks carry, of stages and failed attempts |
| ``samples`` | hash | place in a ring, of an hour or a day → totals (JSON); the longest lanes |
| ``tally`` | hash | how an attempt ended, its duration and type → how many since the last sample |
| ``tallies`` | hash | place in a ring → what handlers did in a minute, or in five (JSON) |
| ``moved`` | hash | what has come from a partition where it may still lie; see ``moving.lua`` |
| ``epoch`` | hash | which server leads, and what it knew when it began to; see `epochs.lua` |
| ``recovering`` | string | until when nothing may be claimed: that server may have lost writes |
| ``schedules`` | zset | names of schedules → when they are due next |
| ``schedule:<name>`` | hash | what its ticks are made of, and became; see ``rows.lua`` |
| ``partitions`` | hash | how many a namespace has, its format: under the bare tag, and in each |
| ``scans`` | hash | the names of scans → since when; under the tag without a number |
| ``actions`` | zset | what operators did → when: `note_action.lua`; same tag |
| ``scan:<name>`` | hash | what daemons have agreed on about a scan: see `scan_open.lua`; same tag |

An *entry* is what stands in a list: 16 digits of sequence number (its arrival in µs, strictly
rising), one flag, the id. The flag is ``+`` where the task has a ``task_state``, ``.`` where it has
none, so that the straight path never looks for one. The sequence number is the task's place in its
group for good. A *task state* has what
settles have changed; of a dead letter or a large task also its type and tenant, so that a look at
it needn't read its body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

SEQUENCE_DIGITS = 16
_SINCE, _LENGTH, _ENTRY = 33, 49, 53  # where a live checkpoint's parts begin; see sessions.lua
_FENCE_END = 17

_WHOLE = (
    "plain", "ordered", "ready", "quarantined_plain", "quarantined_groups", "held", "delayed",
    "late", "fence", "daemons", "parked", "paused", "paused_all", "tasks", "dead", "bodies",
    "staying", "segments", "count", "carried", "samples", "tally", "tallies", "renamed", "moved",
    "partitions", "epoch", "recovering", "schedules", "limits", "sharing", "rates", "closed",
    "scans", "runs", "resumes", "waiting_groups", "turns", "standing", "charged", "charges",
    "pools", "by_hand", "by_hand_ends", "by_hand_news", "debouncing", "losing",
    "cancels", "expiring", "caps", "cap_lines", "cap_groups", "cap_tasks", "cap_turns",
    "cap_standing", "cap_charged", "cap_charges", "cap_reviews", "unknown", "aside", "drains",
    "outbox", "outbox_full", "actions",
)  # fmt: skip
_PREFIXES = (
    "lane", "lock", "task_state", "daemon", "worker", "lost", "schedule", "scan", "waits", "shares",
    "cap_waits",
    "pool_ordered", "pool_quarantined_plain", "pool_ready", "pool_quarantined_groups",
    "pool_pullers", "pool_holders", "types", "unknown_tasks", "progress",
)  # fmt: skip
_HISTORY = {
    f"{what}_{segment}": f"{what}:{segment}"
    for what in ("history", "results", "lately")
    for segment in ("new", "old")
}
# What stands behind the tag, by what scripts say.
_SPELLINGS = (
    {kind: kind for kind in (*_WHOLE, "wake")} | {kind: f"{kind}:" for kind in _PREFIXES} | _HISTORY
)
# The look-behind stands behind the K, so that the engine looks for the K as plain text.
_KIND = re.compile(r"K(?<!\wK)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Keys:
    """The key names of one partition of a namespace."""

    namespace: str  # letters, digits, ., _, -
    partition: int | None = None  # None where there is one, and for what is common to all

    @property
    def tag(self) -> str:
        """The hash tag, in its braces."""
        number = "" if self.partition is None else f":{self.partition}"
        return f"{{{self.namespace}{number}}}"

    def __call__(self, kind: str, name: str = "") -> str:
        """The key of a kind, with the caller's `name`, if any, at its very end.

        The kind comes first and is fixed, so no name can reach a key of another kind.
        """
        kind = _HISTORY.get(kind, kind)
        return f"{self.tag}:{kind}:{name}" if name else f"{self.tag}:{kind}"

    @property
    def wake(self) -> str:
        """The channel on which scripts say that something may be claimed now."""
        return f"{self.tag}:wake"

    @property
    def front(self) -> str:
        """What all of its keys begin with, and no key's name: scripts are called with it.

        While a slot of a cluster is moved to another node key by key, some keys are gone and some
        are there still. A script would fail half-way, with its first half written. A node that has
        begun to give the slot away refuses a key that never was, so no script begins there. Where
        slots move as a whole (Valkey 9, Redis 8.4) none is refused.
        """
        return f"{self.tag}:"

    def every(self) -> Iterator[tuple[str, str]]:
        """Kind and key of each; keys that want a name end in ``:``."""
        for kind in (*_WHOLE, *_PREFIXES, *_HISTORY):
            yield kind, self.front + _SPELLINGS[kind]


@cache  # a rule stands in front of many verbs
def spelled(script: str) -> str:
    """A script with its keys written out: ``K.lane`` is ``TAG .. 'lane:'``, which wants a name.

    `TAG` is what it is called with (`Keys.front`). So its text is the same for all partitions, and
    Redis keeps one script for all that it has.

    Raises:
        KeyError: there is no key of that kind.
    """
    return _KIND.sub(lambda found: f"TAG .. '{_SPELLINGS[found[1]]}'", script)


def split_entry(entry: bytes) -> tuple[int, str]:
    """The arrival (µs) and the id of a list entry."""
    return int(entry[:SEQUENCE_DIGITS]), entry[SEQUENCE_DIGITS + 1 :].decode()


def split_checkpoint(checkpoint: bytes) -> tuple[int, int, bytes, str]:
    """The fence, since when (µs), the entry and the group of a live checkpoint."""
    end = _ENTRY + int(checkpoint[_LENGTH:_ENTRY])
    fence, since = int(checkpoint[1:_FENCE_END]), int(checkpoint[_SINCE:_LENGTH])
    return fence, since, checkpoint[_ENTRY:end], checkpoint[end:].decode()
