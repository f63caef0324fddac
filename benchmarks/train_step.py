"""What a step of training costs: TRL's against the plain loop's, turn by turn in one run, from the same weights.

    python benchmarks/train_step.py FOLDER [--steps N] [--json]

FOLDER holds a checkpoint after a warm start. Tasks are the rehearsal's; a step is one of the demo's training: 16 tasks,
32 plans for each, KL; then the same with second rounds for half of the tasks. The first step of each is left out.
"""

import argparse
import asyncio
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

import torch

from common import Figure, report
from shikisha.evals.taskset import TaskSplit
from shikisha.evals.tasksets.simulated import simulated_taskset
from shikisha.training.environment import TaskCurriculum
from shikisha.training.grpo import GRPOLoop
from shikisha.training.metrics import StepMetrics
from shikisha.training.model_loader import load_model
from shikisha.training.plan_reward import PlanScorer
from shikisha.training.settings import TrainSettings
from shikisha.training.trl import TrlLoop

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

TASKS = 800
GRPO = {"steps": 262, "tasks": 16, "group": 32, "rate": 1e-5, "kl": 0.03, "longest": 64}


async def measured(start: Path, count: int, share: float) -> tuple[list[StepMetrics], list[StepMetrics]]:
    """Return the steps of the plain loop and of TRL, taken in turn."""
    found = load_model(str(start))
    settings = TrainSettings.model_validate({"grpo": GRPO, "second": {"share": share}})
    items = simulated_taskset(TaskSplit.TRAIN, 1, TASKS).items
    plain, trl = (
        backend(
            deepcopy(cast("Qwen2ForCausalLM", found.model)),
            found.tokenizer,
            TaskCurriculum(lambda index: items[index % TASKS]),
            PlanScorer(settings.reward.weights()),
            settings,
            deepcopy(cast("Qwen2ForCausalLM", found.model)),
        )
        for backend in (GRPOLoop, TrlLoop)
    )
    pairs = [(await plain.advance(), await trl.advance()) for _ in range(count + 1)]
    return [one for one, _ in pairs[1:]], [other for _, other in pairs[1:]]


def figures(plain: list[StepMetrics], trl: list[StepMetrics], what: str) -> list[Figure]:
    """Return what the steps took."""
    taken = [[sum(step.seconds.values()) for step in steps] for steps in (plain, trl)]
    ratio = median(other / one for one, other in zip(*taken, strict=True))
    parts = [
        Figure(f"{what}: {name}, {part}", median(step.seconds[part] for step in steps), "s")
        for name, steps in (("plain", plain), ("TRL", trl))
        for part in steps[0].seconds
    ]
    whole = [Figure(f"{what}: {name}", median(one), "s") for name, one in zip(("plain", "TRL"), taken, strict=True)]
    tokens = Figure(f"{what}: tokens sampled", median(step.tokens for step in plain), "")
    return [tokens, *parts, *whole, Figure(f"{what}: TRL over plain", ratio, "x", aim=2.0)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("start", type=Path, metavar="FOLDER", help="a checkpoint after a warm start")
    parser.add_argument("--steps", type=int, default=4)
    given, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    told = [
        figure
        for what, share in (("one round", 0.0), ("second rounds", 0.5))
        for figure in figures(*asyncio.run(measured(given.start, given.steps, share)), what)
    ]
    report("A step of training", told)
