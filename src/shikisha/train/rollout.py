"""Sampling completions, a group for each prompt, and their log-probabilities once more with gradients.

Invariants: tokens and log-probabilities that training uses come from here, text is never tokenised again; the same
generator state gives the same samples; a sampled end is part of the completion, what comes after it is padding with
log-probability 0. Deliberately absent: serving (one plan at a time), beams, penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from shikisha.errors import Diverged
from shikisha.train.shared import Prefix, Suffix, follow, read, step

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

PAD, END = 0, 1
_ROWS = 32  # completions of like length that are run over together: more of them take longer each, for their padding


@dataclass(frozen=True, slots=True)
class Sampled:
    """Completions of a batch of prompts: `tokens` [B, G, C], `real` (not padding) and `logprobs` of the same shape."""

    tokens: Tensor
    real: Tensor
    logprobs: Tensor

    def rows(self) -> list[list[list[int]]]:
        """Return each completion's tokens, without its end and padding, by prompt."""
        kept = zip(self.tokens.tolist(), self.real.sum(-1).tolist(), strict=True)
        return [
            [[token for token in row[:count] if token != END] for row, count in zip(rows, counts, strict=True)]
            for rows, counts in kept
        ]


@torch.no_grad()
def sample(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    group: int,
    longest: int,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
) -> Sampled:
    """Sample `group` completions of at most `longest` tokens for each prompt; temperature 0 takes the likeliest."""
    prefix = read(model, prompts)
    suffix = Suffix.empty(model, (len(prompts), group), longest)
    last = torch.tensor([prompt[-1] for prompt in prompts])[:, None].expand(-1, group)
    done = torch.zeros(len(prompts), group, dtype=torch.bool)
    tokens: list[Tensor] = []
    logprobs: list[Tensor] = []
    for _ in range(longest):
        spread = torch.log_softmax(step(model, prefix, suffix, last) / (temperature or 1.0), dim=-1)
        last = _chosen(spread, generator if temperature else None, bool(temperature)).masked_fill(done, PAD)
        tokens.append(last)
        logprobs.append(spread.gather(-1, last[..., None])[..., 0].masked_fill(done, 0.0))
        done = done | (last == END)
        if bool(done.all()):
            break
    found = torch.stack(tokens, dim=-1)
    return Sampled(found, _until_end(found), torch.stack(logprobs, dim=-1))


def scores(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    temperature: float = 1.0,
    real: Tensor | None = None,
) -> Tensor:
    """Return the log-probabilities [B, G, C, V] of every token at every place of completions [B, G, C].

    `temperature` is the one that they were sampled at. What is not `real` [B, G, C] is not run over, and 0.
    """
    count = tokens.shape[-1]
    lengths = torch.full(tokens.shape[:2], count) if real is None else real.sum(-1).long()
    order = lengths.flatten().argsort(stable=True)
    owner, place = order // tokens.shape[1], order % tokens.shape[1]
    prefix: Prefix = read(model, prompts)
    last = torch.tensor([prompt[-1] for prompt in prompts])
    found: list[Tensor] = []
    for first in range(0, len(owner), _ROWS):
        own, its = owner[first : first + _ROWS], place[first : first + _ROWS]
        longest = max(1, int(lengths[own, its].max()))
        given = torch.cat([last[own, None], tokens[own, its, : longest - 1]], dim=-1)
        logits = follow(model, prefix.of(own), given[:, None])[:, 0]
        spread = torch.log_softmax(logits / temperature, dim=-1)
        inside = torch.arange(longest) < lengths[own, its, None]
        found.append(F.pad(spread * inside[..., None], (0, 0, 0, count - longest)))
    return torch.cat(found).index_select(0, order.argsort()).view(*tokens.shape, -1)


def _chosen(spread: Tensor, generator: torch.Generator | None, by_lot: bool) -> Tensor:
    if not by_lot:
        return spread.argmax(dim=-1)
    flat = spread.exp().flatten(0, 1)
    if bool(flat.isnan().any()):
        raise Diverged("the model's next token has probabilities that are no numbers")
    return torch.multinomial(flat, 1, generator=generator).view(spread.shape[:2])


def _until_end(tokens: Tensor) -> Tensor:
    ended = (tokens == END).long()
    return (ended.cumsum(-1) - ended) == 0
