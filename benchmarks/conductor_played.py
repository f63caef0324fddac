"""Who plays in `conductor.py` and what comes of it: checkpoints write plans, the real engine performs them.

All contenders see the same tasks, pools and luck; a contender that was trained several times (seeds) is one contender
with several rows. Invariant: plans are the likeliest texts, or by lot from a seeded generator, so the same command
comes to the same figures. Deliberately absent: statistics (`conductor_figures`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shikisha.conductors.onnx_checkpoint import SHIPPED, open_onnx_checkpoint, shipped_checkpoint
from shikisha.conductors.trained_model import GenerationSettings, SamplingSettings, generate_tokens
from shikisha.core.prompts import compact_prompt
from shikisha.core.run import RoundResult, Run
from shikisha.engine.conductor import Conductor
from shikisha.evals.reward import step_workers
from shikisha.simulation.demo_run import SimulatedRun, run_tasks
from shikisha.simulation.task_generator import SimulatedTask
from shikisha.training.plan_reward import NO_PLAN, TextConductor, plan_shape

Floats = NDArray[np.float64]
Author = Callable[[Sequence[str]], list[str]]  # prompts, and what is written after each

BATCH, LONGEST = 128, 128


@dataclass(frozen=True)
class Contender:
    """Trials over a cut's tasks, in their order: [S][T], a row for each seed (a control has one).

    `note` says what a reader must know of how it was made.
    """

    trials: Sequence[Sequence[SimulatedRun]]
    note: str = ""

    @cached_property
    def right(self) -> Floats:
        """[S, T]: whether each answer was right."""
        return np.array([[trial.right for trial in row] for row in self.trials], float)

    @cached_property
    def dollars(self) -> Floats:
        """[S, T]: what each run cost."""
        return np.array([[trial.dollars for trial in row] for row in self.trials], float)

    @cached_property
    def calls(self) -> Floats:
        """[S, T]: how many steps were performed."""
        return np.array([[trial.steps for trial in row] for row in self.trials], float)

    @cached_property
    def shapes(self) -> list[list[str]]:
        """[S][T]: the first plan's topology and length."""
        return [[first_shape(trial.run) for trial in row] for row in self.trials]

    @cached_property
    def valid(self) -> Floats:
        """[S, T]: whether there was a plan."""
        return np.array([[shape != NO_PLAN for shape in row] for row in self.shapes], float)

    @cached_property
    def asked(self) -> list[Counter[str]]:
        """[S]: how often each worker was asked."""
        return [Counter(worker for trial in row for worker in who(trial.run)) for row in self.trials]

    def counts(self, names: Sequence[str]) -> Floats:
        """Return [S, T, W]: how often each of these workers was asked."""
        rows = [[Counter(who(trial.run)) for trial in row] for row in self.trials]
        return np.array([[[counted[name] for name in names] for counted in row] for row in rows], float)

    def shares(self) -> dict[str, float]:
        """Return who was asked how often, as shares of all calls, over all seeds."""
        return _shares(sum(self.asked, Counter[str]()))

    def topologies(self) -> dict[str, float]:
        """Return the shares of first plans by topology and length, over all seeds."""
        return _shares(Counter(shape for row in self.shapes for shape in row))


def who(run: Run) -> list[str]:
    """Return who performed the run's steps; workers that are alike but for their number are one."""
    return [worker.partition(" ")[0] for worker in step_workers(run)]


def first_shape(run: Run) -> str:
    """Return the shape of the run's first plan."""
    plan = run.rounds[0].plan if run.rounds else None
    return plan_shape(plan) if plan else NO_PLAN


def _shares(counted: Counter[str]) -> dict[str, float]:
    return {name: times / counted.total() for name, times in counted.most_common()}


def control(found: Sequence[SimulatedTask], conductor: Conductor, cast: Sequence[str] = ()) -> Contender:
    """Perform the items with one conductor, over these workers where some are named."""
    staged = [item.with_workers(*cast) for item in found] if cast else found
    return Contender([asyncio.run(run_tasks(staged, conductor))])


def trained(found: Sequence[SimulatedTask], authors: Sequence[Author]) -> Contender:
    """Perform what each author writes for the items."""
    return Contender([performed(found, [(text,) for text in author(prompts(found))]) for author in authors])


def performed(found: Sequence[SimulatedTask], texts: Sequence[tuple[str, ...]]) -> list[SimulatedRun]:
    """Perform each item by its own texts, one a round."""

    async def all_of_them() -> list[SimulatedRun]:
        pairs = zip(found, texts, strict=True)
        lists = await asyncio.gather(*(run_tasks([item], TextConductor(said)) for item, said in pairs))
        return [trials[0] for trials in lists]

    return asyncio.run(all_of_them())


def prompts(found: Sequence[SimulatedTask], rounds: Sequence[tuple[RoundResult, ...]] = ()) -> list[str]:
    """Return what an author reads of each item, after these rounds."""
    past = rounds or [()] * len(found)
    return [compact_prompt(item.task, item.pool.cards, gone) for item, gone in zip(found, past, strict=True)]


def author(folder: Path, temperature: float = 0.0) -> Author:
    """Return the checkpoint of a folder, or the one in the package: the likeliest text, or one by lot."""
    if str(folder) == SHIPPED:
        return _shipped_author(temperature)
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM
    from transformers.utils import logging

    from shikisha.training.process_group import default_device
    from shikisha.training.rollout import SamplingParams, sample

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.nn.Module.to(model, default_device())
    model.train(mode=False)

    def write(asked: Sequence[str]) -> list[str]:
        lot = torch.Generator().manual_seed(0)
        texts: list[str] = []
        for first in range(0, len(asked), BATCH):
            tokens = [tokenizer.encode(prompt).ids for prompt in asked[first : first + BATCH]]
            rows = sample(model, tokens, 1, LONGEST, lot, SamplingParams(temperature)).rows()
            texts += [tokenizer.decode(row[0], skip_special_tokens=False) for row in rows]
        return texts

    return write


def _shipped_author(temperature: float) -> Author:
    model = open_onnx_checkpoint(shipped_checkpoint())
    lot = SamplingSettings(temperature, 0) if temperature else None

    def write(asked: Sequence[str]) -> list[str]:
        settings = GenerationSettings(LONGEST, model.ends, lot)
        return [model.decode(generate_tokens(model.model, model.encode(prompt), settings).tokens) for prompt in asked]

    return write
