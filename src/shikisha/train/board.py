"""Steps as TensorBoard's event files, for whoever follows trainings there already: `tensorboard --logdir DIR`.

Invariants: nothing of TensorBoard is imported before a board is made, and it stays an option; a training that goes on
from a checkpoint hides what was drawn after it; texts of a model are shown as they are and never taken for markup.
Deliberately absent: figures that a `Step` does not hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha.clean import clean
from shikisha.errors import ConfigError, MissingExtra
from shikisha.train.figures import simulated, speed
from shikisha.train.progress import Sample, Step

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_ANSWERS = ("right", "right_if_valid", "valid", "several_steps")
_LEARNING = ("even", "masked", "entropy", "kl", "loss", "gradient", "rate")


class Board:
    """Writes every step that it is told of below a folder; open it with `with`, which closes the file.

    ConfigError where TensorBoard is not installed (MissingExtra: torch) or the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import writer  # noqa: F401 - refuse at the beginning, not at the first step
        except ImportError as error:
            if error.name == "torch":
                raise MissingExtra("train", "the board") from None
            raise ConfigError("TensorBoard is not installed, and a board needs it: pip install tensorboard") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def __call__(self, step: Step) -> None:
        """Write a step; the first one hides what an earlier training wrote from there on."""
        if self._writer is None:
            self._writer = _opened(self._folder, step.number)
        for name, value in scalars(step).items():
            self._writer.add_scalar(name, value, step.number)
        if step.samples:
            self._writer.add_text("samples", _shown(step.samples), step.number)

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def scalars(step: Step) -> Mapping[str, float]:
    """Return a step's figures under the names that the board groups them by."""
    return dict(_scalars(step))


def _scalars(step: Step) -> Iterator[tuple[str, float]]:
    yield "reward/total", step.reward
    for kind, shares in (("reward", step.parts), ("workers", step.workers), ("shapes", step.shapes)):
        yield from ((f"{kind}/{name}", value) for name, value in shares.items())
    yield from ((f"answers/{name}", float(getattr(step, name))) for name in _ANSWERS)
    yield "workers/entropy, bits", step.worker_entropy
    yield from ((f"learning/{name}", float(getattr(step, name))) for name in _LEARNING)
    yield "cost/tokens a second", speed(step)
    yield f"cost/{'simulated dollars' if simulated([step]) else 'dollars'}", step.dollars
    yield from ((f"cost/seconds: {name}", value) for name, value in step.seconds.items())
    yield from ((f"second rounds/{name}", value) for name, value in step.second_round.items())
    if step.judged is not None:
        yield "judged/right", step.judged.right
        yield "judged/valid", step.judged.valid
        yield from ((f"judged/{name}", value) for name, value in step.judged.beside.items())


def _opened(folder: Path, number: int) -> "SummaryWriter":
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(folder), purge_step=number)


def _shown(samples: Sequence[Sample]) -> str:
    """Return samples as Markdown in which nothing of theirs is markup: each line is one of code, by its indent."""
    return "\n\n".join(
        "\n".join(f"    {escape(line)}" for line in clean(f"{each.task}\n{each.text}\n{_worth(each)}").split("\n"))
        for each in samples
    )


def _worth(each: Sample) -> str:
    reward = "no reward" if each.reward is None else f"reward {each.reward:.3f}"
    return f"{'right' if each.right else 'not right'}, {each.shape}, {reward}"
