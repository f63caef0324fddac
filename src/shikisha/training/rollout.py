"""Sampling completions, a group for each prompt, and their log-probabilities once more with gradients.

Equal beginnings go through the model once, here and there. Invariants: tokens and log-probabilities that training uses
come from here, text is never tokenised again; the same generator state gives the same samples, and draws are taken from
it in advance, as many as there could be; a sampled end is part of the completion, what comes after it is padding with
log-probability 0. Deliberately absent: serving (one plan at a time), beams, penalties.

Scouts: completions that choose what a policy has all but stopped choosing, to find out what it is worth by now.

A form of plan that loses while its steps cannot be written yet is not sampled any more when they can, and what is not
sampled is not learned. So the last few completions of each group are scouts: where one of some tokens is chosen (those
that begin with the same words hold more than half of what comes next) they draw it evenly. What a scout found counts if
it is better than what the group's others came to, and is nobody's loss otherwise: the policy would not have written it.
Invariants: others' samples are what they would be without scouts, and so are their advantages, but for what `diversity`
gives for being rare in a group; log-probabilities stay the policy's. Deliberately absent: when to scout (the phases say
that), and rewards for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.training.advantage_variants import NEGLIGIBLE, AdvantageSettings, Floats, Ints
from shikisha.training.decoder import BatchDecoder
from shikisha.training.qwen2 import PrefixTree, Qwen2Forward, build_prefix_tree, forward_tree
from shikisha.training.settings import TrainSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_CHOICE_MASS = 0.5  # of what comes next: more than this makes a place one where the choice is made


@dataclass(frozen=True, slots=True)
class Exploration:
    """Tokens of which one is chosen, and how many scouts each group ends with."""

    tokens: tuple[int, ...]
    count: int

    def override(self, drawn: Tensor, odds: Tensor, numbers: Tensor, group: int, lots: Tensor) -> Tensor:
        """Return the tokens drawn [M], by scouts evenly where they choose.

        `odds` [M] is what the choice's tokens hold of what comes next; `numbers` [M] count completions, which come in
        groups of this size; `lots` [M] are in [0, 1).
        """
        here = (odds > _CHOICE_MASS) & (numbers % group >= group - self.count)
        choice = torch.tensor(self.tokens, device=drawn.device)
        return torch.where(here, choice[(lots * len(choice)).long()], drawn)


def exploration_at(settings: TrainSettings, tokenizer: "Tokenizer", step: int) -> Exploration | None:
    """Return who scouts in this step, and what; None: nobody."""
    scouts = settings.exploration_count_at(step)
    return Exploration(choice_tokens(settings, tokenizer), scouts) if scouts else None


def choice_tokens(settings: TrainSettings, tokenizer: "Tokenizer") -> tuple[int, ...]:
    """Return the tokens of which one is chosen; ConfigError where fewer than two begin with the settings' words."""
    words = settings.grpo.choice
    tokens = sorted(number for token, number in tokenizer.get_vocab().items() if words and token.startswith(words))
    if len(tokens) < 2:
        raise ConfigError(f"grpo.choice: expected what two tokens or more begin with, found {words!r}")
    return tuple(tokens)


def exploration_advantages(
    rewards: Floats, groups: Ints, scouts: "NDArray[np.bool_]", how: AdvantageSettings
) -> Floats:
    """Return [N] scouts' advantages: by how many deviations of their group they beat the others' mean, else 0."""
    found: Floats = np.zeros(len(rewards))
    for name in np.unique(groups[scouts]):
        group = (groups == name) & ~np.isnan(rewards)
        rows, others = np.flatnonzero(group & scouts), rewards[group & ~scouts]
        if len(rows) and len(others):
            spread = max(float(rewards[group].std()), how.min_std) if how.scale_by_std else 1.0
            gain = (rewards[rows] - others.mean()) / spread if spread else np.zeros(len(rows))
            found[rows] = np.where(gain >= NEGLIGIBLE, gain, 0.0)
    return found


if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

PAD_ID, END_ID = 0, 1
_PROMPTS_PER_TREE = (
    4  # whose completions are one tree: of more, what a layer leaves is too much for a processor's caches
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn: temperature 0 takes the likeliest; `end` is the token that ends a completion.

    `explore` says who draws otherwise, and has no say in log-probabilities.
    """

    temperature: float = 1.0
    end_id: int = END_ID
    explore: Exploration | None = None


@dataclass(frozen=True, slots=True)
class Completions:
    """Completions of a batch of prompts: `tokens` [B, G, C], `real` (not padding) and `logprobs` of the same shape.

    They are in the processor's memory, wherever the model is.
    """

    tokens: Tensor
    mask: Tensor
    logprobs: Tensor

    def rows(self) -> list[list[list[int]]]:
        """Return each completion's tokens, without its end and padding, by prompt."""
        kept = zip(self.tokens.tolist(), self.mask.sum(-1).tolist(), strict=True)
        return [
            [[token for token in row[:count] if token != END_ID] for row, count in zip(rows, counts, strict=True)]
            for rows, counts in kept
        ]


def sample(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    group: int,
    longest: int,
    generator: torch.Generator | None = None,
    drawing: SamplingParams = SamplingParams(),
) -> Completions:
    """Sample `group` completions of at most `longest` tokens for each prompt."""
    shape = (longest, len(prompts) * group)
    lots = torch.rand(shape, dtype=torch.float64, generator=generator) if drawing.temperature else None
    on = model.device
    tokens, logprobs = torch.full(shape, PAD_ID, device=on), torch.zeros(shape, device=on)
    with torch.inference_mode():
        branches = BatchDecoder(Qwen2Forward.of(model), prompts, group, longest)
        used = _decode(branches, (tokens, logprobs), None if lots is None else lots.to(on), drawing)
    found, likely = (each[:used].t().reshape(len(prompts), group, used).cpu() for each in (tokens, logprobs))
    return Completions(found, _mask_after_end(found, drawing.end_id), likely)


@dataclass(frozen=True, slots=True)
class CompletionTrees:
    """Completions [B, G, C] after their prompts as trees, one for a few prompts: each different beginning once.

    `after` are the nodes of each tree after which a token was drawn, N in all; `where` [B, G, C] says which of these it
    was for each token.
    """

    trees: tuple[PrefixTree, ...]
    predictors: tuple[Tensor, ...]
    tokens: Tensor
    mask: Tensor
    index: Tensor

    def to(self, device: torch.device) -> "CompletionTrees":
        """Return them on a device: where the model is that is to read them."""
        return CompletionTrees(
            tuple(each.to(device) for each in self.trees),
            tuple(each.to(device) for each in self.predictors),
            *(each.to(device) for each in (self.tokens, self.mask, self.index)),
        )

    def logprobs(self, model: "Qwen2ForCausalLM", temperature: float = 1.0) -> Tensor:
        """Return the log-probabilities [N, V] of every token after each of the beginnings."""
        reader = Qwen2Forward.of(model)
        states = (
            forward_tree(reader, tree).states.index_select(0, after)
            for tree, after in zip(self.trees, self.predictors, strict=True)
        )
        return torch.cat([torch.log_softmax(reader.logits(state) / temperature, dim=-1) for state in states])

    def expand(self, values: Tensor) -> Tensor:
        """Return values [N, ...] of beginnings for every token [B, G, C, ...]; 0 where there is none."""
        found = values.index_select(0, self.index.flatten()).view(*self.index.shape, *values.shape[1:])
        return found * self.mask.to(found.dtype).view(*self.mask.shape, *[1] * (values.dim() - 1))

    def collapse(self, values: Tensor) -> Tensor:
        """Return values [B, G, C, ...] that tokens of equal beginnings share for each of these [N, ...]."""
        places = torch.arange(self.index.numel(), device=self.index.device).view(self.index.shape)[self.mask > 0]
        first = places.new_zeros(sum(map(len, self.predictors))).scatter_(0, self.index[self.mask > 0], places)
        return values.flatten(0, 2).index_select(0, first)

    def token_logprobs(self, spread: Tensor) -> Tensor:
        """Return the log-probability [B, G, C] of each token, given those of all [N, V]; 0 where there is none."""
        place = (self.index * spread.shape[-1] + self.tokens).flatten()
        return spread.flatten().index_select(0, place).view(self.index.shape) * self.mask


def plant_completions(prompts: Sequence[Sequence[int]], tokens: Tensor, real: Tensor | None = None) -> CompletionTrees:
    """Return completions [B, G, C] after their prompts, as far as they are `real` [B, G, C], as trees."""
    real = torch.ones(tokens.shape) if real is None else real
    lengths, written = real.sum(-1).long().tolist(), tokens.tolist()
    where = torch.zeros(tokens.shape, dtype=torch.long)
    trees: list[PrefixTree] = []
    after: list[Tensor] = []
    for first in range(0, len(prompts), _PROMPTS_PER_TREE):
        some = range(first, min(first + _PROMPTS_PER_TREE, len(prompts)))
        rows = [(number, place, count) for number in some for place, count in enumerate(lengths[number]) if count]
        tree, nodes = build_prefix_tree(
            [[*prompts[number], *written[number][place][: count - 1]] for number, place, count in rows]
        )
        drawn = sorted({node for (_, _, count), each in zip(rows, nodes, strict=True) for node in each[-count:]})
        numbers = {node: number for number, node in enumerate(drawn, start=sum(map(len, after)))}
        for (number, place, count), each in zip(rows, nodes, strict=True):
            where[number, place, :count] = torch.tensor([numbers[node] for node in each[-count:]])
        trees.append(tree)
        after.append(torch.tensor(drawn, dtype=torch.long))
    return CompletionTrees(tuple(trees), tuple(after), tokens, real, where)


def full_logprobs(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    temperature: float = 1.0,
    real: Tensor | None = None,
) -> Tensor:
    """Return the log-probabilities [B, G, C, V] of every token at every place of completions [B, G, C].

    `temperature` is the one that they were sampled at. What is not `real` [B, G, C] is not run over, and 0.
    """
    ones = plant_completions(prompts, tokens, real).to(model.device)
    return ones.expand(ones.logprobs(model, temperature))


def _decode(
    branches: BatchDecoder, written: tuple[Tensor, Tensor], lots: Tensor | None, drawing: SamplingParams
) -> int:
    """Fill in tokens and their log-probabilities [T, B * G] until all have ended; return after how many that was."""
    tokens, logprobs = written
    longest, count = tokens.shape
    on = torch.arange(count, device=tokens.device)
    group = count // branches.count
    whose = on // group
    for place in range(longest):
        spread = torch.log_softmax(branches.read() / (drawing.temperature or 1.0), dim=-1)
        drawn = spread.argmax(dim=-1)[whose] if lots is None else _sample_tokens(spread, whose, lots[place, on])
        if drawing.explore is not None and lots is not None:
            odds = spread[:, list(drawing.explore.tokens)].exp().sum(-1)[whose]
            drawn = drawing.explore.override(drawn, odds, on, group, lots[place, on])
        tokens[place, on], logprobs[place, on] = drawn, spread[whose, drawn]
        going = drawn != drawing.end_id
        on = on[going]
        if not len(on):
            return place + 1
        whose = branches.grow(whose[going], drawn[going], spread.shape[-1])
    return longest


def _sample_tokens(spread: Tensor, whose: Tensor, lots: Tensor) -> Tensor:
    """Return a token for each lot in [0, 1), from the row `whose` [M] of log-probabilities [R, V]."""
    edges = spread.double().exp().cumsum(-1)
    if not bool(torch.isfinite(edges[:, -1]).all()):
        raise TrainingDiverged("the model's next token has probabilities that are no numbers")
    count = spread.shape[-1]
    ladder = (edges / edges[:, -1:] + torch.arange(len(edges), device=edges.device)[:, None]).flatten()
    found = torch.searchsorted(ladder, lots + whose, right=True) - whose * count
    return found.clamp(0, count - 1)


def _mask_after_end(tokens: Tensor, end: int) -> Tensor:
    ended = (tokens == end).long()
    return (ended.cumsum(-1) - ended) == 0
