"""What goes wrong in a run, and how it is set right again."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import cast

from groupflow.store.scripts import Order, Verb
from tests.simulation import clock
from tests.simulation.acts import LAYOUTS
from tests.simulation.clock import pass_virtual
from tests.simulation.configured import scripts_of
from tests.simulation.fleet import Fleet, Member
from tests.simulation.network import Doom, Way
from tests.simulation.places import ANSWERED, CRITICAL, LEAVES, REGISTERS, STOPS
from tests.simulation.plan import Fault
from tests.simulation.processes import Process, context_of
from tests.simulation.pullers import Pullers

AIMS = ("", *CRITICAL)  # where processes are killed, as often
AIMED = 3  # steps at most, from there on
REACHED_WITHIN = 2.5  # seconds for which a process may not come there

CALLS: tuple[tuple[Verb, ...], ...] = (
    (),
    *((Verb.EXCHANGE,),) * 2,
    *((Verb.RETRY, Verb.ADVANCE, Verb.BURY),) * 2,
    (Verb.EXCHANGE,),
    (Verb.ENQUEUE, Verb.RELAY),
    (Verb.REGISTER, Verb.LEAVE, Verb.POLL),
    (Verb.RENEW, Verb.REAP, Verb.PROMOTE),
)
"""Of which verbs one is on its way when a connection breaks, as often; of any, for the first."""


@cache
def _names_of(verbs: tuple[Verb, ...], order: Order, *, tells: bool) -> frozenset[bytes]:
    """By which names verbs are called, in any layout."""
    every = [scripts_of(order, number, tells=tells) for number in (0, *LAYOUTS)]
    return frozenset(each[verb].sha.encode() for each in every for verb in verbs)


class Faults:
    """Lets the faults of a plan happen."""

    def __init__(self, fleet: Fleet, pullers: Pullers) -> None:
        self._fleet = fleet
        self._pullers = pullers
        self._failing_over = False

    async def run(self) -> None:
        """All faults, each at its time, until each is over."""
        async with asyncio.TaskGroup() as group:
            for fault in self._fleet.plan.faults:
                group.create_task(self._run(fault))

    async def _run(self, fault: Fault) -> None:
        await pass_virtual(fault.at)
        member = self._fleet.members[fault.daemon % self._fleet.plan.daemons]
        self._fleet.tell(f"fault: {fault}")
        began = self._fleet.begin_trouble()
        await getattr(self, f"_{fault.kind}")(fault, member)
        self._fleet.end_trouble(began)

    async def _kill(self, fault: Fault, member: Member) -> None:
        """Kill a process some steps later: anywhere, or once a task of it is where it is aimed."""
        if (process := self._alive(member)) is None:
            return
        aim = AIMS[int(fault.draw * 1000) % len(AIMS)]
        if aim.startswith(REGISTERS):  # that is a new one's
            self._fleet.loop.kill(process)
            await pass_virtual(0.1)
            await self._start_again(member, process)
            if (process := self._alive(member)) is None:
                return  # it starts once the namespace has been moved
        if aim.startswith((STOPS, LEAVES)) and member.daemon is not None:
            process.is_sound = False
            self._fleet.loop.call_soon(member.daemon.stop, context=context_of(process.main))
        most = 1 if aim.endswith(ANSWERED) else AIMED if aim else fault.steps
        process.aim, process.fuse = aim, 1 + (fault.steps - 1) % most
        process.places.clear()
        within = clock.now() + (REACHED_WITHIN if aim else 0.3)
        while not process.is_dead and clock.now() < within:
            await pass_virtual(0.05)
        self._fleet.loop.kill(process)  # it had nothing to do, there
        await pass_virtual(fault.seconds)
        name = f"{member.name}'" if fault.draw < 0.3 else None
        await self._start_again(member, process, name)

    async def _start_again(
        self, member: Member, process: Process | None, name: str | None = None
    ) -> None:
        """Start a member's next process, unless another fault has."""
        while name is None and self._fleet.has_back(member):
            await pass_virtual(0.05)  # its name is another's again, which ends soon
        if member.process is process:
            self._fleet.start(member, name)

    @staticmethod
    def _alive(member: Member) -> Process | None:
        process = member.process
        return None if process is None or process.is_dead else process

    async def _stop(self, fault: Fault, member: Member) -> None:
        process = self._alive(member)
        if process is not None and not process.is_stopped:
            await self._freeze(process, fault.seconds)

    async def _freeze(self, process: Process, seconds: float) -> None:
        self._fleet.loop.stop_process(process)
        await pass_virtual(seconds)
        self._fleet.loop.go_on(process)

    async def _namesake(self, fault: Fault, member: Member) -> None:
        """A process stands for longer than its lease, and meanwhile another one has its name."""
        process = self._alive(member)
        lease = self._fleet.plan.lease
        if process is None or process.is_stopped or self._fleet.network.is_down:
            return
        if clock.now() < max(process.awake_since, self._fleet.network.up_since) + lease:
            return  # which of them was born later, a server has to have said
        process.is_sound = False
        self._fleet.loop.stop_process(process)
        await pass_virtual(lease * fault.draw)
        is_replaced = member.process is process and not self._fleet.is_moving
        former = self._fleet.replace(member) if is_replaced else None
        await pass_virtual(lease * 1.1)
        while former is not None and not self._fleet.has_replaced(former):
            await pass_virtual(0.25)  # two of one name that both live do what they like
        self._fleet.loop.go_on(process)
        if former is not None:
            await self._fleet.end_former(former, 2 * lease)

    async def _cut(self, fault: Fault, member: Member) -> None:
        """Break a connection while a call of some verb travels on it; later, where none does."""
        process: Process | None = member.process
        if fault.draw > 0.8 and (pages := self._pullers.pages):
            process = pages[fault.daemon % len(pages)].process
        if process is None:
            return
        words = _names_of(
            CALLS[fault.steps % len(CALLS)], self._fleet.plan.order, tells=self._fleet.tells
        )
        writes = 1 + int(fault.draw * 1000) % (4 if words else 8)
        found = self._fleet.network.connections_of(process)
        doom = Doom(cast(Way, fault.kind), writes, words, fault.seconds * fault.draw)
        for each in found:
            each.doom = doom
        await pass_virtual(REACHED_WITHIN)
        for each in found:
            each.doom = None
        if found and doom.writes > 0:
            found[int(fault.draw * len(found))].cut()

    _cut_behind = _cut_late = _cut

    async def _part(self, fault: Fault, member: Member) -> None:
        """A daemon and Redis don't hear each other, for a lease or not so long."""
        if (process := self._alive(member)) is not None:
            self._fleet.network.part(process)
            await pass_virtual(fault.seconds)
            self._fleet.network.join(process)

    async def _redis_restart(self, fault: Fault, _member: Member) -> None:
        await self._without_redis(fault.seconds / 4, restarts=True)

    async def _redis_away(self, fault: Fault, _member: Member) -> None:
        await self._without_redis(fault.seconds)

    async def _without_redis(self, seconds: float, *, restarts: bool = False) -> None:
        self._fleet.network.is_down = True
        self._fleet.network.reset()
        await pass_virtual(seconds)
        if restarts and not self._failing_over:
            self._fleet.redis.restart()
        self._fleet.network.is_down = False
        self._fleet.network.up_since = clock.now()

    async def _fail_over(self, fault: Fault, member: Member) -> None:
        """Another server leads, without the last writes; a daemon may not hear of that for long."""
        redis = self._fleet.redis
        if self._failing_over:
            return
        self._failing_over = True
        if redis.replicas:
            moves = self._fleet.is_moving, self._fleet.moves
            self._fleet.is_lossy = True
            redis.cut_replica()
            await pass_virtual(min(fault.seconds, 1.5))
            self._fleet.is_lossy = False
            if moves == (self._fleet.is_moving, self._fleet.moves):
                with self._fleet.forgetting():
                    redis.fail_over()
            else:  # a move that was lost has to be given again, before daemons start
                redis.restart()
        else:  # without replicas that are waited for, what is lost is lost
            redis.restart()
        self._failing_over = False
        if fault.draw < 0.5:
            await self._part(fault, member)

    async def _rabbitmq_cut(self, _fault: Fault, member: Member) -> None:
        if member.process is not None:
            self._fleet.rabbitmq.cut(member.process)

    async def _rabbitmq_away(self, fault: Fault, _member: Member) -> None:
        self._fleet.rabbitmq.is_down = True
        self._fleet.rabbitmq.cut_all()
        await pass_virtual(fault.seconds)
        self._fleet.rabbitmq.is_down = False

    async def _orderly_restart(self, fault: Fault, member: Member) -> None:
        process = member.process
        await self._fleet.stop(member)
        await pass_virtual(fault.seconds / 4)
        if process is not None and not process.is_dead:
            await self._start_again(member, process)

    async def _reload(self, fault: Fault, member: Member) -> None:
        if (process := self._alive(member)) is not None and member.daemon is not None:
            self._fleet.grouped = 1 + int(fault.draw * 6)
            self._fleet.loop.call_soon(member.daemon.reload, context=context_of(process.main))

    async def _block(self, fault: Fault, member: Member) -> None:
        if (process := self._alive(member)) is None:
            return
        process.main.begin_to_stand()
        process.main.is_blocked, process.is_sound = True, False
        await pass_virtual(fault.seconds)
        process.main.is_blocked = False
        self._fleet.loop.release(process.main)

    async def _lost_acks(self, fault: Fault, member: Member) -> None:
        """Acks get lost, and then the connection: all that they were for comes again."""
        if (process := member.process) is not None:
            self._fleet.rabbitmq.lose_acks(process)
            await pass_virtual(min(fault.seconds, 1.0))
            self._fleet.rabbitmq.cut(process)

    async def _join(self, _fault: Fault, _member: Member) -> None:
        """One more daemon, from here on."""
        late = Member(f"d{len(self._fleet.members)}")
        self._fleet.members.append(late)
        self._fleet.start(late)

    async def _leave(self, _fault: Fault, member: Member) -> None:
        """A daemon goes for good, unless it is the last one."""
        members = self._fleet.members
        others = [each for each in members if each is not member and not each.leaves]
        if any(each.process for each in others) and (process := member.process) is not None:
            member.leaves = True
            await self._fleet.stop(member)
            member.leaves = False
            if member.process is process and not process.is_dead:  # else it comes back first
                member.process = None

    async def _kill_page(self, fault: Fault, _member: Member) -> None:
        if pages := self._pullers.pages:
            await pages[fault.daemon % len(pages)].kill(fault.steps)

    async def _stop_puller(self, fault: Fault, _member: Member) -> None:
        if every := self._pullers.every:
            await self._freeze(every[fault.daemon % len(every)].process, fault.seconds)
