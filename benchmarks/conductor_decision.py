"""What a decision of a trained conductor takes on one core: milliseconds from a situation to a parsed plan.

    python benchmarks/conductor_decision.py [CHECKPOINT] [--json]

The checkpoint is a folder with a `model.onnx` (by default the shipped one); held-out tasks of the rehearsal, each with
its pool, one after another; the process is held to one core. Processor time is what the decision costs; wall-clock time
is what one waits on this machine with whatever else it does. With weights beside the export, transformers too.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from time import perf_counter, process_time

from common import Figure, report
from shikisha.conductors.onnx_checkpoint import ONNX_FILE, WEIGHTS_FILE, open_onnx_checkpoint, shipped_checkpoint
from shikisha.conductors.trained_model import PlanDecoding, PlanModel, TrainedConductor
from shikisha.core.errors import PlanError
from shikisha.engine.conductor import Situation
from shikisha.evals.tasksets.simulated import simulated_items

TASKS, WARM = 200, 20
AIM = 60.0
FEW = 40  # tasks for transformers


async def decided(
    author: PlanModel, manner: PlanDecoding, at: Sequence[Situation]
) -> tuple[list[float], list[float], list[int]]:
    """Return wall-clock and processor milliseconds of every decision, and how many tokens were written."""
    conductor = TrainedConductor("lm:measured", author, manner=manner)
    walls, used, written = [], [], []
    for place, situation in enumerate([*at[:WARM], *at]):
        begun, spent = perf_counter(), process_time()
        try:
            text = (await conductor.propose(situation)).text
        except PlanError:
            text = ""
        if place >= WARM:
            walls.append(1e3 * (perf_counter() - begun))
            used.append(1e3 * (process_time() - spent))
            written.append(len(author.encode(text)))
    return walls, used, written


def figures(
    what: str, author: PlanModel, manner: PlanDecoding, at: Sequence[Situation], aim: float | None = AIM
) -> list[Figure]:
    """Measure one way to write."""
    walls, used, written = asyncio.run(decided(author, manner, at))
    return [
        Figure(f"{what}: processor time, median", median(used), "ms", aim),
        Figure(f"{what}: processor time, slowest of 100", sorted(used)[int(0.99 * len(used))], "ms"),
        Figure(f"{what}: wall clock, median", median(walls), "ms"),
        Figure(f"{what}: tokens written, mean", mean(written), ""),
    ]


def main() -> None:
    """Measure and print."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    folder = Path(given[0]) if given else shipped_checkpoint()
    at = [Situation(item.task, item.pool.cards) for item in simulated_items("heldout", 5, TASKS)]
    begun = perf_counter()
    author = open_onnx_checkpoint(folder)
    found = [
        Figure("loading", 1e3 * (perf_counter() - begun), "ms"),
        Figure(f"{ONNX_FILE}", (folder / ONNX_FILE).stat().st_size / 1e6, "MB", 4.0),
        Figure("tokens of a prompt, mean", mean(len(author.prompt(one)) for one in at), ""),
        *figures("likeliest, only plans", author, PlanDecoding(), at),
        *figures("likeliest, anything", author, PlanDecoding(constrained=False), at),
        *figures("by lot, only plans", author, PlanDecoding(1.0), at),
    ]
    if (folder / WEIGHTS_FILE).is_file() and find_spec("torch") and find_spec("transformers"):
        import torch

        from shikisha.training.inference import open_checkpoint

        torch.set_num_threads(1)
        found += figures("transformers, likeliest, only plans", open_checkpoint(folder), PlanDecoding(), at[:FEW], None)
    report("A decision of a trained conductor", found)


if __name__ == "__main__":
    main()
