"""Damages of sessions, leases and epochs, between scripts and Redis."""

from __future__ import annotations

from tests.simulation.damaging import ENDING, EXCHANGE, Condition, Damage, Effect, without

OF_SESSIONS: tuple[Damage, ...] = (
    Effect(
        "reap-living",
        "the reaper takes a living daemon's claims",
        "command == 'ZRANGEBYSCORE' and kind == 'daemons'",
        "args[2] = '+inf' do return redis.call(command, key, unpack(args)) end",
        ("reap",),
    ),
    Effect(
        "reap-early",
        "the reaper takes claims half a lease early",
        "command == 'ZRANGEBYSCORE' and kind == 'daemons'",
        "args[2] = tostring(tonumber(args[2]) + 1000000) "
        "do return redis.call(command, key, unpack(args)) end",
        ("reap",),
    ),
    without("reap-nothing", "nobody takes over", "ZRANGEBYSCORE", "daemons", "{}", "reap"),
    without(
        "reap-forgets",
        "a daemon's claims are forgotten with its lease",
        "HGETALL",
        "worker",
        "{}",
        "reap",
    ),
    without(
        "namesake-forgets",
        "a session of the same name doesn't take over what was held",
        "HGETALL",
        "worker",
        "{}",
        "register",
    ),
    without("leave-forgets", "who leaves hands nothing over", "HGETALL", "worker", "{}", "leave"),
    Condition(
        "namesake-refused",
        "a later process of a name doesn't replace an earlier one",
        ((r"'REPLACED' or 'EXPIRED'", "'OK' or 'OK'"),),
    ),
    without("renewal-lost", "a renewal doesn't extend the lease", "ZADD", "daemons", "1", "renew"),
    Effect(
        "renewal-of-the-dead",
        "a renewal extends a lease that was handed over",
        "command == 'HMGET' and kind == 'daemon'",
        "local found = redis.call(command, key, ...) if not found[1] then "
        "found[1], found[2] = string.sub(ARGV[2], 1, 16), string.sub(ARGV[2], 17) end "
        "do return found end",
        ("renew",),
    ),
    without(
        "daemon-stays",
        "a daemon that was taken over from is still listed",
        "ZREM",
        "daemons",
        "1",
        *ENDING,
    ),
    Condition(
        "no-wait",
        "a promoted server's claims are not waited for",
        ((r"if ends > now then", "if false then"),),
    ),
    Condition(
        "short-wait",
        "a promoted server waits for half a lease",
        ((r"\+ longest_lease\(lease\)", "+ longest_lease(lease) / 2"),),
    ),
    Condition(
        "any-epoch",
        "a session goes on under a server that may not know all of its claims",
        ((r"return shown\.epoch == epoch\.id or [^\n]*", "return true"),),
    ),
    Condition(
        "fences-again",
        "a promoted server gives fences again that the old one gave",
        ((r"raise_fence\(now\)", ""),),
    ),
    Condition(
        "fences-unshown",
        "nobody tells a promoted server which fences there were",
        ((r"raise_fence\(shown\.fence\)", ""), (r"raise_fence\(tonumber\(last\)\)", "")),
        unseen="a promoted server's fences begin above the clock: no older fence reaches that",
    ),
    Effect(
        "claimed-while-it-waits",
        "claims are given while a promoted server waits",
        "command == 'EXISTS' and kind == 'paused_all' and claims",
        "do return 0 end",
        EXCHANGE,
    ),
    Condition(
        "given-again",
        "a claim of an earlier server is given again under its fence",
        ((r"if claim and tonumber\(claim\.fence\) <= found then", "if false then"),),
    ),
    Condition(
        "run-kept",
        "a run goes on behind its lease, where a promoted server may have lost who took it over",
        ((r"\(has_come and may_have_lost_a_run\(daemon, now\)\)", "false"),),
        unseen="none of 400 seeds came there: a test of the scripts shows it",
    ),
    Condition(
        "proof-of-all",
        "a recovery ends with the first daemon that comes",
        ((r"tonumber\(state\[1\]\) <= 0 and state\[2\] == '0'", "true"),),
    ),
    Condition(
        "expired-claims",
        "a daemon claims after its lease has run out",
        ((r"if lease < now or ", "if "),),
        unseen="a daemon whose lease is over, by its own clock, asks for no claim",
    ),
    without(
        "wake-lost",
        "a wake is lost",
        "RPUSH",
        "sim:wakes",
        "1",
    ),
)
