"""What a policy's plan does, in a few words that stand in journals: acts are the same where their words are.

Deliberately absent: reading the words back (one asks which worker's words they would be).
"""

from collections.abc import Sequence

from shikisha.plan import Plan

CANNOT = "cannot act"  # begins the words for a policy that has no act to offer, before a colon and why


def asks(workers: Sequence[str]) -> str:
    """Say that these workers are asked."""
    return f"asks {', '.join(map(repr, workers))}"


def ships(worker: str) -> str:
    """Say that this worker's answer becomes the run's."""
    return f"ships the answer of {worker!r}"


def act_of(plan: Plan, keeps: int | None, before: Sequence[Plan], names: Sequence[str]) -> str:
    """Say what a plan does after those before it; `names` are the pool's workers, by ordinal."""
    if not plan.ships:
        return asks([names[step.worker] for step in plan.steps])
    performed = [each for each in before if not each.ships]
    if not performed:
        return "ships nothing"
    kept = performed[-1] if keeps is None else before[keeps]
    return ships(names[kept.steps[-1].worker])
