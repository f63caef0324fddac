"""One process of a training that `accelerate launch` starts: python crew_process.py FOLDER; it writes its weights."""

import asyncio
import sys
from pathlib import Path

import trainings
from safetensors.torch import save_file

from shikisha.training.checkpoint import CheckpointStore
from shikisha.training.metrics_log import StepLog
from shikisha.training.model_loader import load_model
from shikisha.training.process_group import current_process_group
from shikisha.training.training_run import TrainingJob, TrainingRun
from shikisha.training.trl import run_trl

TABLES = {"backend": "trl", "grpo": {"steps": 2, "kl": 0.0}}


async def trained(run: TrainingRun) -> None:
    await run.run_sft(None)
    await run_trl(run, None)


if __name__ == "__main__":
    folder, crew = Path(sys.argv[1]), current_process_group()
    settings = trainings.settings(folder / "start", **TABLES)
    order = TrainingJob(settings, trainings.ground(), folder / "run")
    record = StepLog(order.folder) if crew.main else None
    run = TrainingRun(order, CheckpointStore(order.folder, 2, print), load_model(str(folder / "start")), record)
    asyncio.run(trained(run))
    weights = {name: each.contiguous() for name, each in run.model.named_parameters()}
    save_file(weights, folder / f"{crew.rank}.safetensors")
    crew.leave()
