"""The warm start: a model from scratch reads lessons, so that it knows the language and the format, not the routing.

Only what a lesson teaches has a loss. Batches are made of lessons of like length (`slates`). Invariant: step `n` sees
the same lessons in the same batches whatever came before, so a resumed warm start is the unbroken one. Deliberately
absent: what the lessons are (`orchestra.lessons`), and pretrained models, for which the examples in the prompt do.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shikisha.errors import Diverged
from shikisha.train.rollout import PAD
from shikisha.train.settings import WarmTable
from shikisha.train.slates import CHUNK, Chunks, Row

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

_RISING = 100  # steps of warm-up
_LEFT = 0.02  # of the rate at the end
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class WarmStep:
    """What a step came to: mean loss of the taught tokens (nats), learning rate, seconds."""

    number: int
    of: int
    loss: float
    rate: float
    seconds: float


def warm_up(
    model: "Qwen2ForCausalLM",
    optimizer: torch.optim.Optimizer,
    chunks: Chunks,
    table: WarmTable,
    first: int = 0,
) -> Iterator[WarmStep]:
    """Take the steps from `first` on; Diverged where the loss is no number, before a weight is touched.

    On a GPU products are of 16-bit numbers (bfloat16), and weights and averages of 32.
    """
    batches = Batches(chunks, table)
    model.train()
    for number in range(first, table.steps):
        begun = perf_counter()
        rate = rate_at(number, table)
        for options in optimizer.param_groups:
            options["lr"] = rate
        tokens, labels = (each.to(model.device) for each in batches.at(number))
        loss = mean_loss(model, tokens, labels)
        if not bool(torch.isfinite(loss)):
            raise Diverged(
                f"warm start, step {number}: the loss is {float(loss.detach())}; the weights are of the step before"
            )
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield WarmStep(number + 1, table.steps, float(loss.detach()), rate, perf_counter() - begun)
    model.train(mode=False)


def mean_loss(model: "Qwen2ForCausalLM", tokens: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of what is taught (nats a token), of tokens and labels [B, T].

    Padding follows what is read (`padded`), so nothing looks at it; a mask would keep torch from its faster attention.
    """
    with torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda"):
        logits = model(input_ids=tokens).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def optimizer_of(model: "Qwen2ForCausalLM", table: WarmTable) -> torch.optim.Optimizer:
    """Return the optimizer of a warm start."""
    return torch.optim.AdamW(model.parameters(), lr=table.rate, betas=(0.9, 0.98), weight_decay=0.01)


def rate_at(step: int, table: WarmTable) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine down to a fiftieth."""
    falling = 0.5 * (1 + cos(pi * step / max(1, table.steps)))
    return table.rate * min(1.0, (step + 1) / _RISING) * (_LEFT + (1 - _LEFT) * falling)


class Batches:
    """The tokens and labels [B, T] of each step; labels of what is not taught are ignored."""

    def __init__(self, chunks: Chunks, table: WarmTable) -> None:
        self._chunks, self._table = chunks, table
        self._chunk = -1
        self._rows: Sequence[Row] = []

    def at(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the batch of this step."""
        chunk, size = number // CHUNK, self._table.batch
        if chunk != self._chunk:
            self._chunk, self._rows = chunk, self._chunks(chunk)
        order = list(range(CHUNK))
        random.Random(chunk).shuffle(order)  # noqa: S311 - an order of batches, no secret
        place = order[number % CHUNK]
        return padded(self._rows[place * size : (place + 1) * size])


def padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return rows as tokens and labels [B, T]; what is not taught has no label."""
    longest = max(len(row) for row, _ in rows)
    tokens = torch.full((len(rows), longest), PAD, dtype=torch.long)
    labels = torch.full_like(tokens, _IGNORED)
    for place, (row, given) in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
        labels[place, given : len(row)] = torch.tensor(row[given:])
    return tokens, labels
