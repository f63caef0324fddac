"""Supervised fine-tuning (SFT): a model from scratch learns to read and to write plans before GRPO, and next to it.

Before GRPO (`train_sft`) examples teach the language and the format, not the routing. Next to GRPO (`AuxiliarySFT`)
they keep what its tasks do not ask for: without them, the share of prompts in which a conductor judged eight workers
right fell from .76 to .34. Auxiliary examples end with the reasoning, or teach one ordinal after it: examples of whole
plans would teach random plans.

Invariant: step n sees the same examples in the same batches whatever came before, so a resumed run is the unbroken one.
Deliberately absent: the examples (`simulation`), and pretrained models, for which the examples in the prompt do.
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
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

    from shikisha.training.environment import TrainingEnvironment

_WARMUP_STEPS = 100
_FINAL_RATE_SHARE = 0.02  # of the rate at the end
_IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True)
class SFTStep:
    """A step's figures: mean loss of the taught tokens (nats), learning rate, seconds."""

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
    """Take the steps from `first` on; TrainingDiverged, before any weight changes, where the loss is not finite.

    On a GPU products are in bfloat16, weights and averages in float32.
    """
    batches = SFTBatches(chunks, table)
    model.train()
    for number in range(first, table.steps):
        started = perf_counter()
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
        yield SFTStep(number + 1, table.steps, float(loss.detach()), rate, perf_counter() - started)
    model.train(mode=False)


def sft_loss(model: "Qwen2ForCausalLM", tokens: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss (nats a token) of the labels that are taught, of tokens and labels [B, T].

    Padding is on the right, so no token attends to it; a mask would keep torch from its faster attention.
    """
    with torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda"):
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def sft_optimizer(model: "Qwen2ForCausalLM", table: WarmTable) -> torch.optim.Optimizer:
    """Return AdamW with the betas of a short training from scratch."""
    return torch.optim.AdamW(model.parameters(), lr=table.rate, betas=(0.9, 0.98), weight_decay=0.01)


def sft_learning_rate(step: int, table: WarmTable) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine down to a fiftieth."""
    cosine = 0.5 * (1 + cos(pi * step / max(1, table.steps)))
    return table.rate * min(1.0, (step + 1) / _WARMUP_STEPS) * (_FINAL_RATE_SHARE + (1 - _FINAL_RATE_SHARE) * cosine)


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


def make_auxiliary_sft(
    settings: TrainSettings, environment: "TrainingEnvironment", tokenizer: "Tokenizer"
) -> "AuxiliarySFT | None":
    """Return a run's auxiliary SFT; None without any, ConfigError where its tasks have no SFT examples."""
    table, source = settings.replay, environment.sft_source
    for key, count in (("lessons", table.lessons), ("copies", table.copies)):
        if count and source is None:
            raise ConfigError(
                f"replay.{key}: there are no SFT examples for {environment.origin.taskset}: expected 0, found {count}"
            )
    if source is None or not table.lessons + table.copies:
        return None
    kinds = ((source.reading_examples, table.lessons), (source.copy_examples, table.copies))
    return AuxiliarySFT(kinds, tokenizer, table.weight)


class AuxiliarySFT:
    """Examples by step, and their weight in the loss; `last` is the last step's mean loss (nats a token)."""

    def __init__(self, examples: Sequence[tuple[SFTExamples, int]], tokenizer: "Tokenizer", weight: float) -> None:
        self._examples, self._tokenizer, self._weight = examples, tokenizer, weight
        self.last = 0.0

    def loss(self, model: "Qwen2ForCausalLM", step: int) -> Tensor:
        """Return the mean loss of a step's examples, times its weight."""
        drawn = [example(step * count + place, 1.0) for example, count in self._examples for place in range(count)]
        rows = sorted((tokenize_example(one, self._tokenizer) for one in drawn), key=lambda row: len(row[0]))
        half, taught = len(rows) // 2, _taught_tokens(rows)
        # Of similar length: padding was a quarter of all.
        parts = [part for part in (rows[:half], rows[half:]) if part]
        means = [sft_loss(model, *(each.to(model.device) for each in pad_rows(part))) for part in parts]
        shares = [_taught_tokens(part) / taught for part in parts]
        loss = torch.stack([mean * share for mean, share in zip(means, shares, strict=True)]).sum()
        self.last = float(loss.detach())
        return self._weight * loss


def _taught_tokens(rows: Sequence[TokenRow]) -> int:
    return sum(len(row) - given for row, given in rows)
