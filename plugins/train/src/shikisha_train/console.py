"""The terminal view of a training run: a line every few seconds, and one for each validation and warning.

Invariant: everything is told from steps, so a resumed run, given its earlier ones, reads like an unbroken one; texts of
models are cleaned. Deliberately absent: charts (`metrics_page`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from shikisha.core.text import one_line
from shikisha.plots.format import percent, seconds
from shikisha_train import metrics
from shikisha_train.metrics import StepMetrics, collapse_warnings
from shikisha_train.metrics_log import append_step

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY = 5.0  # seconds between lines


class StepLines:
    """Prints a line every few seconds, and one for each validation and warning."""

    def __init__(
        self, console: "Console", earlier: Iterable[StepMetrics] = (), clock: Callable[[], float] = monotonic
    ) -> None:
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

    def _print(self, text: str) -> None:
        self._console.print(one_line(text, 500), markup=False, highlight=False, soft_wrap=True)


def describe_step(steps: Sequence[StepMetrics]) -> str:
    """Return the latest step in one line."""
    return " · ".join(_step_words(steps))


def _step_words(steps: Sequence[StepMetrics]) -> Iterator[str]:
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
