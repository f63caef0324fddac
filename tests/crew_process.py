"""One process of a training that `accelerate launch` starts: python crew_process.py FOLDER; it writes its weights."""

import asyncio
import sys
from pathlib import Path

from safetensors.torch import save_file

import trainings
from shikisha.train.crew import our_crew
from shikisha.train.keeping import Shelf
from shikisha.train.opening import opened
from shikisha.train.record import Record
from shikisha.train.session import Order, Run
from shikisha.train.trl_backend import reinforced

TABLES = {"backend": "trl", "grpo": {"steps": 2, "kl": 0.0}}


async def trained(run: Run) -> None:
    await run.warmed(None)
    await reinforced(run, None)


if __name__ == "__main__":
    folder, crew = Path(sys.argv[1]), our_crew()
    settings = trainings.settings(folder / "start", **TABLES)
    order = Order(settings, trainings.ground(), folder / "run")
    record = Record(order.folder) if crew.main else None
    run = Run(order, Shelf(order.folder, 2, print), opened(str(folder / "start")), record)
    asyncio.run(trained(run))
    weights = {name: each.contiguous() for name, each in run.model.named_parameters()}
    save_file(weights, folder / f"{crew.rank}.safetensors")
    crew.leave()
