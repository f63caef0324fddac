"""Rollouts: a group of completions for each question, and the log-probabilities of their tokens, again, with gradients.

Equal beginnings go through the model once, in sampling (`decoder`) as in training (`qwen2`).

The last few completions of a group may explore (`Exploration`): a shape of plan that loses while the policy cannot
write its steps yet is no longer sampled when it can, and what is not sampled is not learned. Where the choice of a
shape is made, an exploration rollout draws it evenly; log-probabilities stay the policy's.

Invariants: tokens and log-probabilities that training uses come from here, text is never tokenized again; the same
generator state gives the same samples, with or without exploration in others; a sampled end token is part of the
completion, and what follows it is padding with log-probability 0; a second round's prompt shows a first round that was
performed. Deliberately absent: serving (one plan at a time), beam search, penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shikisha.conductors.onnx_checkpoint import known_price_levels
from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.core.prompts import compact_prompt, with_nearest_prices
from shikisha.core.run import RoundResult
from shikisha.evals.taskset import TaskItem
from shikisha.training.decoder import BatchDecoder
from shikisha.training.metrics import CompletionSample
from shikisha.training.plan_reward import Floats, ScoredPlan
from shikisha.training.qwen2 import PrefixTree, Qwen2Forward, build_prefix_tree, forward_tree
from shikisha.training.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

PAD_ID, END_ID = 0, 1
# Where the choice's tokens hold more than this of the next token, a choice is made.
_CHOICE_MASS = 0.5
# With more, a layer's activations no longer fit into a processor's caches.
_PROMPTS_PER_TREE = 4


@dataclass(frozen=True, slots=True)
class PlanPrompt:
    """A question q to plan for: its item, and the rounds that the prompt shows, with the texts that planned them.

    `right` says whether the answer at hand was right (None: there is none yet).
    """

    item: TaskItem
    rounds: tuple[RoundResult, ...] = ()
    texts: tuple[str, ...] = ()
    right: bool | None = None

    @property
    def is_second(self) -> bool:
        """Whether a round was performed before."""
        return bool(self.rounds)

    def text(self, tokenizer: "Tokenizer") -> str:
        """Return the compact prompt, as a conductor with this tokenizer reads it."""
        if self.item.pool is None:
            raise ConfigError(f"task {self.item.task.id}: no pool to plan for")
        text = compact_prompt(self.item.task, self.item.pool.cards, self.rounds)
        return with_nearest_prices(text, known_price_levels(tokenizer))


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A question's completions: its `prompt` in tokens; `tokens`, `mask`, `logprobs` [G, C]; texts; their scores."""

    question: PlanPrompt
    prompt: list[int]
    tokens: Tensor
    mask: Tensor
    logprobs: Tensor
    texts: tuple[str, ...]
    scored: tuple[ScoredPlan, ...]

    @property
    def right(self) -> float:
        """The share of right answers."""
        return float(np.mean([one.right for one in self.scored]))

    def sample(self) -> CompletionSample:
        """Return one of its completions."""
        one = self.scored[0]
        return CompletionSample(self.question.item.task.prompt, self.texts[0], one.total, one.shape, one.right)


def make_groups(
    questions: Sequence[PlanPrompt],
    prompts: Sequence[list[int]],
    drawn: "Completions",
    texts: Sequence[Sequence[str]],
    scored: Sequence[Sequence[ScoredPlan]],
) -> list[RolloutGroup]:
    """Return the groups of one call of `sample`."""
    columns = (questions, prompts, drawn.tokens, drawn.mask, drawn.logprobs, texts, scored)
    return [
        RolloutGroup(question, prompt, tokens, mask, logprobs, tuple(written), tuple(found))
        for question, prompt, tokens, mask, logprobs, written, found in zip(*columns, strict=True)
    ]


def second_round_prompts(firsts: Sequence[RolloutGroup], settings: TrainSettings, step: int) -> list[PlanPrompt]:
    """Return prompts for second rounds: for a share of the tasks, after different first rounds, wrong ones and right.

    Exploration rollouts are left out: their first rounds are not the policy's.
    """
    table, exploring = settings.second, settings.exploration_count_at(step)
    count = round(table.share * len(firsts)) if step >= table.begin * settings.grpo.steps else 0
    prompts: list[PlanPrompt] = []
    for group in firsts[:count]:
        drawn = list(zip(group.texts, group.scored, strict=True))[: len(group.texts) - exploring]
        performed = {text: one for text, one in drawn if one.rounds and one.total is not None}
        ordered = sorted(performed.items(), key=lambda pair: pair[1].right)
        half = table.firsts // 2
        for text, one in [*ordered[:half], *ordered[half:][-(table.firsts - half) :]]:
            prompts.append(PlanPrompt(group.question.item, one.rounds, (text,), one.right))
    return prompts


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn: temperature 0 takes the likeliest; `end_id` is the token that ends a completion."""

    temperature: float = 1.0
    end_id: int = END_ID
    explore: "Exploration | None" = None


@dataclass(frozen=True, slots=True)
class Exploration:
    """The last `count` completions of each group choose among `tokens` evenly."""

    tokens: tuple[int, ...]
    count: int

    def override(self, drawn: Tensor, mass: Tensor, rows: Tensor, group: int, uniform: Tensor) -> Tensor:
        """Return the tokens drawn [M], with an even choice where an exploration rollout makes it.

        `mass` [M] is what the choice's tokens hold of the next token; `rows` [M] number completions, which come in
        groups of this size; `uniform` [M] are in [0, 1).
        """
        here = (mass > _CHOICE_MASS) & (rows % group >= group - self.count)
        choice = torch.tensor(self.tokens, device=drawn.device)
        return torch.where(here, choice[(uniform * len(choice)).long()], drawn)


def exploration_at(settings: TrainSettings, tokenizer: "Tokenizer", step: int) -> Exploration | None:
    """Return how this step explores; None: not at all."""
    count = settings.exploration_count_at(step)
    return Exploration(choice_tokens(settings, tokenizer), count) if count else None


def choice_tokens(settings: TrainSettings, tokenizer: "Tokenizer") -> tuple[int, ...]:
    """Return the tokens of which one is chosen; ConfigError where fewer than two begin with `grpo.choice`."""
    prefix = settings.grpo.choice
    tokens = sorted(number for token, number in tokenizer.get_vocab().items() if prefix and token.startswith(prefix))
    if len(tokens) < 2:
        raise ConfigError(f"grpo.choice: expected what two tokens or more begin with, found {prefix!r}")
    return tuple(tokens)


@dataclass(frozen=True, slots=True)
class Completions:
    """Completions of a batch of prompts: `tokens` [B, G, C], their `mask` (1: no padding) and `logprobs`.

    They are in the processor's memory, wherever the model is.
    """

    tokens: Tensor
    mask: Tensor
    logprobs: Tensor

    def rows(self) -> list[list[list[int]]]:
        """Return each completion's tokens, without its end and padding, by prompt."""
        counted = zip(self.tokens.tolist(), self.mask.sum(-1).tolist(), strict=True)
        return [
            [[token for token in row[:count] if token != END_ID] for row, count in zip(rows, counts, strict=True)]
            for rows, counts in counted
        ]


def sample(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    group: int,
    longest: int,
    generator: torch.Generator | None = None,
    params: SamplingParams = SamplingParams(),
) -> Completions:
    """Sample `group` completions of at most `longest` tokens for each prompt."""
    shape = (longest, len(prompts) * group)
    # All draws are taken at once, so that the generator's state does not depend on how long completions are.
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator) if params.temperature else None
    device = model.device
    tokens, logprobs = torch.full(shape, PAD_ID, device=device), torch.zeros(shape, device=device)
    with torch.inference_mode():
        decoder = BatchDecoder(Qwen2Forward.of(model), prompts, group, longest)
        used = _decode(decoder, (tokens, logprobs), None if uniform is None else uniform.to(device), params)
    tokens, logprobs = (each[:used].t().reshape(len(prompts), group, used).cpu() for each in (tokens, logprobs))
    ended = (tokens == params.end_id).long()
    return Completions(tokens, (ended.cumsum(-1) - ended) == 0, logprobs)


def _decode(decoder: BatchDecoder, out: tuple[Tensor, Tensor], uniform: Tensor | None, params: SamplingParams) -> int:
    """Fill in tokens and their log-probabilities [T, B * G] until all have ended; return the number of tokens."""
    tokens, logprobs = out
    longest, count = tokens.shape
    rows = torch.arange(count, device=tokens.device)  # the completions that continue
    group = count // decoder.count
    branch = rows // group
    for place in range(longest):
        next_logprobs = torch.log_softmax(decoder.read() / (params.temperature or 1.0), dim=-1)
        if uniform is None:
            drawn = next_logprobs.argmax(dim=-1)[branch]
        else:
            drawn = _sample_tokens(next_logprobs, branch, uniform[place, rows])
            if params.explore is not None:
                mass = next_logprobs[:, list(params.explore.tokens)].exp().sum(-1)[branch]
                drawn = params.explore.override(drawn, mass, rows, group, uniform[place, rows])
        tokens[place, rows], logprobs[place, rows] = drawn, next_logprobs[branch, drawn]
        going_on = drawn != params.end_id
        rows = rows[going_on]
        if not len(rows):
            return place + 1
        branch = decoder.grow(branch[going_on], drawn[going_on], next_logprobs.shape[-1])
    return longest


def _sample_tokens(logprobs: Tensor, branch: Tensor, uniform: Tensor) -> Tensor:
    """Return a token for each draw in [0, 1), from the row `branch` [M] of log-probabilities [R, V]."""
    cumulative = logprobs.double().exp().cumsum(-1)
    if not bool(torch.isfinite(cumulative[:, -1]).all()):
        raise TrainingDiverged("the model's next token has probabilities that are no numbers")
    count = logprobs.shape[-1]
    # One sorted row for all branches, branch r between r and r + 1, so that one search finds every token.
    offsets = torch.arange(len(cumulative), device=cumulative.device)[:, None]
    edges = (cumulative / cumulative[:, -1:] + offsets).flatten()
    found = torch.searchsorted(edges, uniform + branch, right=True) - branch * count
    return found.clamp(0, count - 1)


@dataclass(frozen=True, slots=True)
class CompletionTrees:
    """Completions [B, G, C] after their prompts as prefix trees, one for a few prompts: each beginning once.

    `predictors` are the nodes of each tree after which a token was drawn, N in all; `index` [B, G, C] says which of
    these it was for each token.
    """

    trees: tuple[PrefixTree, ...]
    predictors: tuple[Tensor, ...]
    tokens: Tensor
    mask: Tensor
    index: Tensor

    def to(self, device: torch.device) -> "CompletionTrees":
        """Return them on the device of the model that is to read them."""
        return CompletionTrees(
            tuple(each.to(device) for each in self.trees),
            tuple(each.to(device) for each in self.predictors),
            *(each.to(device) for each in (self.tokens, self.mask, self.index)),
        )

    def logprobs(self, model: "Qwen2ForCausalLM", temperature: float = 1.0) -> Tensor:
        """Return the log-probabilities [N, V] of every token after each of the beginnings."""
        forward = Qwen2Forward.of(model)
        states = (
            forward_tree(forward, tree).states.index_select(0, nodes)
            for tree, nodes in zip(self.trees, self.predictors, strict=True)
        )
        return torch.cat([torch.log_softmax(forward.logits(state) / temperature, dim=-1) for state in states])

    def expand(self, values: Tensor) -> Tensor:
        """Return values [N, ...] of beginnings for every token [B, G, C, ...]; 0 where there is none."""
        found = values.index_select(0, self.index.flatten()).view(*self.index.shape, *values.shape[1:])
        return found * self.mask.to(found.dtype).view(*self.mask.shape, *[1] * (values.dim() - 1))

    def collapse(self, values: Tensor) -> Tensor:
        """Return values [B, G, C, ...], equal for tokens of equal beginnings, for each of these [N, ...]."""
        places = torch.arange(self.index.numel(), device=self.index.device).view(self.index.shape)[self.mask > 0]
        first = places.new_zeros(sum(map(len, self.predictors))).scatter_(0, self.index[self.mask > 0], places)
        return values.flatten(0, 2).index_select(0, first)

    def token_logprobs(self, logprobs: Tensor) -> Tensor:
        """Return the log-probability [B, G, C] of each token, given those of all [N, V]; 0 where there is none."""
        place = (self.index * logprobs.shape[-1] + self.tokens).flatten()
        return logprobs.flatten().index_select(0, place).view(self.index.shape) * self.mask


def plant_completions(prompts: Sequence[Sequence[int]], tokens: Tensor, mask: Tensor | None = None) -> CompletionTrees:
    """Return completions [B, G, C] after their prompts as trees, as far as their `mask` [B, G, C] goes."""
    mask = torch.ones(tokens.shape) if mask is None else mask
    lengths, written = mask.sum(-1).long().tolist(), tokens.tolist()
    index = torch.zeros(tokens.shape, dtype=torch.long)
    trees: list[PrefixTree] = []
    predictors: list[Tensor] = []
    for first in range(0, len(prompts), _PROMPTS_PER_TREE):
        some = range(first, min(first + _PROMPTS_PER_TREE, len(prompts)))
        rows = [(number, place, count) for number in some for place, count in enumerate(lengths[number]) if count]
        texts = [[*prompts[number], *written[number][place][: count - 1]] for number, place, count in rows]
        tree, nodes = build_prefix_tree(texts)
        drawn = sorted({node for (_, _, count), each in zip(rows, nodes, strict=True) for node in each[-count:]})
        numbers = {node: number for number, node in enumerate(drawn, start=sum(map(len, predictors)))}
        for (number, place, count), each in zip(rows, nodes, strict=True):
            index[number, place, :count] = torch.tensor([numbers[node] for node in each[-count:]])
        trees.append(tree)
        predictors.append(torch.tensor(drawn, dtype=torch.long))
    return CompletionTrees(tuple(trees), tuple(predictors), tokens, mask, index)


def full_logprobs(
    model: "Qwen2ForCausalLM",
    prompts: Sequence[Sequence[int]],
    tokens: Tensor,
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the log-probabilities [B, G, C, V] of every token at every place of completions [B, G, C].

    `temperature` is that of sampling. What `mask` [B, G, C] leaves out is not read, and 0.
    """
    trees = plant_completions(prompts, tokens, mask).to(model.device)
    return trees.expand(trees.logprobs(model, temperature))


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Prompts [B] and their different completions with an advantage: `tokens`, `mask`, `old_logprobs` [B, G, C].

    `advantages` [B, G]; `counts` [B, G]: how many equal completions each stands for (0: padding).
    """

    prompts: list[list[int]]
    tokens: Tensor
    mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> "TrainingBatch":
        """Return the batch on a device."""
        tensors = (self.tokens, self.mask, self.old_logprobs, self.advantages, self.counts)
        return TrainingBatch(self.prompts, *(each.to(device) for each in tensors))


def training_batch(groups: Sequence[RolloutGroup], advantages: Floats) -> TrainingBatch | None:
    """Return what is read again with gradients; None where no completion has an advantage."""
    rows: list[tuple[RolloutGroup, list[list[int]], Floats]] = []
    first = 0
    for group in groups:
        own = advantages[first : first + len(group.texts)]
        first += len(group.texts)
        places: dict[tuple[int, ...], list[int]] = {}  # the same text may be other tokens (7)
        for place in np.flatnonzero(own).tolist():
            places.setdefault(tuple(group.tokens[place][group.mask[place].bool()].tolist()), []).append(place)
        if places:
            rows.append((group, list(places.values()), own))
    if not rows:
        return None
    width = max(len(equal) for _, equal, _ in rows)
    longest = max(int(group.mask.sum(-1).max()) for group, _, _ in rows)
    tokens = torch.zeros(len(rows), width, longest, dtype=torch.long)
    mask, old_logprobs = torch.zeros(len(rows), width, longest), torch.zeros(len(rows), width, longest)
    kept, counts = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for row, (group, equal, own) in enumerate(rows):
        firsts, size = torch.tensor([same[0] for same in equal]), len(equal)
        count = min(longest, group.tokens.shape[-1])
        tokens[row, :size, :count] = group.tokens[firsts, :count]
        mask[row, :size, :count] = group.mask[firsts, :count].float()
        old_logprobs[row, :size, :count] = group.logprobs[firsts, :count]
        kept[row, :size] = torch.tensor([float(own[same].mean()) for same in equal])
        counts[row, :size] = torch.tensor([float(len(same)) for same in equal])
    return TrainingBatch([group.prompt for group, _, _ in rows], tokens, mask, old_logprobs, kept, counts)
