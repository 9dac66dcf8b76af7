"""The promises that a soak checks, in a line each."""

from __future__ import annotations

INVARIANTS = {
    "S1": "every confirmed publish, or what replaced it, ends done or dead",
    "S2": "acked only once the store has it",
    "S3": "one accepted settle a claim, fences rise",
    "S4": "order within a group, one at a time",
    "S5": "no run without a reason",
    "S6": "one message id, one task",
    "S7": "the totals add up",
    "S8": "no group waits for nobody",
    "S9": "nothing runs as somebody else's",
    "S12": "superseded only by what came after it",
    "L2": "nothing is stuck",
    "L5": "a stop ends in time",
    "L6": "no daemon ends by itself",
    "L7": "nothing is left behind",
}
