"""What the parts of one step of the plain loop take, in seconds and in processor time, and tokens a second.

    python benchmarks/train_speed.py [FOLDER] [--steps N] [--threads N] [--json]

FOLDER holds a checkpoint; without one, a model from scratch of the demo's size is measured: it writes noise, so its
completions share little but their prompts, and advantages are drawn by lot. A step is one of the demo's: 16 tasks of
the rehearsal, 32 plans for each, KL. Figures are medians over steps; the weights stay what they are, so that every step
has the same work to do.
"""

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from common import Figure, report
from shikisha.evals.taskset import TaskSplit
from shikisha.evals.tasksets.simulated import simulated_item
from shikisha.simulation.sft_examples import generate_example, plan_subtasks
from shikisha.training import grpo
from shikisha.training.grpo import compute_advantages
from shikisha.training.model_loader import load_model, new_qwen2
from shikisha.training.plan_reward import PlanScorer, reward_array
from shikisha.training.rollout import (
    PlanPrompt,
    TrainingBatch,
    make_groups,
    plant_completions,
    sample,
    training_batch,
)
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import plan_pieces, word_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

SETTINGS = TrainSettings.model_validate(
    {"grpo": {"tasks": 16, "group": 32, "kl": 0.03, "longest": 96}, "reward": {"cost": 5.0}}
)


class Clock:
    """How long parts took: seconds and processor seconds, step by step."""

    def __init__(self) -> None:
        self.taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.counted: dict[str, list[int]] = defaultdict(list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        begun = perf_counter(), process_time()
        yield
        self.taken[name].append((perf_counter() - begun[0], process_time() - begun[1]))


class Parts:
    """A policy and what it takes to measure a step of it."""

    def __init__(self, model: "Qwen2ForCausalLM", tokenizer: "Tokenizer") -> None:
        self.model, self.reference, self.tokenizer = model, deepcopy(model), tokenizer
        model.train(mode=False)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
        self.scorer = PlanScorer(SETTINGS.reward.weights())
        self.clock = Clock()

    async def step(self, number: int) -> None:
        """Do and time what a step does."""
        table, part = SETTINGS.grpo, self.clock.part
        with part("draw tasks, write prompts"):
            items = [simulated_item(TaskSplit.TRAIN, 1, number * table.tasks + place) for place in range(table.tasks)]
            prompts = [self.tokenizer.encode(PlanPrompt(item).text(self.tokenizer)).ids for item in items]
        with part("sample"):
            drawn = sample(self.model, prompts, table.group, table.longest, torch.Generator().manual_seed(number))
        with part("perform"):
            texts = [[self.tokenizer.decode(row, skip_special_tokens=False) for row in rows] for rows in drawn.rows()]
            found = await self.scorer.scores(texts, items)
        with part("compare"):
            rewards = reward_array([one for each in found for one in each])
            wished = compute_advantages(rewards, np.repeat(np.arange(table.tasks), table.group))
            if not wished.any():
                wished = np.random.default_rng(number).normal(size=len(rewards))
            groups = make_groups([PlanPrompt(item) for item in items], prompts, drawn, texts, found)
            batch = training_batch(groups, wished)
        self.clock.counted["tokens sampled"].append(int(drawn.mask.sum()))
        if batch is not None:
            self._learn(batch)

    def _learn(self, batch: TrainingBatch) -> None:
        part, clip = self.clock.part, SETTINGS.grpo.clip
        with part("learn: plant a tree"):
            ones = plant_completions(batch.prompts, batch.tokens, batch.mask)
        with part("learn: read by the reference"), torch.no_grad():
            held = ones.logprobs(self.reference)
        with part("learn: read by the policy"):
            spread = ones.logprobs(self.model)
            policy = grpo.clipped_surrogate(
                ones.token_logprobs(spread), batch.old_logprobs, batch.advantages, clip, clip
            )
            divergence = ones.expand(grpo.exact_kl(spread, held))
            total = grpo.mean_over_completions(policy + SETTINGS.grpo.kl * divergence, batch.mask, batch.counts)
        with part("learn: gradients"):
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(total)
        with part("learn: move the weights"):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        self.clock.counted["tokens learned from"].append(int((batch.mask.sum(-1) * batch.counts).sum()))
        self.clock.counted["nodes they are, with their prompts"].append(sum(len(tree.tokens) for tree in ones.trees))


def figures(clock: Clock) -> list[Figure]:
    """Return what was measured: medians of each part, and of all of them together."""
    counted = [Figure(name, median(each), "") for name, each in clock.counted.items()]
    parts = {name: [median(one[place] for one in each) for place in (0, 1)] for name, each in clock.taken.items()}
    parts["a step"] = [sum(each[place] for each in parts.values()) for place in (0, 1)]
    seconds = [Figure(name, wall, "s") for name, (wall, _) in parts.items()]
    processor = [Figure(f"{name}: processor", used, "s") for name, (_, used) in parts.items()]
    speed = median(clock.counted["tokens sampled"]) / parts["a step"][0]
    return [*counted, *seconds, *processor, Figure("tokens sampled a second, all parts together", speed, "")]


def begun(folder: Path | None) -> tuple["Qwen2ForCausalLM", "Tokenizer"]:
    """Return the folder's model and tokenizer, or those of one that has learned nothing."""
    if folder is not None:
        found = load_model(str(folder))
        return cast("Qwen2ForCausalLM", found.model), found.tokenizer
    words = word_tokenizer((generate_example(0, place).prompt for place in range(2000)), plan_pieces(plan_subtasks()))
    return new_qwen2(words.get_vocab_size()), words


async def measured(parts: Parts, count: int) -> Clock:
    """Return what so many steps took, after one that does not count."""
    await parts.step(0)
    parts.clock = Clock()
    for number in range(1, count + 1):
        await parts.step(number)
    return parts.clock


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "start", type=Path, nargs="?", metavar="FOLDER", help="a checkpoint; without it, one from scratch"
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given, _ = parser.parse_known_args()
    torch.set_num_threads(given.threads)
    told = figures(asyncio.run(measured(Parts(*begun(given.start)), given.steps)))
    report(f"A step of the plain loop, {given.threads} threads", told)
