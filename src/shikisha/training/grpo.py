"""GRPO in one file, to be read top to bottom: sample, reward, advantage, loss, update (arXiv 2402.03300, 2512.04388).

For each question q the policy π_θ writes a group of completions o_1 … o_G. Each is the text of a plan; the engine
performs it, a grader scores the answer, and that is its reward r_i. What beats its group becomes more likely:

    A_i   = (r_i − mean(r)) / std(r)
    ρ_it  = π_θ(o_it | q, o_i<t) / π_old(o_it | q, o_i<t)
    L(θ)  = −mean_i mean_t min(ρ_it A_i, clip(ρ_it, 1 − ε, 1 + ε_high) A_i) + β KL(π_θ ‖ π_ref) − c H(π_θ)

One optimizer step is taken for each batch, so π_old is π_θ, ρ is 1, and the clip changes nothing here. `trl` shares
these functions and may split a batch. A second round (recursion) is a group of its own: its prompt shows a first round.

Invariants: tokens and log-probabilities are the sampler's; the same settings give the same curve; a loss or gradient
that is not finite stops training before any weight changes. Deliberately absent: a critic, several epochs a batch,
several processes and other layouts than Qwen2's (`trl`), checkpoints and views (`training_run`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.training.advantage_variants import balance_shapes, exploration_advantages, pair_ids, shape_rarity
from shikisha.training.environment import TaskCurriculum
from shikisha.training.metrics import SAMPLES_PER_STEP, StepMetrics, rollout_metrics, second_round_shares
from shikisha.training.plan_reward import Floats, Ints, PlanScorer, ScoredPlan, reward_array
from shikisha.training.rollout import (
    PlanPrompt,
    RolloutGroup,
    SamplingParams,
    TrainingBatch,
    exploration_at,
    make_groups,
    plant_completions,
    sample,
    second_round_prompts,
    training_batch,
)
from shikisha.training.settings import GROUP_RELATIVE, AdvantageSettings, ComparisonScope, TrainSettings
from shikisha.training.sft import AuxiliarySFT

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

MAX_GRAD_NORM = 1.0
# Means over several performances differ in their last bits.
_ZERO_STD = 1e-6


@dataclass(frozen=True, slots=True)
class GRPOLoss:
    """A loss in its parts, each a scalar: the `policy` term, `kl` to the reference, `entropy` of next tokens (nats)."""

    policy: Tensor
    kl: Tensor
    entropy: Tensor


class GRPOLoop:
    """A policy, its tasks, and the state of its training. `advance` takes one step."""

    def __init__(
        self,
        model: "Qwen2ForCausalLM",
        tokenizer: "Tokenizer",
        curriculum: TaskCurriculum,
        scorer: PlanScorer,
        settings: TrainSettings,
        reference: "Qwen2ForCausalLM | None" = None,
    ) -> None:
        table = settings.grpo
        if table.kl and reference is None:
            raise ConfigError("grpo.kl: a divergence needs the model that training began with")
        self.model, self.tokenizer, self.reference = model, tokenizer, reference
        self.curriculum, self.scorer, self.settings = curriculum, scorer, settings
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=table.rate, betas=table.betas, weight_decay=0.0)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.auxiliary_sft: AuxiliarySFT | None = None
        self.step = 0
        model.train(mode=False)

    async def advance(self) -> StepMetrics:
        """Take one step: sample and reward, advantage, loss and update."""
        started = perf_counter()
        questions = [PlanPrompt(item) for item in self.curriculum.draw(self.settings.grpo.tasks)]
        firsts = await self.rollout(questions, self.settings.grpo.group)
        seconds = await self.rollout(second_round_prompts(firsts, self.settings, self.step), self.settings.second_group)
        self.curriculum.update([group.question.item for group in firsts], [group.right for group in firsts])
        sampled, groups = perf_counter(), [*firsts, *seconds]
        advantages, zero_variance = step_advantages(
            [group.scored for group in groups],
            [group.question.is_second for group in groups],
            self.settings,
            self.step,
            [group.question.item.task.id for group in groups],
        )
        loss, grad_norm = self.update(groups, advantages)
        self.step += 1
        taken = {"sample and perform": sampled - started, "learn": perf_counter() - sampled}
        return self._metrics(groups, zero_variance, (loss, grad_norm), taken)

    async def rollout(self, questions: Sequence[PlanPrompt], size: int) -> list[RolloutGroup]:
        """Sample o_1 … o_G ~ π_old(· | q) for each question; perform each as a plan, which gives its reward r_i."""
        if not questions:
            return []
        table, prompts = (
            self.settings.grpo,
            [self.tokenizer.encode(each.text(self.tokenizer)).ids for each in questions],
        )
        firsts = not any(each.is_second for each in questions)
        explore = exploration_at(self.settings, self.tokenizer, self.step) if firsts else None
        params = SamplingParams(table.temperature, explore=explore)
        drawn = sample(self.model, prompts, size, table.longest, self.generator, params)
        texts = [[self._decode(tokens) for tokens in group] for group in drawn.rows()]
        self.scorer.dollar_weight = self.settings.dollar_weight_at(self.step)
        scored = await self.scorer.scores(
            texts,
            [each.item for each in questions],
            [each.texts for each in questions],
            self.settings.performances_at(self.step),
        )
        return make_groups(questions, prompts, drawn, texts, scored)

    def loss(self, batch: TrainingBatch) -> GRPOLoss:
        """Return L(θ) in its parts: one pass over the batch, in which equal beginnings are read once."""
        table = self.settings.grpo
        trees = plant_completions(batch.prompts, batch.tokens, batch.mask).to(self.model.device)
        logprobs = trees.logprobs(self.model, table.temperature)  # [N, V]
        policy = clipped_surrogate(
            trees.token_logprobs(logprobs), batch.old_logprobs, batch.advantages, table.clip, table.clip_high
        )
        kl = logprobs.new_zeros(len(logprobs))
        if self.reference is not None and table.kl:
            with torch.no_grad():
                reference = trees.logprobs(self.reference, table.temperature)
            kl = exact_kl(logprobs, reference)
        entropy = token_entropy(logprobs if table.entropy else logprobs.detach())
        parts = (policy, trees.expand(kl), trees.expand(entropy))
        return GRPOLoss(*(mean_over_completions(each, batch.mask, batch.counts) for each in parts))

    def update(self, groups: Sequence[RolloutGroup], advantages: Floats) -> tuple[GRPOLoss, float]:
        """Take one step of AdamW; return the loss and the gradient's norm. TrainingDiverged if one is not finite."""
        table = self.settings.grpo
        for options in self.optimizer.param_groups:
            options["lr"] = self.settings.learning_rate_at(self.step)
        batch = training_batch(groups, advantages)
        if batch is None:
            return GRPOLoss(*torch.zeros(3)), 0.0
        loss = self.loss(batch.to(self.model.device))
        total = loss.policy + table.kl * loss.kl
        if float(loss.entropy.detach()) < table.entropy_floor:
            total = total - table.entropy * loss.entropy
        if self.auxiliary_sft is not None:
            total = total + self.auxiliary_sft.loss(self.model, self.step)
        self._require_finite("loss", float(total.detach()))
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM))
        self._require_finite("gradient", grad_norm)
        self.optimizer.step()
        return loss, grad_norm

    def _require_finite(self, name: str, value: float) -> None:
        if not isfinite(value):
            raise TrainingDiverged(f"step {self.step}: the {name} is {value}; the weights are those of the step before")

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text

    def _metrics(
        self,
        groups: Sequence[RolloutGroup],
        zero_variance: float,
        learned: tuple[GRPOLoss, float],
        seconds: dict[str, float],
    ) -> StepMetrics:
        loss, grad_norm = learned
        firsts = [group.scored for group in groups if not group.question.is_second]
        seconds_scored = [
            (bool(group.question.right), one) for group in groups if group.question.is_second for one in group.scored
        ]
        return StepMetrics(
            number=self.step,
            of=self.settings.grpo.steps,
            **rollout_metrics(without_exploration(firsts, self.settings, self.step - 1)),
            dollars=sum(one.dollars for group in groups for one in group.scored),
            second_round=second_round_shares(seconds_scored),
            even=zero_variance,
            entropy=float(loss.entropy.detach()),
            kl=float(loss.kl.detach()),
            replay=0.0 if self.auxiliary_sft is None else self.auxiliary_sft.last,
            loss=float(loss.policy.detach()),
            gradient=grad_norm,
            rate=self.settings.learning_rate_at(self.step - 1),
            tokens=sum(int(group.mask.sum()) for group in groups),
            seconds=seconds,
            samples=tuple(group.sample() for group in groups[:SAMPLES_PER_STEP]),
        )


# The formulas: pure functions of arrays. N completions in all, B prompts, G completions a prompt, C tokens, V words.


def group_relative(rewards: Floats, groups: Ints, how: AdvantageSettings) -> Floats:
    """Return [N]: A_i = (r_i − mean(r)) / std(r) within each group, 0 without variance. NaN rewards take no part.

    `how` may leave the division out (Dr. GRPO, arXiv 2503.20783) or bound std(r) from below.
    """
    advantages: Floats = np.zeros(len(rewards))
    for group in np.unique(groups):
        rows = np.flatnonzero((groups == group) & ~np.isnan(rewards))
        if std := _std(rewards[rows]):
            scale = max(std, how.min_std) if how.scale_by_std else 1.0
            advantages[rows] = (rewards[rows] - rewards[rows].mean()) / scale
    return advantages


def compute_advantages(
    rewards: Floats, groups: Ints, how: AdvantageSettings = GROUP_RELATIVE, shapes: Sequence[str] = ()
) -> Floats:
    """Return [N] advantages; `groups` [N] says which group each is of, `shapes` which shape its plan has.

    A shape is words, of which the last is the plan's length ("mixed 1-3-1 5"), or NO_PLAN and the intended length.
    """
    advantages = group_relative(rewards, groups, how)
    if how.scope is ComparisonScope.GROUP and not how.shape_bonus:
        return advantages
    same_shape = None
    if how.scope is ComparisonScope.WITHIN:
        same_shape = group_relative(rewards, pair_ids(groups, shapes), how)
    return balance_shapes(advantages, same_shape, rewards, groups, shapes, how)


def step_advantages(
    scored: Sequence[Sequence[ScoredPlan]],
    second: Sequence[bool],
    settings: TrainSettings,
    step: int,
    tasks: Sequence[str] = (),
) -> tuple[Floats, float]:
    """Return the advantages [N] of all groups' completions, and the share of groups whose rewards have no variance.

    `second` says which groups are second rounds, where no completion explores; `tasks` names each group's task ((): all
    differ).
    """
    sizes, how = [len(group) for group in scored], settings.comparison_at(step)
    groups = np.repeat(np.arange(len(scored)), sizes)
    shapes = [one.comparison_key for group in scored for one in group]
    discounts = np.repeat(_reward_discounts(second, settings, tasks), sizes)
    rewards = np.concatenate([reward_array(group) for group in scored]) * discounts
    normalized_with = np.repeat(_normalization_groups(second, settings, tasks), sizes)
    from_end = np.concatenate([np.arange(size) - size for size in sizes])  # the last of a group explore
    explores = (from_end >= -settings.exploration_count_at(step)) & ~np.repeat(np.array(second, bool), sizes)
    shaped = rewards + settings.diversity_at(step) * shape_rarity(groups, shapes)
    on_policy = np.where(explores, np.nan, shaped)
    advantages = np.where(
        explores,
        exploration_advantages(shaped, groups, explores, how),
        compute_advantages(on_policy, normalized_with, how, shapes),
    )
    return advantages, zero_variance_share(np.where(explores, np.nan, rewards), groups)


def _reward_discounts(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Floats:
    """Return [groups]: what rewards are multiplied by, less than 1 for a first round that a second one follows."""
    followed = {task for task, is_second in zip(tasks, second, strict=False) if is_second}
    kept = 1 - settings.second.discount
    found = [
        kept if task in followed and not is_second else 1.0 for task, is_second in zip(tasks, second, strict=False)
    ]
    return np.array(found or [1.0] * len(second))


def _normalization_groups(second: Sequence[bool], settings: TrainSettings, tasks: Sequence[str]) -> Ints:
    """Return [groups]: which rewards are normalized together, those of a group or those of all rounds of a task."""
    if not (settings.second.across and tasks and any(second)):
        return np.arange(len(second))
    numbers = {task: number for number, task in enumerate(dict.fromkeys(tasks))}
    return np.array([numbers[task] for task in tasks], np.int64)


def zero_variance_share(rewards: Floats, groups: Ints) -> float:
    """Return the share of groups whose rewards do not vary, from which nothing can be learned."""
    names = np.unique(groups)
    flat = [not _std(rewards[(groups == name) & ~np.isnan(rewards)]) for name in names]
    return float(np.mean(flat)) if len(names) else 0.0


def _std(rewards: Floats) -> float:
    """Return the standard deviation; 0 where it is rounding."""
    std = float(rewards.std()) if len(rewards) > 1 else 0.0
    return std if std >= _ZERO_STD else 0.0


def without_exploration(scored: Sequence[Sequence[ScoredPlan]], settings: TrainSettings, step: int) -> list[ScoredPlan]:
    """Return the completions of first rounds' groups that the policy drew by itself."""
    exploring = settings.exploration_count_at(step)
    return [one for group in scored for one in group[: len(group) - exploring]]


def clipped_surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip: float, clip_high: float | None = None
) -> Tensor:
    """Return −min(ρ A, clip(ρ, 1 − ε, 1 + ε_high) A) of each token [..., C]; `advantages` [...] are completions'.

    ε_high above ε is DAPO's clip-higher (arXiv 2503.14476); None: the same.
    """
    ratio = (logprobs - old_logprobs).exp()
    advantage = advantages[..., None]
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + (clip_high or clip)) * advantage)


def exact_kl(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return KL(π_θ ‖ π_ref) [..., C] of distributions [..., C, V]: summed over the vocabulary, not estimated."""
    return (logprobs.exp() * (logprobs - reference)).sum(-1)


def token_entropy(logprobs: Tensor) -> Tensor:
    """Return the entropy H [..., C] in nats of distributions [..., C, V]."""
    return -(logprobs.exp() * logprobs).sum(-1)


def mean_over_completions(values: Tensor, mask: Tensor, counts: Tensor) -> Tensor:
    """Return mean_i mean_t of values [..., C]; `counts` [...] says how many equal completions a row stands for."""
    each = (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return (each * counts).sum() / counts.sum().clamp(min=1)
