"""GRPO in one plain loop, to be read top to bottom: sample plans, perform them, compare, take one step.

What TRL does for us in earnest is held against this. One optimizer step for each batch, so the policy that is improved
is the one that sampled, and the clip never bites; what completions begin with alike is run over once, with their
losses added up, which is the same gradient. Second rounds (recursion) are groups of their own: their prompt shows a
first round. Invariants: tokens and log-probabilities are the sampler's; the same settings give the same curve; a loss
that is no number stops training before any weight is touched. Deliberately absent: checkpoints and views (they watch),
several processes, other layouts than Qwen2's.

A batch of GRPO: prompts, what was sampled for each, and what goes through the model once more.

Invariants: a second round's prompt shows a first round that was really performed; equal completions of a group are one
row, which counts for as many as they are; a completion without advantage is left out. Deliberately absent: models.

What a step's completions are worth beside each other: from what came of them to their advantages.

Invariant: our loop and TRL's reckon the same. Deliberately absent: what is then learned.

GRPO's loss, as pure functions of tensors (arXiv 2402.03300; clip-higher after DAPO, arXiv 2503.14476).

Invariants: with ratio 1 (samples of this very policy) its gradient is that of -advantage × log-probability; padding
counts for nothing. Deliberately absent: sampling, rewards, optimizers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.core.prompts import compact_prompt
from shikisha.core.run import RoundResult
from shikisha.evals.taskset import TaskItem
from shikisha.training import metrics
from shikisha.training.advantage_variants import Floats, Ints, compute_advantages, shape_rarity, zero_variance_share
from shikisha.training.environment import TaskCurriculum
from shikisha.training.metrics import CompletionSample, reward_array
from shikisha.training.plan_reward import PlanScorer, ScoredPlan
from shikisha.training.rollout import (
    Completions,
    SamplingParams,
    exploration_advantages,
    exploration_at,
    plant_completions,
    sample,
)
from shikisha.training.settings import TrainSettings
from shikisha.training.sft import AuxiliarySFT


@dataclass(frozen=True, slots=True)
class PlanPrompt:
    """A prompt: its item, and the rounds that it shows, with the texts that planned them.

    `right` says whether the answer at hand was right (None: there is none yet).
    """

    item: TaskItem
    rounds: tuple[RoundResult, ...] = ()
    texts: tuple[str, ...] = ()
    right: bool | None = None

    def text(self) -> str:
        """Return the text that the model reads."""
        if self.item.pool is None:
            raise ConfigError(f"task {self.item.task.id}: no pool to plan for")
        return compact_prompt(self.item.task, self.item.pool.cards, self.rounds)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """What was sampled for a prompt: `tokens` and `real` [G, C], `logprobs` [G, C], and what each came to."""

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


@dataclass(frozen=True, slots=True)
class GRPOBatch:
    """Prompts [B], and for each the different completions that count: `tokens`, `real`, `sampled` [B, G, C].

    `wished` [B, G] are their advantages, `counts` [B, G] how many equal ones each stands for (0: padding).
    """

    prompts: list[list[int]]
    tokens: Tensor
    mask: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> "GRPOBatch":
        """Return the batch on a device."""
        moved = (each.to(device) for each in (self.tokens, self.mask, self.old_logprobs, self.advantages, self.counts))
        return GRPOBatch(self.prompts, *moved)


def make_groups(
    asked: Sequence[PlanPrompt],
    prompts: Sequence[list[int]],
    drawn: Completions,
    texts: Sequence[Sequence[str]],
    found: Sequence[Sequence[ScoredPlan]],
) -> Iterator[RolloutGroup]:
    """Yield the groups of one call of the sampler."""
    for place, one in enumerate(asked):
        yield RolloutGroup(
            one,
            prompts[place],
            drawn.tokens[place],
            drawn.mask[place],
            drawn.logprobs[place],
            tuple(texts[place]),
            tuple(found[place]),
        )


def second_round_prompts(group: RolloutGroup, most: int, scouts: int = 0) -> Iterator[PlanPrompt]:
    """Yield prompts for a second round: after different first ones, those that went wrong before those that did not.

    The last `scouts` of the group are left out: their first rounds are not what the policy comes to.
    """
    found = list(zip(group.texts, group.scored, strict=True))[: len(group.texts) - scouts]
    pairs = {text: one for text, one in found if one.rounds and one.total is not None}
    ordered = sorted(pairs.items(), key=lambda pair: pair[1].right)
    half = most // 2
    for text, one in [*ordered[:half], *ordered[half:][-(most - half) :]]:
        yield PlanPrompt(group.question.item, one.rounds, (text,), one.right)


def merge_groups(groups: Sequence[RolloutGroup], wished: Floats) -> GRPOBatch | None:
    """Return what is to be run over with gradients; None where nothing has an advantage."""
    rows: list[tuple[RolloutGroup, list[tuple[int, float, int]]]] = []
    first = 0
    for group in groups:
        own = wished[first : first + len(group.texts)]
        first += len(group.texts)
        places: dict[str, list[int]] = {}
        for place in np.flatnonzero(own).tolist():
            places.setdefault(group.texts[place], []).append(place)
        if places:
            rows.append((group, [(same[0], float(own[same].mean()), len(same)) for same in places.values()]))
    return _pad_groups(rows) if rows else None


def _pad_groups(rows: Sequence[tuple[RolloutGroup, list[tuple[int, float, int]]]]) -> GRPOBatch:
    width = max(len(kept) for _, kept in rows)
    longest = max(int(group.mask.sum(-1).max()) for group, _ in rows)
    tokens = torch.zeros(len(rows), width, longest, dtype=torch.long)
    real, sampled = torch.zeros(len(rows), width, longest), torch.zeros(len(rows), width, longest)
    wished, counts = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for row, (group, kept) in enumerate(rows):
        places = torch.tensor([place for place, _, _ in kept])
        count = min(longest, group.tokens.shape[-1])
        tokens[row, : len(kept), :count] = group.tokens[places, :count]
        real[row, : len(kept), :count] = group.mask[places, :count].float()
        sampled[row, : len(kept), :count] = group.logprobs[places, :count]
        wished[row, : len(kept)] = torch.tensor([advantage for _, advantage, _ in kept])
        counts[row, : len(kept)] = torch.tensor([float(times) for _, _, times in kept])
    return GRPOBatch([group.prompt for group, _ in rows], tokens, real, sampled, wished, counts)


def step_advantages(
    found: Sequence[Sequence[ScoredPlan]],
    second: Sequence[bool],
    settings: TrainSettings,
    step: int,
    tasks: Sequence[str] = (),
) -> tuple[Floats, float]:
    """Return the advantages [N] of groups' completions, and the share of groups from which nothing can be learned.

    `second` says which groups are second rounds, in which nobody scouts; `tasks` whose each is (none: all differ).
    """
    sizes, how = [len(group) for group in found], settings.comparison_at(step)
    numbers = np.repeat(np.arange(len(found)), sizes)
    shapes = [one.comparison_key for group in found for one in group]
    rewards = np.concatenate([reward_array(group) for group in found]) * np.repeat(
        _reward_discounts(second, settings, tasks), sizes
    )
    together = np.repeat(_normalization_groups(second, settings, tasks), sizes)
    last = np.concatenate([np.arange(size) - size for size in sizes])
    scouts = (last >= -settings.exploration_count_at(step)) & ~np.repeat(np.array(second, bool), sizes)
    worth = rewards + settings.diversity_at(step) * shape_rarity(numbers, shapes)
    others = np.where(scouts, np.nan, worth)
    wished = np.where(
        scouts, exploration_advantages(worth, numbers, scouts, how), compute_advantages(others, together, how, shapes)
    )
    return wished, zero_variance_share(np.where(scouts, np.nan, rewards), numbers)


def _reward_discounts(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Floats:
    """Return [G] what a group's rewards count for: a first round's less, where a further one follows it."""
    gone_on = {task for task, later in zip(tasks, second, strict=False) if later}
    kept = 1 - settings.second.discount
    less = [kept if task in gone_on and not later else 1.0 for task, later in zip(tasks, second, strict=False)]
    return np.array(less or [1.0] * len(second))


def _normalization_groups(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Ints:
    """Return [G] a number for those whose rewards are normalized together: a group, or all rounds of its task."""
    if not (settings.second.across and tasks and any(second)):
        return np.arange(len(second))
    numbers = {task: place for place, task in enumerate(dict.fromkeys(tasks))}
    return np.array([numbers[task] for task in tasks], np.int64)


def without_exploration(found: Sequence[Sequence[ScoredPlan]], settings: TrainSettings, step: int) -> list[ScoredPlan]:
    """Return what came of first rounds' groups by the policy itself: scouts are left out."""
    scouts = settings.exploration_count_at(step)
    return [one for group in found for one in group[: len(group) - scouts]]


@dataclass(frozen=True, slots=True)
class GRPOLoss:
    """A loss in its parts, each a scalar: `policy`, `kl` to the reference, `entropy` of the tokens' distributions."""

    policy: Tensor
    kl: Tensor
    entropy: Tensor


def clipped_surrogate(logprobs: Tensor, sampled: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Return the clipped surrogate loss of each token [..., C]; `advantages` [...] are their completions'."""
    ratio = (logprobs - sampled).exp()
    wished = advantages[..., None]
    return -torch.minimum(ratio * wished, ratio.clamp(1 - low, 1 + high) * wished)


def exact_kl(spread: Tensor, reference: Tensor) -> Tensor:
    """Return the exact KL divergence [..., C] of distributions [..., C, V], given as log-probabilities."""
    return (spread.exp() * (spread - reference)).sum(-1)


def token_entropy(spread: Tensor) -> Tensor:
    """Return the entropy [..., C] in nats of distributions [..., C, V], given as log-probabilities."""
    return -(spread.exp() * spread).sum(-1)


def mean_over_completions(values: Tensor, real: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over completions [...] of their tokens' means [..., C]; `weights` [...] count completions."""
    each = (values * real).sum(-1) / real.sum(-1).clamp(min=1)
    return (each * weights).sum() / weights.sum().clamp(min=1)


if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

_MAX_GRAD_NORM = 1.0


class GRPOLoop:
    """A policy, what it learns from, and the state of its training. `advance` takes one step."""

    def __init__(
        self,
        model: "Qwen2ForCausalLM",
        tokenizer: "Tokenizer",
        source: TaskCurriculum,
        scorer: PlanScorer,
        settings: TrainSettings,
        reference: "Qwen2ForCausalLM | None" = None,
    ) -> None:
        table = settings.grpo
        if table.kl and reference is None:
            raise ConfigError("grpo.kl: a divergence needs the model that training began with")
        self.model, self.tokenizer, self.curriculum, self.scorer, self.settings = (
            model,
            tokenizer,
            source,
            scorer,
            settings,
        )
        self.reference = reference
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=table.rate, betas=table.betas, weight_decay=0.0)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.auxiliary_sft: AuxiliarySFT | None = None
        self.step = 0
        model.train(mode=False)

    async def advance(self) -> metrics.StepMetrics:
        """Take one step and say what it came to."""
        table, begun = self.settings.grpo, perf_counter()
        self.scorer.dollar_weight = self.settings.dollar_weight_at(self.step)
        firsts = await self._groups([PlanPrompt(item) for item in self.curriculum.draw(table.tasks)], table.group)
        groups = [*firsts, *await self._second(firsts)]
        sampled = perf_counter()
        self.curriculum.update([group.question.item for group in firsts], [group.right for group in firsts])
        found, second = [group.scored for group in groups], [bool(group.question.rounds) for group in groups]
        tasks = [group.question.item.task.id for group in groups]
        wished, flat = step_advantages(found, second, self.settings, self.step, tasks)
        terms, gradient = self._learn(groups, wished)
        self.step += 1
        seconds = {"sample and perform": sampled - begun, "learn": perf_counter() - sampled}
        return self._told(groups, flat, terms, gradient, seconds)

    async def _groups(self, asked: Sequence[PlanPrompt], size: int) -> list[RolloutGroup]:
        """Sample for every prompt and perform what was sampled."""
        prompts = [self.tokenizer.encode(one.text()).ids for one in asked]
        table = self.settings.grpo
        second = any(one.rounds for one in asked)
        explored = None if second else exploration_at(self.settings, self.tokenizer, self.step)
        drawing = SamplingParams(table.temperature, explore=explored)
        drawn = sample(self.model, prompts, size, table.longest, self.generator, drawing)
        texts = [[self._text(row) for row in rows] for rows in drawn.rows()]
        items, before = [one.item for one in asked], [one.texts for one in asked]
        found = await self.scorer.scores(texts, items, before, self.settings.performances_at(self.step))
        return list(make_groups(asked, prompts, drawn, texts, found))

    async def _second(self, firsts: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """Go on to a second round from some first rounds of a share of the tasks."""
        table = self.settings.second
        count = round(table.share * len(firsts)) if self.step >= table.begin * self.settings.grpo.steps else 0
        scouts = self.settings.exploration_count_at(self.step)
        asked = [one for group in firsts[:count] for one in second_round_prompts(group, table.firsts, scouts)]
        return await self._groups(asked, max(2, self.settings.grpo.group // table.firsts)) if asked else []

    def _learn(self, groups: Sequence[RolloutGroup], wished: Floats) -> tuple[GRPOLoss, float]:
        """Take one step of the optimizer; Diverged, before it, where the loss is no number."""
        table = self.settings.grpo
        for options in self.optimizer.param_groups:
            options["lr"] = self.settings.learning_rate_at(self.step)
        batch = merge_groups(groups, wished)
        if batch is None:
            return GRPOLoss(torch.zeros(()), torch.zeros(()), torch.zeros(())), 0.0
        terms = self._terms(batch.to(self.model.device))
        total = terms.policy + table.kl * terms.kl
        if float(terms.entropy.detach()) < table.entropy_floor:
            total = total - table.entropy * terms.entropy
        if self.auxiliary_sft is not None:
            total = total + self.auxiliary_sft.loss(self.model, self.step)
        if not bool(torch.isfinite(total)):
            found = float(total.detach())
            raise TrainingDiverged(f"step {self.step}: the loss is {found}; the weights are those of the step before")
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        gradient = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), _MAX_GRAD_NORM))
        if not isfinite(gradient):
            raise TrainingDiverged(
                f"step {self.step}: the gradient is {gradient}; the weights are those of the step before"
            )
        self.optimizer.step()
        return terms, gradient

    def _terms(self, batch: GRPOBatch) -> GRPOLoss:
        """Run over a batch; what its completions begin with alike is one, for the policy and for the reference."""
        table, ones = self.settings.grpo, plant_completions(batch.prompts, batch.tokens, batch.mask)
        ones = ones.to(self.model.device)
        spread = ones.logprobs(self.model, table.temperature)
        ceiling = table.clip_high or table.clip
        policy = clipped_surrogate(
            ones.token_logprobs(spread), batch.old_logprobs, batch.advantages, table.clip, ceiling
        )
        divergence = spread.new_zeros(len(spread))
        if self.reference is not None and table.kl:
            with torch.no_grad():
                held = ones.logprobs(self.reference, table.temperature)
            divergence = exact_kl(spread, held)
        entropy = token_entropy(spread if table.entropy else spread.detach())
        each = (policy, ones.expand(divergence), ones.expand(entropy))
        return GRPOLoss(*(mean_over_completions(one, batch.mask, batch.counts) for one in each))

    def _text(self, row: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(row), skip_special_tokens=False)
        return text

    def _told(
        self, groups: Sequence[RolloutGroup], flat: float, terms: GRPOLoss, gradient: float, seconds: dict[str, float]
    ) -> metrics.StepMetrics:
        firsts = [group for group in groups if not group.question.rounds]
        return metrics.StepMetrics(
            number=self.step,
            of=self.settings.grpo.steps,
            **metrics.rollout_metrics(
                without_exploration([group.scored for group in firsts], self.settings, self.step - 1)
            ),
            dollars=sum(one.dollars for group in groups for one in group.scored),
            second_round=metrics.second_round_shares(
                [(bool(group.question.right), one) for group in groups if group.question.rounds for one in group.scored]
            ),
            even=flat,
            entropy=float(terms.entropy.detach()),
            kl=float(terms.kl.detach()),
            replay=0.0 if self.auxiliary_sft is None else self.auxiliary_sft.last,
            loss=float(terms.policy.detach()),
            gradient=gradient,
            rate=self.settings.learning_rate_at(self.step - 1),
            tokens=sum(int(group.mask.sum()) for group in groups),
            seconds=seconds,
            samples=tuple(group.sample() for group in groups[: metrics.SAMPLES_PER_STEP]),
        )
