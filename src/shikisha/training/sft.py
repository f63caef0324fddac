"""The warm start: a model from scratch reads lessons, so that it knows the language and the format, not the routing.

Only what a lesson teaches has a loss. Batches are made of lessons of like length (`slates`). Invariant: step `n` sees
the same lessons in the same batches whatever came before, so a resumed warm start is the unbroken one. Deliberately
absent: what the lessons are (`orchestra.lessons`), and pretrained models, for which the examples in the prompt do.

Lessons in reading that go on beside reinforcement, so that what its tasks do not ask for is not forgotten.

Reinforcement moves weights for the pools that its tasks bring; how longer pools are read fades meanwhile (what a
conductor thinks of eight workers was right in .76 of prompts before, and in .34 after). These lessons end with the
thought: they say what stands in the prompt and nothing about plans. Copies show a thought about such a pool and a list
up to an ordinal, and teach that one alone: ordinals that no pool of the tasks has would otherwise be unlearned.
Invariant: step `n` sees the same lessons, whatever came before. Deliberately absent: lessons in writing plans, which
would speak for plans by lot.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.training.rollout import PAD_ID
from shikisha.training.settings import TrainSettings, WarmTable
from shikisha.training.sft_data import BATCHES_PER_CHUNK, ChunkSource, SFTExamples, TokenRow, tokenize_example

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

_WARMUP_STEPS = 100  # steps of warm-up
_FINAL_RATE_SHARE = 0.02  # of the rate at the end
_IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True)
class SFTStep:
    """What a step came to: mean loss of the taught tokens (nats), learning rate, seconds."""

    number: int
    of: int
    loss: float
    rate: float
    seconds: float


def train_sft(
    model: "Qwen2ForCausalLM",
    optimizer: torch.optim.Optimizer,
    chunks: ChunkSource,
    table: WarmTable,
    first: int = 0,
) -> Iterator[SFTStep]:
    """Take the steps from `first` on; Diverged where the loss is no number, before a weight is touched.

    On a GPU products are of 16-bit numbers (bfloat16), and weights and averages of 32.
    """
    batches = SFTBatches(chunks, table)
    model.train()
    for number in range(first, table.steps):
        begun = perf_counter()
        rate = sft_learning_rate(number, table)
        for options in optimizer.param_groups:
            options["lr"] = rate
        tokens, labels = (each.to(model.device) for each in batches.at(number))
        loss = sft_loss(model, tokens, labels)
        if not bool(torch.isfinite(loss)):
            raise TrainingDiverged(
                f"warm start, step {number}: the loss is {float(loss.detach())}; the weights are of the step before"
            )
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield SFTStep(number + 1, table.steps, float(loss.detach()), rate, perf_counter() - begun)
    model.train(mode=False)


def sft_loss(model: "Qwen2ForCausalLM", tokens: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of what is taught (nats a token), of tokens and labels [B, T].

    Padding follows what is read (`padded`), so nothing looks at it; a mask would keep torch from its faster attention.
    """
    with torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda"):
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def sft_optimizer(model: "Qwen2ForCausalLM", table: WarmTable) -> torch.optim.Optimizer:
    """Return the optimizer of a warm start."""
    return torch.optim.AdamW(model.parameters(), lr=table.rate, betas=(0.9, 0.98), weight_decay=0.01)


def sft_learning_rate(step: int, table: WarmTable) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine down to a fiftieth."""
    falling = 0.5 * (1 + cos(pi * step / max(1, table.steps)))
    return table.rate * min(1.0, (step + 1) / _WARMUP_STEPS) * (_FINAL_RATE_SHARE + (1 - _FINAL_RATE_SHARE) * falling)


class SFTBatches:
    """The tokens and labels [B, T] of each step; labels of what is not taught are ignored."""

    def __init__(self, chunks: ChunkSource, table: WarmTable) -> None:
        self._chunks, self._table = chunks, table
        self._chunk = -1
        self._rows: Sequence[TokenRow] = []

    def at(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the batch of this step."""
        chunk, size = number // BATCHES_PER_CHUNK, self._table.batch
        if chunk != self._chunk:
            self._chunk, self._rows = chunk, self._chunks(chunk)
        order = list(range(BATCHES_PER_CHUNK))
        random.Random(chunk).shuffle(order)  # noqa: S311 - an order of batches, no secret
        place = order[number % BATCHES_PER_CHUNK]
        return pad_rows(self._rows[place * size : (place + 1) * size])


def pad_rows(rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor]:
    """Return rows as tokens and labels [B, T]; what is not taught has no label."""
    longest = max(len(row) for row, _ in rows)
    tokens = torch.full((len(rows), longest), PAD_ID, dtype=torch.long)
    labels = torch.full_like(tokens, _IGNORED_LABEL)
    for place, (row, given) in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
        labels[place, given : len(row)] = torch.tensor(row[given:])
    return tokens, labels


if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

    from shikisha.training.environment import TrainingEnvironment


def make_auxiliary_sft(
    settings: TrainSettings, ground: "TrainingEnvironment", tokenizer: "Tokenizer"
) -> "AuxiliarySFT | None":
    """Return a run's lessons beside reinforcement; None without any, ConfigError where there are none to be had."""
    table, school = settings.replay, ground.sft_source
    for key, count in (("lessons", table.lessons), ("copies", table.copies)):
        if count and school is None:
            told = f"there are no lessons for {ground.origin.taskset}: expected 0, found {count}"
            raise ConfigError(f"replay.{key}: {told}")
    if school is None or not table.lessons + table.copies:
        return None
    return AuxiliarySFT(
        ((school.reading_examples, table.lessons), (school.copy_examples, table.copies)), tokenizer, table.weight
    )


class AuxiliarySFT:
    """Lessons by step, and what they weigh; `last` is the mean loss (nats a token) of the last step's."""

    def __init__(self, lessons: Sequence[tuple[SFTExamples, int]], tokenizer: "Tokenizer", weight: float) -> None:
        self._lessons, self._tokenizer, self._weight = lessons, tokenizer, weight
        self.last = 0.0

    def loss(self, model: "Qwen2ForCausalLM", step: int) -> Tensor:
        """Return the mean loss of a step's lessons, times what it weighs."""
        drawn = [lesson(step * count + place, 1.0) for lesson, count in self._lessons for place in range(count)]
        rows = sorted((tokenize_example(one, self._tokenizer) for one in drawn), key=lambda row: len(row[0]))
        half, taught = len(rows) // 2, _taught_tokens(rows)
        parts = [part for part in (rows[:half], rows[half:]) if part]  # of like length: a quarter of all was padding
        means = [sft_loss(model, *(each.to(model.device) for each in pad_rows(part))) for part in parts]
        shares = [_taught_tokens(part) / taught for part in parts]
        found = torch.stack([mean * share for mean, share in zip(means, shares, strict=True)]).sum()
        self.last = float(found.detach())
        return self._weight * found


def _taught_tokens(rows: Sequence[TokenRow]) -> int:
    return sum(len(row) - given for row, given in rows)
