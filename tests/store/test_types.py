"""Limits of types: how many tasks of one run at once, how often they start, and what waits."""

from __future__ import annotations

import pytest

from groupflow.store.claims import ExchangeReply
from groupflow.store.envelope import Pool
from groupflow.store.settlements import Complete
from tests.store.bench import Bench
from tests.store.story import hears, named, play, played

ORDERS = pytest.mark.parametrize("order", ["oldest", "tenants"], indirect=True)

LIMITS = named(
    """
    grouped and plain tasks of a type count together, and others pass::
        types v=2 | take a0:v b0:v c0:v p0:v p1:v d0 q0 | every a0 b0 d0 q0 | sound | none
        gone ready ordered | done a0 | all c0 | done c0 d0 | all p0 | sound
    what waits goes on in order, one for each end::
        types v=1 | take a0:v b0:v c0:v a1:v | claim a0 | none | sound | done a0 | all b0 | done b0
        all c0 | done c0 | all a1 | done a1 | sound | gone cap_charged cap_lines cap_standing
    plain tasks too, and a priority goes first::
        types v=1 | take p0:v p1:v p2:v+60 | all p2 | done p2 | all p0 | done p0 | all p1 | sound
    a pattern counts its types together, and the first match holds::
        types import.big=1 import.*=2 | take a0:import.big b0:import.big c0:import.x d0:import.y
        take e0:import.z | every a0 c0 d0 | sound | done a0 | all b0 | done c0 | all e0 | sound
    a group whose head has no room goes on with it::
        types v=1 | take a0:v b0:v b1 | claim a0 | none | take b2 | none | drop b0 | all b1 | sound
    one that is paused or emptied meanwhile leaves its line::
        types v=1 | take a0:v b0:v c0:v | claim a0 | pause b | sound | done a0 | all c0 | done c0
        resume b | all b0 | done b0 | take d0:v e0:v | claim d0 | drop e0 | sound | done d0 | none
        gone cap_lines cap_groups
    by hand a name goes before a pattern that begins with it::
        hand type v* 1 | hand type v 2 | take p0:v p1:v p2:vx p3:vx | all p0 p1 p2 | sound
    a crash gives back what it held::
        types v=2 | take a0:v b0:v c0:v | open d2 | claim a0 b0 | d2: none | lose d1 a0 b0
        size cap_charges=0 | sound | d2: all a0*1
    starts are a time apart; no claim looks at what waits::
        types v=1/min | take a0:v b0:v p0:v | all a0 | none | done a0 | none | gone ready ordered
        sound | later 61 | claim b0 | none | later 61 | all p0 | sound
    a reload holds for what waits already, and what runs::
        take a0:v b0:v c0:v p0:v | claim a0 b0 | types v=2 | reload | sound | none | done a0
        all c0 | types v=3 | reload | sound | all p0 | types - | reload | sound | size cap_charged=0
    a pattern that is no more lets go what waits::
        types v=1 | take a0:v b0:v c0:v p0:v p1:v | all a0 | none | types - | reload
        every b0 c0 p0 p1 | sound | gone cap_lines cap_groups cap_tasks cap_turns
    lines that empty before they are looked at again keep nobody busy::
        open d1 | types v=1 w=1 x=1 | reload | take a0:v b0:w c0:x | types - | reload
        every a0 b0 c0 | promote | promote | promote | next -1 | gone cap_reviews
    a pattern that comes in front takes over what waits for another::
        types v*=1 | take a0:v1 b0:v2 c0:v2 | claim a0 | none | types v2=1 v*=1 | reload | promote
        sound | all b0 | sound | done b0 | all c0
    what had a turn as a limit came in front waits for that one, once it has it no more::
        types *=2 | open d1 | take c0:w a0:v | claim c0 | hand type v 1 | sound | take d0:w+60
        sound | promote | every d0 a0 | sound
    a limit by hand goes before the configuration::
        types v*=3 | take a0:v1 b0:v1 c0:v1 p0:v2 | claim a0 | hand type v1 1 | sound | all p0
        done a0 | all b0 | sound | unhand type v1 | sound | all c0
    by hand a configured pattern keeps its place::
        types big=1 b*=9 | take a0:big b0:big c0:bee d0:bee | hand type b* 1 | every a0 c0 | sound
        none | done c0 | all d0 | done a0 | all b0 | sound
    one by hand ends by itself::
        take a0:v b0:v p0:v | hand type v 1 | all a0 | none | sound | end_hands | promote | sound
        every b0 p0 | gone caps cap_charged
    what waits in a pool counts too, for workers and daemons alike::
        types v=2 | open d1 | take a0:v | claim a0 | take x0:v= y0:v= q0:v= | anna: all x0 | sound
        anna: none | done a0 | anna: all y0 | anna: done x0 | anna: all q0 | sound
    a group of several tasks at once has no more than its type::
        limits 3 | open d1 | take a0:v%rule a1:v%rule a2%rule | hand type v 1 | all a0 | sound
        none | done a0 | every a1 a2 | sound
    what waits for its type can be dropped and cancelled::
        types v=1 | take p0:v p1:v p2:v p3:v a0:v b0:v | claim p0 | none | drop p1 | cancel p2
        sound | drop a0 | done p0 | all b0 | done b0 | all p3 | done p3 | none | sound
    what had the turn can be dropped, and another has it::
        types v=1 | take p0:v p1:v p2:v a0:v b0:v | drop p0 | sound | drop a0 | sound
        claim b0 | none
    a run ends in front of what has a limit::
        types v=1 | open d1 | runs 9 | take a0 a1 a2:v a3 | claim a0>a1 | tell a0 a1 > | sound
        claim a2 | tell a2 > | claim a3
    a limit that comes in a run lets it end::
        open d1 | runs 9 | take a0:v a1:v b0:v | claim a0>a1 b0 | hand type v 1 | sound
        tell a0 > a1 ends | sound | tell a1 > | sound
    a run that goes on with another type lets the next of the first one start::
        open d1 | runs 9 | take a0:v a1 b0:v | claim a0>a1 | hand type v 1 | none
        hears grouped tell a0 > a1 | sound | all b0 | sound
    what is handed back waits again::
        types v=1 | take a0:v p0:v | all a0 | release a0 | sound | all a0 | done a0 | all p0
        release p0 | sound | all p0
    a task that waits for a retry doesn't count, nor hold back the next::
        types v=1 | take a0:v b0:v | claim a0 | retry a0 | all b0 | sound | time a0 | promote | none
        sound | done b0 | all a0/2
    later stages count as well::
        types v=1 | take a0:v b0:v | claim a0 | advance a0 | all b0 | none | done b0
        all a0#two | none | sound
    a daemon hears of an end that lets another start::
        types v=1 | open d1 d2 | take a0:v b0:v | claim a0 | hears grouped done a0 | d2: all b0
    each of the groups of a tenant at its limit leaves the turn to others::
        tenants 1 | hand type v 2 | take 1/a0:v 1/b0:v 1/c0:v 2/d0:v | every a0 d0 | none | sound
        done d0 | none | take 2/e0:v | all e0 | sound | done a0 | all b0 | sound
    why says what it waits for, and status counts it::
        types v=1 w=1/h | open d1 | take a0:v b0:v c0:v p0:v d0:w e0:w f0 | every a0 d0 f0
        why b delayed: 1 of type v run, its limit; 2 groups wait
        why e delayed: type w is over its 1/h until | status capped=3 standing_types=2 delayed=3
        status ready=0 groups=6 | done a0 | why b ready | status ready=2 delayed=1 capped=1
        why c ready: it is ready, and waits behind another group of type v
    lines that are gone before they are looked at again keep no promotion busy::
        types v=1 | take a0:v b0:v p0:v q0:v | claim a0 | none | types - | reload | done a0
        drain b0 p0 q0 | promote | next -1 | gone cap_reviews
    nor does a line whose last one came to wait for its tenant alone::
        types v=1 | take p0:v p1:v | all p0 | none | hand tenant 42 2 | done p0 | types - | reload
        promote | take p2+60 | promote | next 3600
    a group keeps its place behind a head of another tenant, though another group comes::
        types v=1 | open d1 | hand tenant 1 5 | hand tenant 2 5 | take 1/b0:v 2/b1:v | drop b0
        sound | take 1/c0:v | sound | all b1 | done b1 | all c0
    a plain task says what it waits for, as a group does::
        types v=1 w=1/h | take p0:v p1:v+9 q0:w q1:w q2 | task p0 queued: for a worker
        all p1 q0 q2 | task p0 queued: 1 of type v run, its limit | task p1 running reason=None
        task q1 queued: type w is over its 1/h until | done p1 | task p0 queued: for a worker
    """
)
LIMITS |= {
    f"{way} of {tasks[:2]} gives back one, said twice too": f"""
        types v=2 | take {" ".join(f"{id_}:v" for id_ in tasks.split())}
        claim {tasks[:5]} | none | {way} {tasks[:2]} | size cap_charges=1
        unchanged {way} {tasks[:2]}
        claim {tasks[:2] if way == "release" else tasks[6:8]} | none | sound
    """
    for way in ("done", "release", "bury", "retry")
    for tasks in ("a0 b0 c0 d0", "p0 p1 p2 p3")
}
test_limits_of_types = ORDERS(played(LIMITS))


@ORDERS
@pytest.mark.parametrize("group", ["abc", "pqp"])
async def test_none_is_claimed_ahead(shop: Bench, group: str) -> None:
    """Without a worker that waits it holds back what comes behind it; others hear of that."""
    pool: Pool = "plain" if group[0] == "p" else "grouped"
    a, b, c = (f"{letter}{n}" for n, letter in enumerate(group))
    told = await play(shop, f"types v=9 | open d1 | take {a} {b}:v {c} | sound")
    claims = (await told.daemon()).claims(pool)
    first = await claims.exchange([], ["w1", "w2", "w3"], 3)
    assert ([each.task.id for each in first.claims], first.is_kept) == ([a], True)
    await told.go_on("sound | size cap_charges=0 | take a9")
    done, answers = [Complete(first.claims[0])], list[ExchangeReply]()

    async def go_on(beyond: int) -> None:
        answers.append(await claims.exchange(done, ["w1", "w2", "w3"], beyond))

    assert await hears(shop, lambda: go_on(3)) == (["grouped"] if pool == "grouped" else [])
    await go_on(2)
    assert [each.is_kept for each in answers] == [True, False]
    came = [each.task.id for each in answers[1].claims]
    assert came == ([b, c, "a9"] if pool == "grouped" else [b, c])
    await told.go_on("sound")
