"""What a shadow would have come to, as far as the live policy's runs can tell.

Where a shadow would have done the same to the end, the outcome is the live one's; where it would have shipped an answer
that the run had by then, it is what that answer is worth, if that is known; where it would have asked somebody else,
nobody knows. Invariants: what nobody knows is bounded by the worst and the best and never guessed; the unit is the
task. Deliberately absent: any estimate for the unknown part, which is no random part of the tasks (make the shadow a
canary to learn about it).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from shikisha.budget import Amount
from shikisha.evaluate.statistics import difference_interval, mean, score_interval
from shikisha.events import Basis
from shikisha.grade.inferring import inferred, shipped
from shikisha.learn.trial import Figure, acts
from shikisha.policy.acts import ships
from shikisha.run import RoundRecord, Run


@dataclass(frozen=True, slots=True)
class Followed:
    """A live run beside which a shadow decided: whether it would have done the `same`, and what would be known of it.

    `live` is the run's score, None where nobody graded it; `score` and `dollars` are the shadow's, None: unknown.
    """

    task: str
    same: bool
    live: float | None
    score: float | None
    dollars: float | None
    spent: float | None


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What is known of a shadow: `same` and `known` are shares of the tasks; how much more often it is right lies
    between `low` and `high` (95 %); `dollars` are how much more it spends a task where that is known.
    """

    version: str
    runs: int
    same: Figure | None
    known: Figure | None
    low: float
    high: float
    dollars: float | None


def followed(runs: Iterable[Run], live: str, shadow: str, counts: Collection[Basis] = tuple(Basis)) -> list[Followed]:
    """Return the ended runs of the live policy beside which this shadow decided; grades of these kinds count."""
    found = []
    for run in runs:
        first = run.rounds[0].proposed if run.rounds else None
        if run.finished is not None and first is not None and first.version == live and shadow in first.beside:
            found.append(_followed(run, shadow, counts))
    return found


def shadowed(held: Sequence[Followed], version: str) -> Shadowed:
    """Return what is known of a shadow from these runs."""
    graded = [one for one in held if one.live is not None]
    worst = _by_task(graded, lambda one: (one.score or 0.0) - (one.live or 0.0))
    best = _by_task(graded, lambda one: (1.0 if one.score is None else one.score) - (one.live or 0.0))
    more = [one for one in held if one.dollars is not None and one.spent is not None]
    return Shadowed(
        version,
        len(held),
        _share(held, lambda one: float(one.same)),
        _share(graded, lambda one: float(one.score is not None)),
        difference_interval(worst)[0],
        difference_interval(best)[1],
        mean(_by_task(more, lambda one: (one.dollars or 0.0) - (one.spent or 0.0))) if more else None,
    )


def _followed(run: Run, shadow: str, counts: Collection[Basis]) -> Followed:
    grade, task, spent = run.grade, run.task.content_hash, run.charged.dollars
    score = None if grade is None or grade.basis not in counts else grade.score
    for turn in run.rounds:
        said = turn.proposed.beside.get(shadow) if turn.proposed else None
        if said == acts(run, turn):
            continue
        worth, paid = _shipping(run, turn, said, score)
        known = None if score is None else worth
        return Followed(task, same=False, live=score, score=known, dollars=paid, spent=spent)
    return Followed(task, same=True, live=score, score=score, dollars=spent, spent=spent)


def _shipping(run: Run, turn: RoundRecord, said: str | None, score: float | None) -> tuple[float | None, float | None]:
    """Return score and dollars where the shadow would have shipped an answer that the run had before this round."""
    for past in run.rounds[: turn.index]:
        for place, step in enumerate(past.plan.steps if past.plan else ()):
            if said == ships(run.started.pool[step.worker]):
                paid = sum((_charged(before) for before in run.rounds[: turn.index]), Amount()).dollars
                if (past.index, place) == shipped(run):
                    return score, paid
                worth = inferred(run).get((past.index, place))
                return (None if worth is None else worth.score), paid
    return None, None


def _charged(turn: RoundRecord) -> Amount:
    records = (turn.planning, *turn.steps.values())
    return sum((attempt.charged for record in records for attempt in record.attempts), Amount())


def _share(held: Sequence[Followed], of: Callable[[Followed], float]) -> Figure | None:
    values = _by_task(held, of)
    return Figure(mean(values), *score_interval(values), len(values)) if values else None


def _by_task(held: Sequence[Followed], of: Callable[[Followed], float]) -> list[float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one in held:
        found[one.task].append(of(one))
    return [mean(values) for values in found.values()]
