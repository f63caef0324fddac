"""What is sampled in a step: prompts to plan for, and the group of completions of each, with their scores.

Invariant: a second round's prompt shows a first round that was performed. Deliberately absent: sampling (`trl`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.prompts import PromptStyle, planner_instructions, planner_message
from shikisha.core.run import RoundResult
from shikisha.evals.taskset import TaskItem
from shikisha_train.metrics import CompletionSample
from shikisha_train.plan_reward import ScoredPlan
from shikisha_train.settings import TrainSettings

ChatMessages = list[dict[str, str]]


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

    def chat(self, *, described: bool) -> ChatMessages:
        """Return the chat that the model is shown; without `described`, workers are bare ordinals."""
        if self.item.pool is None:
            raise ConfigError(f"task {self.item.task.id}: no pool to plan for")
        style = PromptStyle(described=described)
        user = planner_message(self.item.task, self.item.pool.cards, self.rounds, style)
        return [{"role": "system", "content": planner_instructions(style=style)}, {"role": "user", "content": user}]


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """A question's completions: their texts, their scores, and how many `tokens` they have together."""

    question: PlanPrompt
    texts: tuple[str, ...]
    scored: tuple[ScoredPlan, ...]
    tokens: int

    @property
    def right(self) -> float:
        """The share of right answers."""
        return float(np.mean([one.right for one in self.scored]))

    def sample(self) -> CompletionSample:
        """Return one of its completions."""
        one = self.scored[0]
        return CompletionSample(self.question.item.task.prompt, self.texts[0], one.total, one.shape, one.right)


def second_round_prompts(firsts: Sequence[RolloutGroup], settings: TrainSettings, step: int) -> list[PlanPrompt]:
    """Return prompts for second rounds: for a share of the tasks, after different first rounds, wrong and right."""
    table = settings.second
    count = round(table.share * len(firsts)) if step >= table.begin * settings.grpo.steps else 0
    prompts: list[PlanPrompt] = []
    for group in firsts[:count]:
        drawn = zip(group.texts, group.scored, strict=True)
        performed = {text: one for text, one in drawn if one.rounds and one.total is not None}
        ordered = sorted(performed.items(), key=lambda pair: pair[1].right)
        half = table.firsts // 2
        for text, one in [*ordered[:half], *ordered[half:][-(table.firsts - half) :]]:
            prompts.append(PlanPrompt(group.question.item, one.rounds, (text,), one.right))
    return prompts
