"""The page of a training: one HTML file that needs nothing else, drawn from its steps, while it goes on or afterwards.

Invariants: every text that a model or a worker wrote is cleaned and escaped where the templates are rendered
(`evaluate.page`); the page loads nothing and runs no script but its own; what a drawing shows also stands in a table,
or in words beside it for the first and the last steps; the same steps give the same page. Deliberately absent:
counting, smoothing (`figures`, `plots`) and settings.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

from shikisha.errors import ConfigError
from shikisha.evaluate.page import environment_of
from shikisha.train import figures
from shikisha.train.figures import Figure
from shikisha.train.plots import Beside, Lines, Room, Stack, lines, stack
from shikisha.train.progress import Sample, Step
from shikisha.train.warning import warnings

_WIDE, _NARROW, _SMALL, _MIDDLE = Room(1200, 420, 170), Room(350, 330), Room(380, 240), Room(580, 300)
_ROWS = 24  # of the table of all steps
_TEXT = 1_500  # letters of a completion


@dataclass(frozen=True, slots=True)
class Small:
    """A small drawing with its heading; `share`: in per cent."""

    title: str
    plot: Lines
    share: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A step of the table, or the mean of several (first to last)."""

    first: int
    last: int
    steps: Sequence[Step]

    def mean(self, name: str) -> float:
        """Return the mean of a field over the row's steps."""
        return sum(float(getattr(step, name)) for step in self.steps) / len(self.steps)

    @property
    def speed(self) -> float:
        """Tokens a second."""
        seconds = figures.taken(self.steps)
        return sum(step.tokens for step in self.steps) / seconds if seconds > 0 else 0.0

    @property
    def dollars(self) -> float:
        """What its steps cost."""
        return figures.spent(self.steps)


def render(steps: Sequence[Step], name: str = "a conductor") -> str:
    """Return the page; ConfigError without a step, MissingExtra when jinja2 is not installed."""
    if not steps:
        raise ConfigError("the page of a training needs a step of it")
    environment = environment_of("shikisha.train", "shikisha.learn", "shikisha.evaluate")
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template("training.html.jinja").render(
        {"name": name, "script_digest": digest} | {**_words(steps), **_drawings(steps), **_tables(steps)}
    )


def _words(steps: Sequence[Step]) -> Mapping[str, object]:
    return {
        "last": steps[-1],
        "tokens": sum(step.tokens for step in steps),
        "seconds_taken": figures.taken(steps),
        "money": figures.money(steps),
        "simulated": figures.simulated(steps),
        "headline": figures.headline(steps),
        "warnings": warnings(steps),
    }


def _drawings(steps: Sequence[Step]) -> Mapping[str, object]:
    numbers = [step.number for step in steps]
    return {
        "wide": _right(steps, _WIDE),
        "narrow": _right(steps, _NARROW),
        "valid": Small("Given a valid plan, and valid, %", _shares_of(steps, _VALID), share=True),
        "reward": Small("Reward and its parts", _reward(steps), share=False),
        "workers": _stacks(numbers, [step.workers for step in steps]),
        "choice": Small("Entropy of who is asked, bits", _plain(steps, _CHOICE), share=False),
        "shapes": _stacks(numbers, [step.shapes for step in steps]),
        "several": Small("Plans of several steps, of the valid, %", _shares_of(steps, _SEVERAL), share=True),
        "learning": tuple(_learning(steps)),
        "running": tuple(_running(steps)),
        "second": _second(steps),
    }


def _tables(steps: Sequence[Step]) -> Mapping[str, object]:
    told = figures.judged(steps)
    return {
        "rows": list(rows(steps)),
        "judged": [(number, found, figures.of_optimum(found)) for number, found in told],
        "beside": list(dict.fromkeys(name for _, found in told for name in found.beside)),
        "samples": [(when, step.number, [_cut(each) for each in step.samples]) for when, step in shown(steps)],
    }


def rows(steps: Sequence[Step]) -> Iterator[Row]:
    """Yield at most so many rows of as many steps each."""
    size = -(-len(steps) // _ROWS)
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        yield Row(part[0].number, part[-1].number, part)


def shown(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """Return the first, the middle and the last of the steps that have samples, each once."""
    having = [step for step in steps if step.samples]
    if not having:
        return []
    places = {"early": 0, "in the middle": len(having) // 2, "late": len(having) - 1}
    kept: dict[int, tuple[str, Step]] = {}
    for when, place in places.items():
        kept.setdefault(having[place].number, (when, having[place]))
    return list(kept.values())


def _cut(each: Sample) -> tuple[Sample, list[str]]:
    """Return a sample and the lines of its text, which is cut where it is very long."""
    text = each.text if len(each.text) <= _TEXT else f"{each.text[:_TEXT]} … and {len(each.text) - _TEXT:,} more"
    return each, text.split("\n")


_VALID: Mapping[str, Figure] = {
    "right, given a valid plan": lambda step: step.right_if_valid,
    "valid": lambda step: step.valid,
}
_CHOICE: Mapping[str, Figure] = {"entropy": lambda step: step.worker_entropy}
_SEVERAL: Mapping[str, Figure] = {"several steps": lambda step: step.several_steps}
_LEARNING: Mapping[str, tuple[str, bool, Figure]] = {
    "Groups of one mind, %": ("even", True, lambda step: step.even),
    "KL from the first model, nats": ("KL", False, lambda step: step.kl),
    "Entropy of the tokens, nats": ("entropy", False, lambda step: step.entropy),
    "Gradient's length": ("gradient", False, lambda step: step.gradient),
    "Plans spoilt by workers' faults, %": ("masked", True, lambda step: step.masked),
}


def _right(steps: Sequence[Step], room: Room) -> Lines:
    told = figures.judged(steps)
    levels = told[-1][1].beside if told else {}
    return lines(
        [step.number for step in steps],
        {"right, sampled": [step.right for step in steps]},
        room,
        share=True,
        beside=Beside([(number, found.right) for number, found in told], levels),
    )


def _shares_of(steps: Sequence[Step], wanted: Mapping[str, Figure], room: Room = _SMALL) -> Lines:
    return lines([step.number for step in steps], _series(steps, wanted), room, share=True)


def _plain(steps: Sequence[Step], wanted: Mapping[str, Figure], exact: bool = False) -> Lines:
    return lines([step.number for step in steps], _series(steps, wanted), _SMALL, exact=exact)


def _series(steps: Sequence[Step], wanted: Mapping[str, Figure]) -> dict[str, list[float | None]]:
    return {name: [figure(step) for step in steps] for name, figure in wanted.items()}


def _reward(steps: Sequence[Step]) -> Lines:
    parts = dict.fromkeys(name for step in steps for name in step.parts)
    wanted: dict[str, Figure] = {"reward": lambda step: step.reward}
    if len(parts) > 1:
        wanted |= {f"{name} (part)": _part(name) for name in parts}
    return _plain(steps, wanted)


def _part(name: str) -> Callable[[Step], float]:
    return lambda step: step.parts.get(name, 0.0)


def _stacks(numbers: Sequence[int], shares: Sequence[Mapping[str, float]]) -> tuple[Stack, Stack] | None:
    """Return a drawing for a desk and one for a telephone; None where there is nothing to draw."""
    if not any(shares):
        return None
    return stack(numbers, shares, _MIDDLE), stack(numbers, shares, _NARROW)


def _learning(steps: Sequence[Step]) -> Iterator[Small]:
    for title, (name, share, figure) in _LEARNING.items():
        draw = _shares_of if share else _plain
        if share or any(figure(step) for step in steps):  # no KL is no drawing; no share of 0 is worth knowing
            yield Small(title, draw(steps, {name: figure}), share)
    yield Small("Learning rate", _plain(steps, {"rate": lambda step: step.rate}, exact=True), share=False)


def _running(steps: Sequence[Step]) -> Iterator[Small]:
    yield Small("Tokens sampled a second", _plain(steps, {"tokens a second": figures.speed}), share=False)
    kinds = dict.fromkeys(name for step in steps for name in step.seconds)
    yield Small("Seconds a step", _plain(steps, {name: _lasted(name) for name in kinds}), share=False)
    spent = [*accumulate(step.dollars for step in steps)]
    word = "Simulated dollars" if figures.simulated(steps) else "Dollars"
    numbers = [step.number for step in steps]
    yield Small(f"{word} so far", lines(numbers, {"spent": spent}, _SMALL, exact=True), share=False)


def _lasted(name: str) -> Callable[[Step], float]:
    return lambda step: step.seconds.get(name, 0.0)


def _second(steps: Sequence[Step]) -> Small | None:
    names = dict.fromkeys(name for step in steps for name in step.second_round)
    if not names:
        return None
    series = {name: [step.second_round.get(name) for step in steps] for name in names}
    return Small("Of second rounds, %", lines([step.number for step in steps], series, _SMALL, share=True), share=True)
