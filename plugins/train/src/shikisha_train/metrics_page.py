"""The page of a training run: one self-contained HTML file, drawn from its steps, during the run or afterwards.

Invariants: every text that a model or a worker wrote is cleaned and escaped where the templates are rendered; the page
loads nothing and runs no script but its own; what a chart shows also stands in a table, or in words next to it for the
first and the last steps; the same steps give the same page.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from shikisha.core.errors import ConfigError
from shikisha.plots.charts import Chart, ChartSize
from shikisha.plots.format import page_environment, render_page
from shikisha_train import metrics
from shikisha_train.metrics import CompletionSample, Metric, StepMetrics, collapse_warnings
from shikisha_train.training_charts import (
    ReferenceValues,
    StepSeries,
    format_value,
    line_chart,
    share_stack,
    step_chart_size,
)

_WIDE, _NARROW, _SMALL, _MIDDLE = (
    step_chart_size(1200, 420, 170),
    step_chart_size(350, 330),
    step_chart_size(380, 240),
    step_chart_size(580, 300),
)
Figure = Callable[[StepMetrics], float | None]

_ROWS = 24  # of the table of all steps
_TEXT = 1_500  # letters of a completion


@dataclass(frozen=True, slots=True)
class SmallChart:
    """A small chart with its heading; `share`: in percent."""

    title: str
    plot: Chart
    share: bool


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of the table, or the mean of several (first to last)."""

    first: int
    last: int
    steps: Sequence[StepMetrics]

    def mean(self, name: str) -> float:
        """Return the mean of a field over the row's steps."""
        return sum(float(getattr(step, name)) for step in self.steps) / len(self.steps)

    @property
    def speed(self) -> float:
        """Tokens a second."""
        seconds = metrics.total_seconds(self.steps)
        return sum(step.tokens for step in self.steps) / seconds if seconds > 0 else 0.0

    @property
    def dollars(self) -> float:
        """What its steps cost."""
        return metrics.total_dollars(self.steps)


def render_training_page(steps: Sequence[StepMetrics], name: str = "a conductor") -> str:
    """Return the page; ConfigError without a step, MissingExtra when jinja2 is not installed."""
    if not steps:
        raise ConfigError("the page of a training run needs at least one step")
    environment = page_environment("shikisha_train", "shikisha.routing.fit")
    environment.filters["value"] = format_value
    values = {"name": name, **_page_texts(steps), **_charts(steps), **_tables(steps)}
    return render_page(environment, "training.html.jinja", values)


def _page_texts(steps: Sequence[StepMetrics]) -> Mapping[str, object]:
    return {
        "last": steps[-1],
        "tokens": sum(step.tokens for step in steps),
        "seconds_taken": metrics.total_seconds(steps),
        "money": metrics.describe_cost(steps),
        "simulated": metrics.uses_simulated_workers(steps),
        "headline": metrics.training_headline(steps),
        "warnings": collapse_warnings(steps),
    }


def _charts(steps: Sequence[StepMetrics]) -> Mapping[str, object]:
    numbers = [step.number for step in steps]
    return {
        "wide": _accuracy_chart(steps, _WIDE),
        "narrow": _accuracy_chart(steps, _NARROW),
        "valid": _small_chart("Given a valid plan, and valid, %", steps, _VALID, share=True),
        "reward": _reward_chart(steps),
        "workers": _stack_charts(numbers, [step.workers for step in steps], "Calls by worker, %"),
        "choice": _small_chart("Entropy of calls over workers, bits", steps, _CHOICE),
        "shapes": _stack_charts(numbers, [step.shapes for step in steps], "Plans by shape and length, %"),
        "several": _small_chart("Plans of several steps, of the valid, %", steps, _SEVERAL, share=True),
        "learning": tuple(_learning_charts(steps)),
        "running": tuple(_cost_charts(steps)),
        "second": _second_round_chart(steps),
    }


def _tables(steps: Sequence[StepMetrics]) -> Mapping[str, object]:
    history = metrics.validation_history(steps)
    return {
        "rows": list(table_rows(steps)),
        "judged": [(number, found, metrics.share_of_optimum(found)) for number, found in history],
        "beside": list(dict.fromkeys(name for _, found in history for name in found.beside)),
        "samples": [
            (when, step.number, [_truncate_sample(each) for each in step.samples]) for when, step in sample_steps(steps)
        ],
    }


def table_rows(steps: Sequence[StepMetrics]) -> Iterator[StepRow]:
    """Yield at most so many rows of as many steps each."""
    size = -(-len(steps) // _ROWS)
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        yield StepRow(part[0].number, part[-1].number, part)


def sample_steps(steps: Sequence[StepMetrics]) -> list[tuple[str, StepMetrics]]:
    """Return the first, the middle and the last of the steps that have samples, each once."""
    having = [step for step in steps if step.samples]
    if not having:
        return []
    places = {"early": 0, "in the middle": len(having) // 2, "late": len(having) - 1}
    kept: dict[int, tuple[str, StepMetrics]] = {}
    for when, place in places.items():
        kept.setdefault(having[place].number, (when, having[place]))
    return list(kept.values())


def _truncate_sample(each: CompletionSample) -> tuple[CompletionSample, list[str]]:
    """Return a sample and the lines of its text, truncated where it is very long."""
    text = each.text if len(each.text) <= _TEXT else f"{each.text[:_TEXT]} … and {len(each.text) - _TEXT:,} more"
    return each, text.split("\n")


_VALID: Mapping[str, Metric] = {
    "right, given a valid plan": lambda step: step.right_if_valid,
    "valid": lambda step: step.valid,
}
_CHOICE: Mapping[str, Metric] = {"entropy": lambda step: step.worker_entropy}
_SEVERAL: Mapping[str, Metric] = {"several steps": lambda step: step.several_steps}
_LEARNING: Mapping[str, tuple[str, bool, Metric]] = {
    "Zero-variance groups, %": ("even", True, lambda step: step.even),
    "KL from the first model, nats": ("KL", False, lambda step: step.kl),
    "Entropy of the tokens, nats": ("entropy", False, lambda step: step.entropy),
    "Gradient norm": ("gradient", False, lambda step: step.gradient),
    "Plans spoiled by workers' faults, %": ("masked", True, lambda step: step.masked),
}


def _accuracy_chart(steps: Sequence[StepMetrics], size: ChartSize) -> Chart:
    history = metrics.validation_history(steps)
    references = ReferenceValues(
        [(number, found.right) for number, found in history], history[-1][1].beside if history else {}
    )
    series = StepSeries({"right, sampled": [step.right for step in steps]}, share=True)
    return line_chart([step.number for step in steps], series, size, "Right answers, %", references)


def _small_chart(
    title: str, steps: Sequence[StepMetrics], wanted: Mapping[str, Figure], *, share: bool = False, exact: bool = False
) -> SmallChart:
    series = StepSeries({name: [figure(step) for step in steps] for name, figure in wanted.items()}, share, exact)
    return SmallChart(title, line_chart([step.number for step in steps], series, _SMALL, title), share)


def _reward_chart(steps: Sequence[StepMetrics]) -> SmallChart:
    parts = dict.fromkeys(name for step in steps for name in step.parts)
    wanted: dict[str, Metric] = {"reward": lambda step: step.reward}
    if len(parts) > 1:
        wanted |= {f"{name} (part)": _reward_part(name) for name in parts}
    return _small_chart("Reward and its parts", steps, wanted)


def _reward_part(name: str) -> Metric:
    return lambda step: step.parts.get(name, 0.0)


def _stack_charts(
    numbers: Sequence[int], shares: Sequence[Mapping[str, float]], title: str
) -> tuple[Chart, Chart] | None:
    """Return a chart for a wide screen and one for a phone; None where there is nothing to draw."""
    if not any(shares):
        return None
    return share_stack(numbers, shares, _MIDDLE, title), share_stack(numbers, shares, _NARROW, title)


def _learning_charts(steps: Sequence[StepMetrics]) -> Iterator[SmallChart]:
    for title, (name, share, figure) in _LEARNING.items():
        # Without KL there is no chart; a share of 0 is worth knowing.
        if share or any(figure(step) for step in steps):
            yield _small_chart(title, steps, {name: figure}, share=share)
    yield _small_chart("Learning rate", steps, {"rate": lambda step: step.rate}, exact=True)


def _cost_charts(steps: Sequence[StepMetrics]) -> Iterator[SmallChart]:
    yield _small_chart("Tokens sampled a second", steps, {"tokens a second": metrics.tokens_per_second})
    kinds = dict.fromkeys(name for step in steps for name in step.seconds)
    yield _small_chart("Seconds a step", steps, {name: _seconds_of(name) for name in kinds})
    title = f"{'Simulated dollars' if metrics.uses_simulated_workers(steps) else 'Dollars'} so far"
    series = StepSeries({"spent": [*accumulate(step.dollars for step in steps)]}, exact=True)
    yield SmallChart(title, line_chart([step.number for step in steps], series, _SMALL, title), share=False)


def _seconds_of(name: str) -> Metric:
    return lambda step: step.seconds.get(name, 0.0)


def _second_round_chart(steps: Sequence[StepMetrics]) -> SmallChart | None:
    names = dict.fromkeys(name for step in steps for name in step.second_round)
    wanted = {name: _second_round_share(name) for name in names}
    return _small_chart("Of second rounds, %", steps, wanted, share=True) if names else None


def _second_round_share(name: str) -> Figure:
    return lambda step: step.second_round.get(name)
