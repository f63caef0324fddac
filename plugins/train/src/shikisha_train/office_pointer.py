"""Trains a pointer conductor in the simulated office: lessons teach it to read, performed plans teach everything else.

Lessons label what training authors' sentences ask for and what cards claim. Whom to call, how to word a subtask, what
to show and what to check is found out by GRPO alone, for crews with true, false and blank cards and 0 to 300 outcomes a
worker.

Invariants: the model is a function of the settings, with one thread to the byte; a reader that is given is not taught.
Deliberately absent: another world than the office, and checkpoints in between (it takes minutes).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Floats32
from shikisha_train.office.language_lessons import OFFICE_KINDS, card_lessons, draw_lesson, draw_question_text
from shikisha_train.office.office_batches import OfficeBatches
from shikisha_train.pointer.pointer_conductor import PointerModel
from shikisha_train.pointer.pointer_network import PointerNetwork
from shikisha_train.pointer.reading_range import ReadingRange
from shikisha_train.pointer.task_reader import TaskReader
from shikisha_train.pointer_grpo import PointerTraining, train_pointer
from shikisha_train.reading_range_fit import fit_reading_range
from shikisha_train.task_reader_fit import fit_task_reader, read_trunk

READER_TRUNK = Path(__file__).resolve().parents[4] / "recipes" / "reader_trunk.safetensors"  # only training needs it
RANGE_TASKS, RANGE_REFUSED = 2_400, 0.01


@dataclass(frozen=True, slots=True)
class OfficeTraining:
    """How a training goes; the defaults made the conductor in the package."""

    seed: int = 1
    updates: int = 3_500
    lessons: int = 56_000
    bank: int = 6_000  # tasks that batches are drawn from
    every: int = 200  # updates between two reports

    def describe(self) -> dict[str, str]:
        """Return what the header of the model's file says of it."""
        return {"seed": str(self.seed), "updates": str(self.updates), "lessons": str(self.lessons)}


@dataclass(frozen=True, slots=True)
class OfficeProgress:
    """Updates so far, and since the last report the mean value of a plan and the shares of its treatments.

    `read` is the share of the lessons in reading that are done.
    """

    updates: int
    value: float
    shares: Floats32  # call, opinion, vote, check
    read: float = 1.0


def teach_office_reader(lessons: int, seed: int, report: Callable[[float], None] | None = None) -> TaskReader:
    """Return a reader that so many lessons taught; `report` is told the share that is done.

    ConfigError without the pretrained trunk, which the package does not bring.
    """
    if not READER_TRUNK.is_file():
        raise ConfigError(f"{READER_TRUNK}: missing: lessons in reading need a checkout, or take --reader shipped")
    rng = random.Random(seed)  # noqa: S311 - no secret
    texts = [[(each.text, str(each.role), each.uses) for each in draw_lesson(rng)] for _ in range(lessons)]
    reader = fit_task_reader(
        OFFICE_KINDS, texts, list(card_lessons()), seed, trunk=read_trunk(READER_TRUNK), report=report
    )
    return replace(reader, known=fit_office_range())


def fit_office_range() -> ReadingRange:
    """Return a measure of what is like the office's questions, fitted on tasks of its training authors."""
    asked = [draw_question_text(random.Random(f"range {at}")) for at in range(RANGE_TASKS)]  # noqa: S311 - no secret
    # The authors differ, so what 99 % of the tasks of authors who are left out reach depends on nobody's habits.
    questions, texts, _ = zip(*asked, strict=True)
    authors, sentences = [each.author for each in questions], [each.sentences for each in questions]
    return fit_reading_range(texts, authors, sentences, RANGE_REFUSED, np.inf)


def train_office_pointer(
    settings: OfficeTraining, reader: TaskReader | None = None, report: Callable[[OfficeProgress], None] | None = None
) -> PointerModel:
    """Train a model; without a `reader` one is taught first."""
    values, shares = list[float](), list[Floats32]()

    def count(update: int, value: float, share: Floats32) -> None:
        values.append(value)
        shares.append(share)
        if report is not None and ((update + 1) % settings.every == 0 or update + 1 == settings.updates):
            report(OfficeProgress(update + 1, float(np.mean(values)), np.mean(shares, 0, dtype=np.float32)))
            values.clear()
            shares.clear()

    def taught(share: float) -> None:
        if report is not None:
            report(OfficeProgress(0, 0.0, np.zeros(0, np.float32), share))

    reader = reader or teach_office_reader(settings.lessons, settings.seed, taught)
    taught(1.0)
    training = PointerTraining(updates=settings.updates, seed=settings.seed)
    # A training of few updates needs no more tasks than it draws.
    batches = OfficeBatches.draw_bank(settings.seed, min(settings.bank, training.updates * training.tasks))
    weights = train_pointer(batches, len(OFFICE_KINDS), training, count)
    return PointerModel(reader, PointerNetwork(weights, np), "")
