"""What a run of training came to so far, in numbers and sentences that the terminal, the page and the board share.

Invariants: what is said of "the beginning" and of "now" are means over as many steps at either end, no single lucky
step; dollars of simulated workers are called simulated. Deliberately absent: drawings, and opinions (`warning`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, sqrt
from statistics import fmean, variance

from shikisha.budget import format_dollars
from shikisha.evaluate.wording import percent, plural
from shikisha.train.advantage import NO_PLAN
from shikisha.train.progress import Judged, Step

OPTIMUM = "optimum"
_FEWEST, _MOST = 3, 20  # steps at either end
_SIMULATED = "simulated"  # how the names of simulated workers begin

Figure = Callable[[Step], float]


def window(count: int) -> int:
    """Return over how many steps at either end of so many a mean is taken."""
    return max(1, min(max(_FEWEST, min(_MOST, count // 5)), count))


def first(steps: Sequence[Step], figure: Figure) -> float:
    """Return the mean of a figure at the beginning."""
    return fmean(map(figure, steps[: window(len(steps))]))


def now(steps: Sequence[Step], figure: Figure) -> float:
    """Return the mean of a figure over the latest steps."""
    return fmean(map(figure, steps[-window(len(steps)) :]))


def rise(steps: Sequence[Step], figure: Figure) -> tuple[float, float]:
    """Return how far a figure has risen, and the standard error of that; steps are taken to be independent."""
    width = window(len(steps))
    ends = [[figure(step) for step in part] for part in (steps[:width], steps[-width:])]
    error = sqrt(sum(variance(end) / width for end in ends)) if width > 1 else 0.0
    return fmean(ends[1]) - fmean(ends[0]), error


def speed(step: Step) -> float:
    """Return tokens sampled a second, all that a step takes counted."""
    taken = sum(step.seconds.values())
    return step.tokens / taken if taken > 0 else 0.0


def spent(steps: Iterable[Step]) -> float:
    """Return what the calls of workers have cost."""
    return sum(step.dollars for step in steps)


def taken(steps: Iterable[Step]) -> float:
    """Return the seconds that the steps took."""
    return sum(sum(step.seconds.values()) for step in steps)


def left(steps: Sequence[Step]) -> float:
    """Return about how many seconds the steps to come will take, if they take as long as the latest."""
    latest = steps[-_MOST:]
    return max(0, steps[-1].of - steps[-1].number) * taken(latest) / len(latest)


def simulated(steps: Iterable[Step]) -> bool:
    """Whether simulated workers were asked; they say so in their names, and then no dollar is a real one."""
    return any(name.startswith(_SIMULATED) for step in steps for name in step.workers)


def money(steps: Sequence[Step]) -> str:
    """Return what was spent so far, in words."""
    return f"{format_dollars(spent(steps))}{' (simulated)' if simulated(steps) else ''}"


def judged(steps: Iterable[Step]) -> list[tuple[int, Judged]]:
    """Return the steps after which the policy was judged on tasks that it does not learn from."""
    return [(step.number, step.judged) for step in steps if step.judged is not None]


def of_optimum(found: Judged) -> float | None:
    """Return what share of the optimum's right answers the policy reaches."""
    best = found.beside.get(OPTIMUM, 0.0)
    return found.right / best if best > 0 else None


def valid_shapes(step: Step) -> dict[str, float]:
    """Return the shares of shapes among the plans that are plans."""
    known = {name: share for name, share in step.shapes.items() if name != NO_PLAN}
    total = sum(known.values())
    return {name: share / total for name, share in known.items()} if total > 0 else {}


def mean_shares(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of shares by name, the largest first; who is not named has none."""
    names = {name for each in shares for name in each}
    means = {name: fmean(each.get(name, 0.0) for each in shares) for name in names}
    return dict(sorted(means.items(), key=lambda pair: (-pair[1], pair[0])))


def smoothed(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return running means over so many values around each; gaps and what is no number stay gaps."""
    half = width // 2
    found: list[float | None] = []
    for place, value in enumerate(values):
        near = [each for each in values[max(0, place - half) : place + half + 1] if each is not None and isfinite(each)]
        found.append(fmean(near) if near and value is not None and isfinite(value) else None)
    return found


def headline(steps: Sequence[Step]) -> list[str]:
    """Say in sentences where training stands."""
    last, width = steps[-1], window(len(steps))
    ends = {
        name: (percent(first(steps, figure)), percent(now(steps, figure)))
        for name, figure in (("right", _right), ("if valid", _right_if_valid), ("valid", _valid))
    }
    right = (
        f"After {last.number:,} of {plural(last.of, 'step')}, {ends['right'][1]} of the sampled plans lead to right "
        f"answers, {ends['right'][0]} did at the beginning."
    )
    valid = (
        f"Of the valid plans it is {ends['if valid'][1]} ({ends['if valid'][0]} at the beginning); valid are "
        f"{ends['valid'][1]} ({ends['valid'][0]}). These are means over {plural(width, 'step')} at either end."
    )
    return [right, valid, *(_judgement(*pair) for pair in judged(steps)[-1:])]


def _right(step: Step) -> float:
    return step.right


def _right_if_valid(step: Step) -> float:
    return step.right_if_valid


def _valid(step: Step) -> float:
    return step.valid


def _judgement(number: int, found: Judged) -> str:
    share = of_optimum(found)
    reached = "" if share is None else f", {percent(share)} of what the best possible plans come to"
    return (
        f"After step {number:,}, without chance, {percent(found.right)} of {plural(found.count, 'task')} that it does "
        f"not learn from{reached}; {format_dollars(found.dollars)} a task."
    )
