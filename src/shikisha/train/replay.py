"""Lessons in reading that go on beside reinforcement, so that what its tasks do not ask for is not forgotten.

Reinforcement moves weights for the pools that its tasks bring; how longer pools are read fades meanwhile (what a
conductor thinks of eight workers was right in .76 of prompts before, and in .34 after). These lessons end with the
thought: they say what stands in the prompt and nothing about plans. Copies show a thought about such a pool and a list
up to an ordinal, and teach that one alone: ordinals that no pool of the tasks has would otherwise be unlearned.
Invariant: step `n` sees the same lessons, whatever came before. Deliberately absent: lessons in writing plans, which
would speak for plans by lot.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shikisha.errors import ConfigError
from shikisha.train.settings import TrainSettings
from shikisha.train.slates import Lessons, Row, row_of
from shikisha.train.warm import mean_loss, padded

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

    from shikisha.train.ground import Ground


def replay_of(settings: TrainSettings, ground: "Ground", tokenizer: "Tokenizer") -> "Replay | None":
    """Return a run's lessons beside reinforcement; None without any, ConfigError where there are none to be had."""
    table, school = settings.replay, ground.school
    for key, count in (("lessons", table.lessons), ("copies", table.copies)):
        if count and school is None:
            told = f"there are no lessons for {ground.origin.taskset}: expected 0, found {count}"
            raise ConfigError(f"replay.{key}: {told}")
    if school is None or not table.lessons + table.copies:
        return None
    return Replay(((school.readings, table.lessons), (school.copies, table.copies)), tokenizer, table.weight)


class Replay:
    """Lessons by step, and what they weigh; `last` is the mean loss (nats a token) of the last step's."""

    def __init__(self, lessons: Sequence[tuple[Lessons, int]], tokenizer: "Tokenizer", weight: float) -> None:
        self._lessons, self._tokenizer, self._weight = lessons, tokenizer, weight
        self.last = 0.0

    def loss(self, model: "Qwen2ForCausalLM", step: int) -> Tensor:
        """Return the mean loss of a step's lessons, times what it weighs."""
        drawn = [lesson(step * count + place, 1.0) for lesson, count in self._lessons for place in range(count)]
        rows = sorted((row_of(one, self._tokenizer) for one in drawn), key=lambda row: len(row[0]))
        half, taught = len(rows) // 2, _taught(rows)
        parts = [part for part in (rows[:half], rows[half:]) if part]  # of like length: a quarter of all was padding
        means = [mean_loss(model, *(each.to(model.device) for each in padded(part))) for part in parts]
        shares = [_taught(part) / taught for part in parts]
        found = torch.stack([mean * share for mean, share in zip(means, shares, strict=True)]).sum()
        self.last = float(found.detach())
        return self._weight * found


def _taught(rows: Sequence[Row]) -> int:
    return sum(len(row) - given for row, given in rows)
