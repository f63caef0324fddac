"""The dial as drawings: what it promised against what was found, and who is asked the more it may cost.

Invariants: promises are the dial's own, findings are of tasks that neither it nor its fit has seen; workers beyond the
most asked stand together as others. Deliberately absent: figures that are not in a table too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shikisha.evaluate.drawing import Box, Scale, Tick, even_scale, path
from shikisha.evaluate.labels import not_touching
from shikisha.evaluate.matrices import OTHERS
from shikisha.learn.figures import paid, settings
from shikisha.learn.frontier import BUDGETS
from shikisha.learn.ways import asked
from shikisha.policy.dial import Mix
from shikisha.policy.policy import Met, Policy, Rung

WIDTH, HEIGHT = 340.0, 300.0
_FRAME = Box(56.0, 10.0, 318.0, 252.0)
_COLOURS = 6  # that can be told apart


@dataclass(frozen=True, slots=True)
class Kept:
    """A budget: what the dial promises for it, and what was found; `error` is the promise's, one standard error."""

    met: Met
    accuracy: float
    error: float
    cost: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A promise and a finding in pixels, with the finding's interval."""

    kept: Kept
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Promises:
    """A drawing of promises (across) against findings (upward), and the diagonal on which they are equal."""

    frame: Box
    ticks: tuple[tuple[Tick, ...], tuple[Tick, ...]]
    pairs: tuple[Pair, ...]
    diagonal: str


@dataclass(frozen=True, slots=True)
class Asking:
    """A setting of the dial: how many workers it asks a task, and in which share of the tasks each."""

    name: str
    mix: Mix
    asks: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Asks:
    """A table of settings; the workers are those that any of them asks, the most asked first."""

    workers: tuple[str, ...]
    rows: tuple[Asking, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A worker's area in the stack, and its colour's number (None: others)."""

    name: str
    number: int | None
    path: str


@dataclass(frozen=True, slots=True)
class Stack:
    """Who is asked, in workers a task, along the dial."""

    frame: Box
    width: float
    height: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    layers: tuple[Layer, ...]


def kept(rung: Rung) -> tuple[Kept, ...]:
    """Return what the dial promises for every budget at which the rung was measured."""
    found = []
    for met in paid(rung.evidence) if rung.evidence else ():
        if met.budget >= rung.dial.points[0].cost:
            mix = rung.dial.within(met.budget)
            found.append(Kept(met, mix.accuracy, max(mix.low.error, mix.high.error), mix.cost))
    return tuple(found)


def accuracy_promises(held: Sequence[Kept]) -> Promises:
    """Draw promised accuracy against found accuracy."""
    values = [value for each in held for value in (each.accuracy, each.met.low, each.met.high)]
    across = even_scale(values, (_FRAME.left, _FRAME.right), 4)
    upward = Scale(across.low, across.high, _FRAME.bottom, _FRAME.top)
    pairs = [
        Pair(each, across(each.accuracy), upward(each.met.accuracy), upward(each.met.low), upward(each.met.high))
        for each in held
    ]
    texts = [(value, f"{100 * value:.3g}") for value in across.ticks(4)]
    return _promises(across, upward, texts, pairs)


def cost_promises(held: Sequence[Kept]) -> Promises | None:
    """Draw promised cost against what was spent; None where something was free."""
    values = [value for each in held for value in (each.cost, each.met.spent)]
    if not values or min(values) <= 0:
        return None
    across = Scale(min(values) / 1.3, max(values) * 1.3, _FRAME.left, _FRAME.right, log=True)
    upward = Scale(across.low, across.high, _FRAME.bottom, _FRAME.top, log=True)
    pairs = []
    for each in held:
        y = upward(each.met.spent)
        pairs.append(Pair(each, across(each.cost), y, y, y))
    return _promises(across, upward, [(value, _percent(value)) for value in across.ticks(4)], pairs)


def _promises(across: Scale, upward: Scale, texts: Sequence[tuple[float, str]], pairs: Sequence[Pair]) -> Promises:
    ticks = (
        not_touching(Tick(across(value), text) for value, text in texts),
        tuple(Tick(upward(value), text) for value, text in texts),
    )
    ends = [(across(value), upward(value)) for value in (across.low, across.high)]
    return Promises(_FRAME, ticks, tuple(pairs), path(ends))


def asks(policy: Policy, rung: Rung) -> Asks:
    """Return what each setting of the dial promises, and in which share of the tasks it asks each worker."""
    marks = [(name, mix, asked(policy, mix)) for name, mix in settings(rung)]
    known = [(name, mix, counted) for name, mix, counted in marks if counted is not None]
    peaks = {name: max((counted[name] for _, _, counted in known), default=0.0) for name in policy.names}
    ranked = tuple(sorted((name for name in policy.names if peaks[name] > 0), key=lambda name: -peaks[name]))
    rows = [
        Asking(
            name if name.endswith("%") else f"{name} ({100 * mix.cost:.3g} %)",
            mix,
            sum(counted.values()),
            tuple(counted[worker] for worker in ranked),
        )
        for name, mix, counted in known
    ]
    return Asks(ranked, tuple(rows))


def stack(policy: Policy, rung: Rung, width: float, height: float = 300.0) -> Stack | None:
    """Draw how many workers are asked a task, and who, along the dial; None where nothing can be drawn."""
    held = [(mix.cost, asked(policy, mix)) for _, mix in settings(rung, tuple(BUDGETS.tolist()))]
    known = [(cost, counted) for cost, counted in held if counted is not None and cost > 0]
    if len(known) < 2 or known[0][0] == known[-1][0]:
        return None
    frame = Box(40.0, 10.0, width - 10.0, height - 46.0)
    across = Scale(known[0][0], known[-1][0], frame.left, frame.right, log=True)
    upward = even_scale([0.0, *(sum(counted.values()) for _, counted in known)], (frame.bottom, frame.top), 5)
    x_ticks = [Tick(across(value), _percent(value)) for value in across.ticks(4 if width < 500 else 6)]
    return Stack(
        frame,
        width,
        height,
        not_touching(x_ticks),
        tuple(Tick(upward(value), f"{value:g}") for value in upward.ticks(5)),
        _layers(_shares([counted for _, counted in known]), [across(cost) for cost, _ in known], upward),
    )


def _shares(counted: Sequence[Mapping[str, float]]) -> list[tuple[str, list[float]]]:
    """Return the most asked workers' shares along the dial, and what all others come to."""
    most = {name: max(shares[name] for shares in counted) for name in counted[0]}
    ranked = [name for name in sorted(most, key=lambda name: -most[name]) if most[name] > 0]
    first, rest = ranked[: _COLOURS - 1], ranked[_COLOURS - 1 :]
    found = [(name, [shares[name] for shares in counted]) for name in first]
    return [*found, (OTHERS, [sum(shares[name] for name in rest) for shares in counted])] if rest else found


def _layers(shares: Sequence[tuple[str, list[float]]], x: Sequence[float], upward: Scale) -> tuple[Layer, ...]:
    base, found = [0.0] * len(x), []
    for number, (name, values) in enumerate(shares):
        top = [low + value for low, value in zip(base, values, strict=True)]
        there = [(place, upward(value)) for place, value in zip(x, top, strict=True)]
        back = [(place, upward(value)) for place, value in zip(x, base, strict=True)]
        found.append(Layer(name, None if name == OTHERS else number, path([*there, *reversed(back)]) + "Z"))
        base = top
    return tuple(found)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\u00a0%"
