"""A training while it goes on: how often it is right, whom it asks, in which shape, how fast, for how many dollars.

Invariants: everything is drawn from steps, so a resumed training, told of its earlier ones, looks like an unbroken one;
from the first on the drawing is of one height, no higher than the terminal, so nothing jumps; on what is no terminal a
line is printed every few seconds instead, and one for every judgement and warning. Texts of models are cleaned.
Deliberately absent: keeping anything (`history`), and a guess of the future but the time that is left.
"""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from shikisha.clean import one_line
from shikisha.evaluate.wording import percent, seconds
from shikisha.train import figures
from shikisha.train.history import add
from shikisha.train.progress import Step
from shikisha.train.screen import draw
from shikisha.train.warning import warnings

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]

_LINE_EVERY = 5.0  # seconds between lines where there is no terminal
_PER_SECOND = 1  # between steps nothing moves but a clock


class Shown(Protocol):
    """A watcher that is shown while it is open."""

    def __call__(self, step: Step) -> None:
        """Show a step."""
        ...

    def __enter__(self) -> "Shown": ...

    def __exit__(self, *_: object) -> None: ...


def live(console: "Console", earlier: Iterable[Step] = ()) -> Shown:
    """Return the view that suits a console: drawn in place on a terminal, else in lines; `earlier` steps are known."""
    if console.is_terminal and not console.is_dumb_terminal:
        return Drawn(console, earlier)
    return Lines(console, earlier)


class Lines:
    """Prints where training stands, every few seconds."""

    def __init__(self, console: "Console", earlier: Iterable[Step] = (), clock: Clock = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._steps = list(earlier)
        self._next = clock()
        self._warned: set[str] = set()

    def __call__(self, step: Step) -> None:
        """Print the step if it is time, or if it was judged or is the last."""
        add(self._steps, step)
        now = self._clock()
        if now >= self._next or step.judged is not None or step.number >= step.of:
            self._next = now + _LINE_EVERY
            self._print(in_words(self._steps))
            for told in warnings(self._steps):
                kind = told.partition(":")[0]
                if kind not in self._warned:  # once; its figures change from step to step
                    self._warned.add(kind)
                    self._print(f"warning: {told}")

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None: ...

    def _print(self, text: str) -> None:
        self._console.print(one_line(text, 500), markup=False, highlight=False, soft_wrap=True)


class Drawn:
    """Keeps the figures of all steps so far at the foot of a terminal, and leaves them there at the end."""

    def __init__(self, console: "Console", earlier: Iterable[Step] = (), clock: Clock = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._steps = list(earlier)
        self._since = clock()
        self._live: Live | None = None

    def __call__(self, step: Step) -> None:
        """Take note of the step, and show it."""
        steps = self._steps.copy()  # the thread that draws may be reading the old list
        add(steps, step)
        self._steps = steps
        self._since = self._clock()
        if self._live is not None:
            self._live.refresh()

    def __enter__(self) -> "Drawn":
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
        return draw(self._steps, self._console.size, self._clock() - self._since)


def in_words(steps: list[Step]) -> str:
    """Return the latest step in one line."""
    return " · ".join(_words(steps))


def _words(steps: list[Step]) -> Iterator[str]:
    step = steps[-1]
    yield f"step {step.number:,} of {step.of:,}"
    yield f"reward {step.reward:.3f}"
    yield f"right {percent(step.right)}, given a valid plan {percent(step.right_if_valid)}, valid {percent(step.valid)}"
    if step.judged is not None:
        yield f"judged {percent(step.judged.right)} of {step.judged.count:,} tasks"
    yield f"workers {step.worker_entropy:.2f} bits"
    yield f"KL {step.kl:.3f}"
    yield f"{figures.speed(step):,.0f} tokens/s"
    yield figures.money(steps)
    if left := figures.left(steps):
        yield f"{seconds(left)} left"
