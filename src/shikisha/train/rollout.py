"""Sampling completions, a group for each prompt, and their log-probabilities once more with gradients.

Equal beginnings go through the model once, here and there. Invariants: tokens and log-probabilities that training uses
come from here, text is never tokenised again; the same generator state gives the same samples, and draws are taken from
it in advance, as many as there could be; a sampled end is part of the completion, what comes after it is padding with
log-probability 0. Deliberately absent: serving (one plan at a time), beams, penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shikisha.errors import Diverged
from shikisha.train.branches import Branches
from shikisha.train.explore import Explore
from shikisha.train.shared import Reader, read
from shikisha.train.tree import Tree, grown

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

PAD, END = 0, 1
_PROMPTS = 4  # whose completions are one tree: of more, what a layer leaves is too much for a processor's caches


@dataclass(frozen=True, slots=True)
class Drawing:
    """How tokens are drawn: temperature 0 takes the likeliest; `end` is the token that ends a completion.

    `explore` says who draws otherwise, and has no say in log-probabilities.
    """

    temperature: float = 1.0
    end: int = END
    explore: Explore | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """Completions of a batch of prompts: `tokens` [B, G, C], `real` (not padding) and `logprobs` of the same shape.

    They are in the processor's memory, wherever the model is.
    """

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


def sample(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    group: int,
    longest: int,
    generator: torch.Generator | None = None,
    drawing: Drawing = Drawing(),
) -> Sampled:
    """Sample `group` completions of at most `longest` tokens for each prompt."""
    shape = (longest, len(prompts) * group)
    lots = torch.rand(shape, dtype=torch.float64, generator=generator) if drawing.temperature else None
    on = model.device
    tokens, logprobs = torch.full(shape, PAD, device=on), torch.zeros(shape, device=on)
    with torch.inference_mode():
        branches = Branches(Reader.of(model), prompts, group, longest)
        used = _write(branches, (tokens, logprobs), None if lots is None else lots.to(on), drawing)
    found, likely = (each[:used].t().reshape(len(prompts), group, used).cpu() for each in (tokens, logprobs))
    return Sampled(found, _until_end(found, drawing.end), likely)


@dataclass(frozen=True, slots=True)
class Planted:
    """Completions [B, G, C] after their prompts as trees, one for a few prompts: each different beginning once.

    `after` are the nodes of each tree after which a token was drawn, N in all; `where` [B, G, C] says which of these it
    was for each token.
    """

    trees: tuple[Tree, ...]
    after: tuple[Tensor, ...]
    tokens: Tensor
    real: Tensor
    where: Tensor

    def to(self, device: torch.device) -> "Planted":
        """Return them on a device: where the model is that is to read them."""
        return Planted(
            tuple(each.to(device) for each in self.trees),
            tuple(each.to(device) for each in self.after),
            *(each.to(device) for each in (self.tokens, self.real, self.where)),
        )

    def scores(self, model: "Qwen2ForCausalLM", temperature: float = 1.0) -> Tensor:
        """Return the log-probabilities [N, V] of every token after each of the beginnings."""
        reader = Reader.of(model)
        states = (
            read(reader, tree).states.index_select(0, after) for tree, after in zip(self.trees, self.after, strict=True)
        )
        return torch.cat([torch.log_softmax(reader.logits(state) / temperature, dim=-1) for state in states])

    def each(self, values: Tensor) -> Tensor:
        """Return values [N, ...] of beginnings for every token [B, G, C, ...]; 0 where there is none."""
        found = values.index_select(0, self.where.flatten()).view(*self.where.shape, *values.shape[1:])
        return found * self.real.to(found.dtype).view(*self.real.shape, *[1] * (values.dim() - 1))

    def once(self, values: Tensor) -> Tensor:
        """Return values [B, G, C, ...] that tokens of equal beginnings share for each of these [N, ...]."""
        places = torch.arange(self.where.numel(), device=self.where.device).view(self.where.shape)[self.real > 0]
        first = places.new_zeros(sum(map(len, self.after))).scatter_(0, self.where[self.real > 0], places)
        return values.flatten(0, 2).index_select(0, first)

    def chosen(self, spread: Tensor) -> Tensor:
        """Return the log-probability [B, G, C] of each token, given those of all [N, V]; 0 where there is none."""
        place = (self.where * spread.shape[-1] + self.tokens).flatten()
        return spread.flatten().index_select(0, place).view(self.where.shape) * self.real


def planted(prompts: Sequence[Sequence[int]], tokens: Tensor, real: Tensor | None = None) -> Planted:
    """Return completions [B, G, C] after their prompts, as far as they are `real` [B, G, C], as trees."""
    real = torch.ones(tokens.shape) if real is None else real
    lengths, written = real.sum(-1).long().tolist(), tokens.tolist()
    where = torch.zeros(tokens.shape, dtype=torch.long)
    trees: list[Tree] = []
    after: list[Tensor] = []
    for first in range(0, len(prompts), _PROMPTS):
        some = range(first, min(first + _PROMPTS, len(prompts)))
        rows = [(number, place, count) for number in some for place, count in enumerate(lengths[number]) if count]
        tree, nodes = grown([[*prompts[number], *written[number][place][: count - 1]] for number, place, count in rows])
        drawn = sorted({node for (_, _, count), each in zip(rows, nodes, strict=True) for node in each[-count:]})
        numbers = {node: number for number, node in enumerate(drawn, start=sum(map(len, after)))}
        for (number, place, count), each in zip(rows, nodes, strict=True):
            where[number, place, :count] = torch.tensor([numbers[node] for node in each[-count:]])
        trees.append(tree)
        after.append(torch.tensor(drawn, dtype=torch.long))
    return Planted(tuple(trees), tuple(after), tokens, real, where)


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
    ones = planted(prompts, tokens, real).to(model.device)
    return ones.each(ones.scores(model, temperature))


def _write(branches: Branches, written: tuple[Tensor, Tensor], lots: Tensor | None, drawing: Drawing) -> int:
    """Fill in tokens and their log-probabilities [T, B * G] until all have ended; return after how many that was."""
    tokens, logprobs = written
    longest, count = tokens.shape
    on = torch.arange(count, device=tokens.device)
    group = count // branches.count
    whose = on // group
    for place in range(longest):
        spread = torch.log_softmax(branches.read() / (drawing.temperature or 1.0), dim=-1)
        drawn = spread.argmax(dim=-1)[whose] if lots is None else _drawn(spread, whose, lots[place, on])
        if drawing.explore is not None and lots is not None:
            odds = spread[:, list(drawing.explore.tokens)].exp().sum(-1)[whose]
            drawn = drawing.explore.instead(drawn, odds, on, group, lots[place, on])
        tokens[place, on], logprobs[place, on] = drawn, spread[whose, drawn]
        going = drawn != drawing.end
        on = on[going]
        if not len(on):
            return place + 1
        whose = branches.grow(whose[going], drawn[going], spread.shape[-1])
    return longest


def _drawn(spread: Tensor, whose: Tensor, lots: Tensor) -> Tensor:
    """Return a token for each lot in [0, 1), from the row `whose` [M] of log-probabilities [R, V]."""
    edges = spread.double().exp().cumsum(-1)
    if not bool(torch.isfinite(edges[:, -1]).all()):
        raise Diverged("the model's next token has probabilities that are no numbers")
    count = spread.shape[-1]
    ladder = (edges / edges[:, -1:] + torch.arange(len(edges), device=edges.device)[:, None]).flatten()
    found = torch.searchsorted(ladder, lots + whose, right=True) - whose * count
    return found.clamp(0, count - 1)


def _until_end(tokens: Tensor, end: int) -> Tensor:
    ended = (tokens == end).long()
    return (ended.cumsum(-1) - ended) == 0
