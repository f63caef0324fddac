"""Batches of office tasks for a learner: crews with true and false cards, any amount of outcomes, any pool size.

Invariant: a learner gets a `PointerInput` and what came of its choices, never a level, a want or an honesty. The tasks
are of training authors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from shikisha.routing.arrays import Floats32, Ints
from shikisha_train.office.office_rollouts import (
    OfficeTruth,
    draw_luck,
    draw_notes,
    draw_outcome_counts,
    office_truth,
    perform_choices,
    true_input,
)
from shikisha_train.office.office_tasks import OFFICE, OfficeDistribution, OfficeTask, office_tasks
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.pointer.pointer_network import PointerChoices, PointerInput, PointerOutcomes

OfficePerform = Callable[..., PointerOutcomes]
Record = TypeVar("Record", OfficeTruth, PointerInput)
TRAINING_SEEDS = 10_000  # seeds from here on are for training


@dataclass
class OfficeBatches:
    """Draws tasks from a bank of `items`; `misread` is how often a part's kind or need is read wrong."""

    truth: OfficeTruth
    given: PointerInput
    misread: float = 0.08

    @classmethod
    def draw_bank(
        cls,
        seed: int,
        count: int = 6_000,
        distribution: OfficeDistribution = OFFICE,
        sizes: Sequence[int] = (3, 4, 5, 6, 7),
    ) -> "OfficeBatches":
        """Draw a bank of training tasks."""
        crews = replace(distribution.crew, sizes=tuple(sizes))
        items = list(office_tasks(AuthorSplit.TRAIN, TRAINING_SEEDS + seed, replace(distribution, crew=crews), count))
        return cls.of(items)

    @classmethod
    def of(cls, items: Sequence[OfficeTask]) -> "OfficeBatches":
        """Return batches of these tasks."""
        truth = office_truth(items, max(len(item.crew) for item in items))
        nothing = draw_notes(truth, np.zeros(truth.prices.shape, np.int64), np.random.default_rng(0))
        return cls(truth, true_input(items, truth, nothing))

    def draw(self, tasks: int, rng: np.random.Generator) -> tuple[PointerInput, "OfficePerform"]:
        """Return inputs for so many tasks, and what performs choices for them."""
        rows = rng.integers(0, len(self.given.value), tasks)
        truth = _take(self.truth, rows)
        given = with_notes(_take(self.given, rows), truth, draw_outcome_counts(truth.prices.shape, rng), rng)

        def perform(choices: PointerChoices, luck: np.random.Generator, *, shared: bool) -> PointerOutcomes:
            count, samples, parts = choices.mode.shape
            return perform_choices(truth, choices, draw_luck((count, 1 if shared else samples, parts), luck))

        return _misread(given, self.misread, rng), perform


def with_notes(given: PointerInput, truth: OfficeTruth, outcomes: Ints, rng: np.random.Generator) -> PointerInput:
    """Return the input with what so many outcomes a worker [B, W] say."""
    tries, right, told_tries, told_right = draw_notes(truth, outcomes * given.workers, rng)
    return replace(given, tries=tries, right=right, told_tries=told_tries, told_right=told_right)


def _take(record: Record, rows: Ints) -> Record:
    return type(record)(**{field.name: getattr(record, field.name)[rows] for field in fields(record)})


def _misread(given: PointerInput, share: float, rng: np.random.Generator) -> PointerInput:
    """Read some kinds as others, and some claims as none or too many: nobody reads without mistakes."""
    kinds = given.kinds.shape[-1]
    softened = _soften(given.kinds, rng)
    wrong = rng.random(given.parts.shape) < share
    other = np.eye(kinds, dtype=np.float32)[rng.integers(0, kinds, given.parts.shape)]
    claims: Floats32 = np.abs(given.claims - (rng.random(given.claims.shape) < share))
    return replace(
        given,
        kinds=(np.where(wrong[..., None], other, softened) * given.parts[..., None]).astype(np.float32),
        claims=(claims * given.workers[..., None]).astype(np.float32),
    )


def _soften(kinds: Floats32, rng: np.random.Generator) -> Floats32:
    """Return shares that are less than sure, as a reader's are."""
    doubt = rng.random((*kinds.shape[:2], 1)) ** 3 * 0.5
    spread = rng.dirichlet(np.full(kinds.shape[-1], 0.3), kinds.shape[:2])
    softened: Floats32 = (kinds * (1 - doubt) + spread * doubt).astype(np.float32)
    return softened
