"""GRPO in one plain loop, to be read top to bottom: sample plans, perform them, compare, take one step.

What TRL does for us in earnest is held against this. One optimizer step for each batch, so the policy that is improved
is the one that sampled, and the clip never bites; what completions begin with alike is run over once, with their
losses added up, which is the same gradient. Second rounds (recursion) are groups of their own: their prompt shows a
first round. Invariants: tokens and log-probabilities are the sampler's; the same settings give the same curve; a loss
that is no number stops training before any weight is touched. Deliberately absent: checkpoints and views (they watch),
several processes, other layouts than Qwen2's.
"""

from collections.abc import Sequence
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from shikisha.errors import ConfigError, Diverged
from shikisha.train import loss, progress
from shikisha.train.advantage import Floats
from shikisha.train.batch import Asked, Batch, Group, gone_on, grouped, merged
from shikisha.train.compared import by_itself, compared
from shikisha.train.explore import explore_at
from shikisha.train.replay import Replay
from shikisha.train.rollout import Drawing, planted, sample
from shikisha.train.scoring import Scorer
from shikisha.train.settings import TrainSettings
from shikisha.train.source import Source

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

_LARGEST_GRADIENT = 1.0


class Loop:
    """A policy, what it learns from, and the state of its training. `advance` takes one step."""

    def __init__(
        self,
        model: "Qwen2ForCausalLM",
        tokenizer: "Tokenizer",
        source: Source,
        scorer: Scorer,
        settings: TrainSettings,
        reference: "Qwen2ForCausalLM | None" = None,
    ) -> None:
        table = settings.grpo
        if table.kl and reference is None:
            raise ConfigError("grpo.kl: a divergence needs the model that training began with")
        self.model, self.tokenizer, self.source, self.scorer, self.settings = model, tokenizer, source, scorer, settings
        self.reference = reference
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=table.rate, betas=table.betas, weight_decay=0.0)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.replay: Replay | None = None
        self.step = 0
        model.train(mode=False)

    async def advance(self) -> progress.Step:
        """Take one step and say what it came to."""
        table, begun = self.settings.grpo, perf_counter()
        self.scorer.cost = self.settings.cost_at(self.step)
        firsts = await self._groups([Asked(item) for item in self.source.draw(table.tasks)], table.group)
        groups = [*firsts, *await self._second(firsts)]
        sampled = perf_counter()
        self.source.told([group.asked.item for group in firsts], [group.right for group in firsts])
        found, second = [group.found for group in groups], [bool(group.asked.rounds) for group in groups]
        tasks = [group.asked.item.task.id for group in groups]
        wished, flat = compared(found, second, self.settings, self.step, tasks)
        terms, gradient = self._learn(groups, wished)
        self.step += 1
        seconds = {"sample and perform": sampled - begun, "learn": perf_counter() - sampled}
        return self._told(groups, flat, terms, gradient, seconds)

    async def _groups(self, asked: Sequence[Asked], size: int) -> list[Group]:
        """Sample for every prompt and perform what was sampled."""
        prompts = [self.tokenizer.encode(one.prompt()).ids for one in asked]
        table = self.settings.grpo
        second = any(one.rounds for one in asked)
        explored = None if second else explore_at(self.settings, self.tokenizer, self.step)
        drawing = Drawing(table.temperature, explore=explored)
        drawn = sample(self.model, prompts, size, table.longest, self.generator, drawing)
        texts = [[self._text(row) for row in rows] for rows in drawn.rows()]
        items, before = [one.item for one in asked], [one.texts for one in asked]
        found = await self.scorer.scores(texts, items, before, self.settings.performances_at(self.step))
        return list(grouped(asked, prompts, drawn, texts, found))

    async def _second(self, firsts: Sequence[Group]) -> list[Group]:
        """Go on to a second round from some first rounds of a share of the tasks."""
        table = self.settings.second
        count = round(table.share * len(firsts)) if self.step >= table.begin * self.settings.grpo.steps else 0
        scouts = self.settings.scouts_at(self.step)
        asked = [one for group in firsts[:count] for one in gone_on(group, table.firsts, scouts)]
        return await self._groups(asked, max(2, self.settings.grpo.group // table.firsts)) if asked else []

    def _learn(self, groups: Sequence[Group], wished: Floats) -> tuple[loss.Terms, float]:
        """Take one step of the optimizer; Diverged, before it, where the loss is no number."""
        table = self.settings.grpo
        for options in self.optimizer.param_groups:
            options["lr"] = self.settings.rate_at(self.step)
        batch = merged(groups, wished)
        if batch is None:
            return loss.Terms(torch.zeros(()), torch.zeros(()), torch.zeros(())), 0.0
        terms = self._terms(batch.to(self.model.device))
        total = terms.policy + table.kl * terms.kl
        if float(terms.entropy.detach()) < table.entropy_floor:
            total = total - table.entropy * terms.entropy
        if self.replay is not None:
            total = total + self.replay.loss(self.model, self.step)
        if not bool(torch.isfinite(total)):
            found = float(total.detach())
            raise Diverged(f"step {self.step}: the loss is {found}; the weights are those of the step before")
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        gradient = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), _LARGEST_GRADIENT))
        if not isfinite(gradient):
            raise Diverged(f"step {self.step}: the gradient is {gradient}; the weights are those of the step before")
        self.optimizer.step()
        return terms, gradient

    def _terms(self, batch: Batch) -> loss.Terms:
        """Run over a batch; what its completions begin with alike is one, for the policy and for the reference."""
        table, ones = self.settings.grpo, planted(batch.prompts, batch.tokens, batch.real)
        ones = ones.to(self.model.device)
        spread = ones.scores(self.model, table.temperature)
        ceiling = table.clip_high or table.clip
        policy = loss.clipped(ones.chosen(spread), batch.sampled, batch.wished, table.clip, ceiling)
        divergence = spread.new_zeros(len(spread))
        if self.reference is not None and table.kl:
            with torch.no_grad():
                held = ones.scores(self.reference, table.temperature)
            divergence = loss.divergence(spread, held)
        entropy = loss.entropy(spread if table.entropy else spread.detach())
        each = (policy, ones.each(divergence), ones.each(entropy))
        return loss.Terms(*(loss.mean_of(one, batch.real, batch.counts) for one in each))

    def _text(self, row: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(row), skip_special_tokens=False)
        return text

    def _told(
        self, groups: Sequence[Group], flat: float, terms: loss.Terms, gradient: float, seconds: dict[str, float]
    ) -> progress.Step:
        firsts = [group for group in groups if not group.asked.rounds]
        return progress.Step(
            number=self.step,
            of=self.settings.grpo.steps,
            **progress.counted(by_itself([group.found for group in firsts], self.settings, self.step - 1)),
            dollars=sum(one.dollars for group in groups for one in group.found),
            second_round=progress.second_round(
                [(bool(group.asked.right), one) for group in groups if group.asked.rounds for one in group.found]
            ),
            even=flat,
            entropy=float(terms.entropy.detach()),
            kl=float(terms.kl.detach()),
            replay=0.0 if self.replay is None else self.replay.last,
            loss=float(terms.policy.detach()),
            gradient=gradient,
            rate=self.settings.rate_at(self.step - 1),
            tokens=sum(int(group.real.sum()) for group in groups),
            seconds=seconds,
            samples=tuple(group.shown() for group in groups[: progress.SHOWN]),
        )
