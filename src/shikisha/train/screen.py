"""One screen of a training: from its steps to lines for a terminal of a given size.

Invariants: from the first step on it has as many lines whatever steps hold, one fewer than the terminal; no line is
wider than the terminal; figures go before pictures, and pictures before samples, where there is little room.
Deliberately absent: moving, and waiting (`live`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING

from shikisha.clean import one_line
from shikisha.evaluate.wording import percent, seconds
from shikisha.train import figures
from shikisha.train.figures import Figure
from shikisha.train.progress import Sample, Step
from shikisha.train.warning import warnings

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType
    from rich.text import Text

_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR = "━"
_HIGHEST, _LEAST_SHARES, _MOST_SHARES = 44, 4, 8
_MOST_WARNINGS = 2
_SHARES: Mapping[str, Figure] = {
    "right": lambda step: step.right,
    "given a valid plan": lambda step: step.right_if_valid,
    "valid plans": lambda step: step.valid,
    "several steps": lambda step: step.several_steps,
    "groups of one mind": lambda step: step.even,
}


def draw(steps: Sequence[Step], size: "ConsoleDimensions", waited: float = 0.0) -> "RenderableType":
    """Return the screen for a terminal of this size; `waited` are the seconds since the latest step."""
    from rich.console import Group
    from rich.text import Text

    height = min(size.height - 1, _HIGHEST) if steps else 1
    lines = told(steps, size, waited)
    return Group(*lines, *[Text("")] * (height - len(lines)))


def told(steps: Sequence[Step], size: "ConsoleDimensions", waited: float = 0.0) -> list["Text"]:
    """Return the lines of the screen, without empty ones at its end."""
    from rich.text import Text

    height, width = min(size.height - 1, _HIGHEST), max(20, size.width - 1)
    if not steps:
        return [Text(f"waiting for the first step, for {seconds(waited)}")]
    lines = [_head(steps, width, waited), Text(""), *_curves(steps, width), *_judged(steps), Text("")]
    foot = [*_foot(steps), *_warned(steps, width)]
    room = height - len(lines) - len(foot)
    lines += [*_shares(steps, width, max(_LEAST_SHARES, min(_MOST_SHARES, room - 5))), *foot]
    lines += _samples(steps[-1].samples, width, height - len(lines))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines[:height]


def _head(steps: Sequence[Step], width: int, waited: float) -> "Text":
    from rich.text import Text

    step = steps[-1]
    line = Text(f"step {step.number:,} of {step.of:,} ", "bold")
    left = figures.left(steps)
    clock = f" {seconds(left)} left" if left else " done"
    if left and waited >= _long(steps):
        clock = f" {seconds(waited)} since the last step"
    room = max(4, width - len(line) - len(clock))
    done = round(room * min(1.0, step.number / max(1, step.of)))
    line.append(_BAR * done, "cyan")
    line.append(_BAR * (room - done), "bright_black")
    line.append(clock)
    return line


def _long(steps: Sequence[Step]) -> float:
    """Return after how many seconds it is worth saying that a step has not ended."""
    return max(10.0, 3 * figures.taken(steps[-1:]))


def _curves(steps: Sequence[Step], width: int) -> Iterator["Text"]:
    from rich.text import Text

    room = max(8, width - 48)
    for name, figure in _SHARES.items():
        line = Text(f"{name:<19}")
        line.append(f"{percent(figures.now(steps, figure)):>8}", "bold")
        line.append(f"  {spark([figure(step) for step in steps], room)}  ", "cyan")
        line.append(f"{percent(figures.first(steps, figure))} at first", "dim")
        yield line
    reward = Text(f"{'reward':<19}")
    reward.append(f"{figures.now(steps, lambda step: step.reward):>8.3f}", "bold")
    values = [step.reward for step in steps]
    reward.append(f"  {spark(values, room, min(0.0, *values), max(values))}  ", "cyan")
    reward.append(f"{figures.first(steps, lambda step: step.reward):.3f} at first", "dim")
    yield reward
    parts = figures.mean_shares([step.parts for step in steps[-figures.window(len(steps)) :]])
    yield Text(f"{'of which':<19}{', '.join(f'{one_line(name)} {value:.3f}' for name, value in parts.items())}", "dim")


def _judged(steps: Sequence[Step]) -> Iterator["Text"]:
    from rich.text import Text

    known = figures.judged(steps)
    if not known:
        yield Text(f"{'judged':<19}not yet", "dim")
        return
    number, found = known[-1]
    line = Text(f"{'judged':<19}")
    line.append(f"{percent(found.right):>8}", "bold green")
    line.append(f"  after step {number:,}; ")
    others = sorted(found.beside.items(), key=lambda pair: -pair[1])
    line.append(", ".join(f"{one_line(name)} {percent(share)}" for name, share in others), "dim")
    yield line


def _shares(steps: Sequence[Step], width: int, count: int) -> Iterator["Text"]:
    """Yield two lists side by side, of who is asked and of shapes: the largest, and how much is left for others."""
    from rich.text import Text

    latest = steps[-figures.window(len(steps)) :]
    half = width // 2
    bits = (
        figures.now(steps, lambda step: step.worker_entropy),
        figures.first(steps, lambda step: step.worker_entropy),
    )
    head = Text(f"workers, {bits[0]:.2f} bits ({bits[1]:.2f} at first)"[: half - 1].ljust(half), "underline")
    yield head.append("shapes", "underline")
    sides = [_ranked(figures.mean_shares([getattr(step, name) for step in latest]), count) for name in _SIDES]
    for place in range(count):
        line = Text()
        for side in sides:
            line.append_text(_bar(*side[place], half) if place < len(side) else Text(" " * half))
        yield line


_SIDES = ("workers", "shapes")


def _ranked(shares: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    held = list(shares.items())
    if len(held) <= count:
        return held
    rest = held[count - 1 :]
    return [*held[: count - 1], (f"{len(rest)} others", sum(share for _, share in rest))]


def _bar(name: str, share: float, width: int) -> "Text":
    from rich.text import Text

    named = 22 if width >= 60 else 20 if width >= 36 else 12
    room = max(2, width - named - 10)
    whole = one_line(name, named).ljust(named)
    line = Text(f"{whole} {percent(share):>7} ")
    line.append("█" * round(room * share), "cyan")
    line.pad_right(max(0, width - line.cell_len))
    return line


def _foot(steps: Sequence[Step]) -> Iterator["Text"]:
    from rich.text import Text

    step = steps[-1]
    if step.second_round:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in step.second_round.items())
        yield Text(f"second rounds: {shares}")
    yield Text(
        f"KL {step.kl:.3f} · entropy {step.entropy:.3f} · gradient {step.gradient:.2f} · rate {step.rate:.2g} · "
        f"spoilt {percent(step.masked)}"
    )
    lasted = ", ".join(f"{one_line(name)} {seconds(taken)}" for name, taken in step.seconds.items())
    yield Text(f"{figures.speed(step):,.0f} tokens/s · {figures.money(steps)} · {lasted}")


def _warned(steps: Sequence[Step], width: int) -> Iterator["Text"]:
    from rich.text import Text

    for warning in warnings(steps)[:_MOST_WARNINGS]:
        for place, line in enumerate(wrap(one_line(warning, 3 * width), width - 2)):
            yield Text(f"{' ' if place else '!'} {line}", "yellow")


def _samples(samples: Sequence[Sample], width: int, room: int) -> Iterator["Text"]:
    """Yield as many samples as there is room for: each its task, its text on as few lines as it takes, what it got."""
    from rich.text import Text

    lines: list[Text] = []
    for each in samples:
        reward = "no reward" if each.reward is None else f"{each.reward:.3f}"
        mark = "✓" if each.right else "✗"
        part = [Text(f"{mark} {reward} {one_line(each.task, width)}", "green" if each.right else "red")]
        part += [Text(f"  {one_line(line, width)}", "dim") for line in each.text.split("\n") if line.strip()]
        if len(lines) + len(part) > room - 1:
            if not lines and room >= 2:
                flat = one_line(" / ".join(each.text.split("\n")), 4 * width)
                lines = [part[0], *(Text(f"  {piece}", "dim") for piece in wrap(flat, width - 2))]
            break
        lines += part
    if len(lines) < room:
        yield Text("")
    yield from lines[: max(0, room)]


def spark(values: Sequence[float], room: int, low: float = 0.0, high: float = 1.0) -> str:
    """Return values as a row of blocks, always `room` long; where there are more, each block is the mean of some."""
    shown = values
    if len(values) > room:
        edges = [round(place * len(values) / room) for place in range(room + 1)]
        shown = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    span = (high - low) or 1.0
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[max(0, min(top, round(top * (value - low) / span)))] for value in shown).ljust(room)
