"""Lessons in reading that go on beside reinforcement, so that what its tasks do not ask for is not forgotten.

Reinforcement moves weights for the pools that its tasks bring; how longer pools are read fades meanwhile (what a
conductor thinks of eight workers was right in .76 of prompts before, and in .34 after). These lessons end with the
thought: they say what stands in the prompt and nothing about plans. Invariant: step `n` sees the same lessons, whatever
came before. Deliberately absent: lessons in writing plans, which would speak for plans by lot.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from shikisha.errors import ConfigError
from shikisha.train.settings import ReplayTable, TrainSettings
from shikisha.train.slates import Lessons, row_of
from shikisha.train.warm import mean_loss, padded

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

    from shikisha.train.ground import Ground


def replay_of(settings: TrainSettings, ground: "Ground", tokenizer: "Tokenizer") -> "Replay | None":
    """Return a run's lessons beside reinforcement; None without any, ConfigError where there are none to be had."""
    table, school = settings.replay, ground.school
    if not table.lessons:
        return None
    if school is None:
        raise ConfigError(
            f"replay.lessons: there are no lessons for {ground.origin.taskset}: expected 0, found {table.lessons}"
        )
    return Replay(school.readings, tokenizer, table)


class Replay:
    """Lessons by step, and what they weigh; `last` is the mean loss (nats a token) of the last step's."""

    def __init__(self, lessons: Lessons, tokenizer: "Tokenizer", table: ReplayTable) -> None:
        self._lessons, self._tokenizer, self._table = lessons, tokenizer, table
        self.last = 0.0

    def loss(self, model: "Qwen2ForCausalLM", step: int) -> Tensor:
        """Return the mean loss of a step's lessons, times what it weighs."""
        count = self._table.lessons
        rows = [row_of(self._lessons(step * count + place, 1.0), self._tokenizer) for place in range(count)]
        tokens, labels = (each.to(model.device) for each in padded(rows))
        found = mean_loss(model, tokens, labels)
        self.last = float(found.detach())
        return self._table.weight * found
