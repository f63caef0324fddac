"""Signs that a training goes wrong, in words, from its steps alone: collapse above all.

Every sign compares the latest steps with the first, as means (or medians) over several: one odd step is no alarm.
Invariants: pure functions of the steps; few steps warn of nothing. Deliberately absent: remedies that are taken by
themselves; a person decides.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from shikisha.evaluate.wording import percent, points
from shikisha.train.figures import first, mean_shares, now, rise, valid_shapes, window
from shikisha.train.progress import Step

_FEWEST = 6  # steps
_LEFT_OF_ENTROPY = 0.25  # of the beginning's
_NARROW = 0.1  # bits: who begins with less had no choice to lose
_ONE_SHAPE = 0.9
_RISEN = 0.05  # right answers
_CHOSEN = 0.25  # of the rise, at least, should come from better plans
_SURE = 2.0  # standard errors
_LEFT_OF_FORMAT = 0.75  # of the beginning's valid plans
_SPOILT = 0.1
_EVEN = 0.9

Steps = Sequence[Step]


def warnings(steps: Steps) -> list[str]:
    """Return what shows of a collapse or of learning nothing, the gravest first; none: no such sign."""
    if len(steps) < _FEWEST:
        return []
    return [told for sign in _SIGNS for told in sign(steps)]


def _one_worker(steps: Steps) -> Iterator[str]:
    began, left = first(steps, lambda step: step.worker_entropy), now(steps, lambda step: step.worker_entropy)
    if began >= _NARROW and left < _LEFT_OF_ENTROPY * began:
        worker, share = next(iter(mean_shares([step.workers for step in _latest(steps)]).items()), ("nobody", 0.0))
        yield (
            f"Collapse onto few workers: the entropy of who is asked fell from {began:.2f} to {left:.2f} bits; "
            f"{worker} gets {percent(share)} of the calls."
        )


def _one_shape(steps: Steps) -> Iterator[str]:
    for shape, share in mean_shares([found for step in _latest(steps) if (found := valid_shapes(step))]).items():
        if share > _ONE_SHAPE:
            yield f"Collapse onto one shape: {percent(share)} of the valid plans are {shape}."


def _format_lost(steps: Steps) -> Iterator[str]:
    began, left = first(steps, lambda step: step.valid), now(steps, lambda step: step.valid)
    fall, error = rise(steps, lambda step: step.valid)
    if left < _LEFT_OF_FORMAT * began and -fall > _SURE * error:
        yield f"The format is being lost: {percent(left)} of the texts are valid plans, {percent(began)} were."


def _format_only(steps: Steps) -> Iterator[str]:
    """Part the rise of right = valid x right given valid into its two halves, each with the other's mean."""
    risen, error = rise(steps, lambda step: step.right)
    if risen < _RISEN or risen <= _SURE * error:
        return
    better, _ = rise(steps, lambda step: step.right_if_valid)
    chosen = better * (first(steps, lambda step: step.valid) + now(steps, lambda step: step.valid)) / 2
    if chosen < _CHOSEN * risen:
        yield (
            f"Only the format is learned: right answers rose by {points(risen)} points, but given a valid plan by "
            f"{points(better)}; nearly all of the rise is plans that are valid now."
        )


def _spoilt(steps: Steps) -> Iterator[str]:
    share = median(step.masked for step in _latest(steps))
    if share > _SPOILT:
        yield f"Workers fail: their faults spoilt {percent(share)} of the plans, from which nothing is learned."


def _even(steps: Steps) -> Iterator[str]:
    share = median(step.even for step in _latest(steps))
    if share > _EVEN:
        yield f"Hardly anything to learn from: in {percent(share)} of the groups all plans are worth the same."


def _breaking(steps: Steps) -> Iterator[str]:
    known = [step.second_round for step in steps if step.second_round][-window(len(steps)) :]
    if len(known) >= _FEWEST // 2:
        means = mean_shares(known)
        repaired, broken = means.get("repaired", 0.0), means.get("broken", 0.0)
        if broken > repaired:
            yield f"Second rounds do harm: {percent(broken)} broke a right answer, {percent(repaired)} repaired one."


def _latest(steps: Steps) -> Steps:
    return steps[-window(len(steps)) :]


_SIGNS: tuple[Callable[[Steps], Iterator[str]], ...] = (
    _one_worker,
    _one_shape,
    _format_lost,
    _format_only,
    _spoilt,
    _even,
    _breaking,
)
