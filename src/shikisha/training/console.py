"""The terminal view of a training run: accuracy, calls by worker, plan shapes, speed, dollars and samples.

On a terminal it is a live screen, elsewhere a line every few seconds and one for each validation and warning.
Invariants: everything is drawn from steps, so a resumed run, given its earlier ones, looks like an unbroken one; from
the first step on the screen has one height, lower than the terminal, so nothing jumps; no line is wider than the
terminal; texts of models are cleaned. Where there is little room, samples go first, then charts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from shikisha.core.text import one_line
from shikisha.plots.number_format import percent, seconds
from shikisha.training import metrics
from shikisha.training.metrics import CompletionSample, Metric, StepMetrics, collapse_warnings
from shikisha.training.metrics_log import append_step

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType
    from rich.text import Text

_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR = "━"
_MAX_HEIGHT, _MIN_SHARES, _MAX_SHARES = 44, 4, 8
_MAX_WARNINGS = 2
_SHARE_METRICS: Mapping[str, Metric] = {
    "right": lambda step: step.right,
    "given a valid plan": lambda step: step.right_if_valid,
    "valid plans": lambda step: step.valid,
    "several steps": lambda step: step.several_steps,
    "zero-variance groups": lambda step: step.even,
}


def draw_screen(steps: Sequence[StepMetrics], size: "ConsoleDimensions", waited: float = 0.0) -> "RenderableType":
    """Return the screen for a terminal of this size; `waited` is the seconds since the latest step."""
    from rich.console import Group
    from rich.text import Text

    height = min(size.height - 1, _MAX_HEIGHT) if steps else 1
    lines = screen_lines(steps, size, waited)
    return Group(*lines, *[Text("")] * (height - len(lines)))


def screen_lines(steps: Sequence[StepMetrics], size: "ConsoleDimensions", waited: float = 0.0) -> list["Text"]:
    """Return the lines of the screen, without empty ones at its end."""
    from rich.text import Text

    height, width = min(size.height - 1, _MAX_HEIGHT), max(20, size.width - 1)
    if not steps:
        return [Text(f"waiting for the first step, for {seconds(waited)}")]
    lines = [_head(steps, width, waited), Text(""), *_curves(steps, width), *_validation_line(steps), Text("")]
    foot = [*_foot(steps), *_warning_lines(steps, width)]
    room = height - len(lines) - len(foot)
    lines += [*_shares(steps, width, max(_MIN_SHARES, min(_MAX_SHARES, room - 5))), *foot]
    lines += _samples(steps[-1].samples, width, height - len(lines))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return lines[:height]


def _head(steps: Sequence[StepMetrics], width: int, waited: float) -> "Text":
    from rich.text import Text

    step = steps[-1]
    line = Text(f"step {step.number:,} of {step.of:,} ", "bold")
    left = metrics.remaining_seconds(steps)
    clock = f" {seconds(left)} left" if left else " done"
    if left and waited >= _overdue_seconds(steps):
        clock = f" {seconds(waited)} since the last step"
    room = max(4, width - len(line) - len(clock))
    done = round(room * min(1.0, step.number / max(1, step.of)))
    line.append(_BAR * done, "cyan")
    line.append(_BAR * (room - done), "bright_black")
    line.append(clock)
    return line


def _overdue_seconds(steps: Sequence[StepMetrics]) -> float:
    """Return after how many seconds the screen says that a step has not ended."""
    return max(10.0, 3 * metrics.total_seconds(steps[-1:]))


def _curves(steps: Sequence[StepMetrics], width: int) -> Iterator["Text"]:
    from rich.text import Text

    room = max(8, width - 48)
    for name, figure in _SHARE_METRICS.items():
        line = Text(f"{name:<19}")
        line.append(f"{percent(metrics.mean_at_end(steps, figure)):>8}", "bold")
        line.append(f"  {sparkline([figure(step) for step in steps], room)}  ", "cyan")
        line.append(f"{percent(metrics.mean_at_start(steps, figure))} at first", "dim")
        yield line
    reward = Text(f"{'reward':<19}")
    reward.append(f"{metrics.mean_at_end(steps, lambda step: step.reward):>8.3f}", "bold")
    values = [step.reward for step in steps]
    reward.append(f"  {sparkline(values, room, min(0.0, *values), max(values))}  ", "cyan")
    reward.append(f"{metrics.mean_at_start(steps, lambda step: step.reward):.3f} at first", "dim")
    yield reward
    parts = metrics.mean_shares([step.parts for step in steps[-metrics.averaging_window(len(steps)) :]])
    yield Text(f"{'of which':<19}{', '.join(f'{one_line(name)} {value:.3f}' for name, value in parts.items())}", "dim")


def _validation_line(steps: Sequence[StepMetrics]) -> Iterator["Text"]:
    from rich.text import Text

    known = metrics.validation_history(steps)
    if not known:
        yield Text(f"{'validation':<19}not yet", "dim")
        return
    number, found = known[-1]
    line = Text(f"{'validation':<19}")
    line.append(f"{percent(found.right):>8}", "bold green")
    line.append(f"  after step {number:,}; ")
    others = sorted(found.beside.items(), key=lambda pair: -pair[1])
    line.append(", ".join(f"{one_line(name)} {percent(share)}" for name, share in others), "dim")
    yield line


def _shares(steps: Sequence[StepMetrics], width: int, count: int) -> Iterator["Text"]:
    """Yield two lists side by side, of workers and of shapes: the largest shares, and the rest."""
    from rich.text import Text

    latest = steps[-metrics.averaging_window(len(steps)) :]
    half = width // 2
    bits = (
        metrics.mean_at_end(steps, lambda step: step.worker_entropy),
        metrics.mean_at_start(steps, lambda step: step.worker_entropy),
    )
    head = Text(f"workers, {bits[0]:.2f} bits ({bits[1]:.2f} at first)"[: half - 1].ljust(half), "underline")
    yield head.append("shapes", "underline")
    sides = [
        _largest_shares(metrics.mean_shares([getattr(step, name) for step in latest]), count) for name in _SHARE_FIELDS
    ]
    for place in range(count):
        line = Text()
        for side in sides:
            line.append_text(_bar(*side[place], half) if place < len(side) else Text(" " * half))
        yield line


_SHARE_FIELDS = ("workers", "shapes")


def _largest_shares(shares: Mapping[str, float], count: int) -> list[tuple[str, float]]:
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


def _foot(steps: Sequence[StepMetrics]) -> Iterator["Text"]:
    from rich.text import Text

    step = steps[-1]
    if step.second_round:
        shares = ", ".join(f"{name} {percent(share)}" for name, share in step.second_round.items())
        yield Text(f"second rounds: {shares}")
    yield Text(
        f"KL {step.kl:.3f} · entropy {step.entropy:.3f} · gradient {step.gradient:.2f} · rate {step.rate:.2g} · "
        f"spoiled {percent(step.masked)}"
    )
    lasted = ", ".join(f"{one_line(name)} {seconds(taken)}" for name, taken in step.seconds.items())
    yield Text(f"{metrics.tokens_per_second(step):,.0f} tokens/s · {metrics.describe_cost(steps)} · {lasted}")


def _warning_lines(steps: Sequence[StepMetrics], width: int) -> Iterator["Text"]:
    from rich.text import Text

    for warning in collapse_warnings(steps)[:_MAX_WARNINGS]:
        for place, line in enumerate(wrap(one_line(warning, 3 * width), width - 2)):
            yield Text(f"{' ' if place else '!'} {line}", "yellow")


def _samples(samples: Sequence[CompletionSample], width: int, room: int) -> Iterator["Text"]:
    """Yield as many samples as there is room for, each with its task, its text and its reward."""
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


def sparkline(values: Sequence[float], room: int, low: float = 0.0, high: float = 1.0) -> str:
    """Return values as a row of `room` blocks; where there are more values, a block is the mean of several."""
    shown = values
    if len(values) > room:
        edges = [round(place * len(values) / room) for place in range(room + 1)]
        shown = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    span = (high - low) or 1.0
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[max(0, min(top, round(top * (value - low) / span)))] for value in shown).ljust(room)


if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]

# Seconds between lines where there is no terminal.
_LINE_EVERY = 5.0
# Between steps nothing moves but a clock.
_PER_SECOND = 1


class TrainingView(Protocol):
    """A watcher that is shown while it is open."""

    def __call__(self, step: StepMetrics) -> None:
        """Show a step."""
        ...

    def __enter__(self) -> "TrainingView": ...

    def __exit__(self, *_: object) -> None: ...


def open_view(console: "Console", earlier: Iterable[StepMetrics] = ()) -> TrainingView:
    """Return the view for a console: a live screen on a terminal, else lines; `earlier` are steps before a resume."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console, earlier)
    return StepLines(console, earlier)


class StepLines:
    """Prints a line every few seconds, and one for each validation and warning."""

    def __init__(self, console: "Console", earlier: Iterable[StepMetrics] = (), clock: Clock = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._steps = list(earlier)
        self._next = clock()
        self._warned: set[str] = set()

    def __call__(self, step: StepMetrics) -> None:
        """Print the step if it is time, or if it was validated or is the last."""
        append_step(self._steps, step)
        now = self._clock()
        if now >= self._next or step.judged is not None or step.number >= step.of:
            self._next = now + _LINE_EVERY
            self._print(describe_step(self._steps))
            for warning in collapse_warnings(self._steps):
                kind = warning.partition(":")[0]
                # Once; its figures change from step to step.
                if kind not in self._warned:
                    self._warned.add(kind)
                    self._print(f"warning: {warning}")

    def __enter__(self) -> "StepLines":
        return self

    def __exit__(self, *_: object) -> None: ...

    def _print(self, text: str) -> None:
        self._console.print(one_line(text, 500), markup=False, highlight=False, soft_wrap=True)


class LiveScreen:
    """Draws the metrics of all steps at the foot of a terminal, and leaves them there at the end."""

    def __init__(self, console: "Console", earlier: Iterable[StepMetrics] = (), clock: Clock = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._steps = list(earlier)
        self._since = clock()
        self._live: Live | None = None

    def __call__(self, step: StepMetrics) -> None:
        """Take note of the step, and show it."""
        # The thread that draws may be reading the old list.
        steps = self._steps.copy()
        append_step(steps, step)
        self._steps = steps
        self._since = self._clock()
        if self._live is not None:
            self._live.refresh()

    def __enter__(self) -> "LiveScreen":
        from rich.live import Live

        self._live = Live(
            console=self._console,
            get_renderable=self.draw,
            refresh_per_second=_PER_SECOND,
            vertical_overflow="crop",
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def draw(self) -> "RenderableType":
        """Return the screen as it is now."""
        return draw_screen(self._steps, self._console.size, self._clock() - self._since)


def describe_step(steps: list[StepMetrics]) -> str:
    """Return the latest step in one line."""
    return " · ".join(_step_words(steps))


def _step_words(steps: list[StepMetrics]) -> Iterator[str]:
    step = steps[-1]
    yield f"step {step.number:,} of {step.of:,}"
    yield f"reward {step.reward:.3f}"
    yield f"right {percent(step.right)}, given a valid plan {percent(step.right_if_valid)}, valid {percent(step.valid)}"
    if step.judged is not None:
        yield f"validation {percent(step.judged.right)} of {step.judged.count:,} tasks"
    yield f"workers {step.worker_entropy:.2f} bits"
    yield f"KL {step.kl:.3f}"
    yield f"{metrics.tokens_per_second(step):,.0f} tokens/s"
    yield metrics.describe_cost(steps)
    if left := metrics.remaining_seconds(steps):
        yield f"{seconds(left)} left"
