"""Train a pointer conductor on the office: lessons in language, then GRPO over performed plans.

    python benchmarks/train_pointer.py FILE [--seed 1] [--updates 2200] [--lessons 28000] [--reader OTHER]

Writes FILE (`pointer:FILE`). Some five minutes of CPU on one core. All workers are simulated. Lessons teach what
training authors' sentences and cards say. Who can do what is found out by performing plans alone, for crews with true,
false and blank cards and 0 to 300 outcomes a worker. `--reader` takes the reader of another such file instead of
teaching one.
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch

from common import machine
from shikisha.conductors.pointer_conductor import PointerModel, load_pointer, save_pointer
from shikisha.conductors.pointer_network import PointerNetwork
from shikisha.conductors.task_reader import TaskReader
from shikisha.routing.arrays import Floats32
from shikisha.simulation.office.language_lessons import OFFICE_KINDS, card_lessons, draw_lesson
from shikisha.simulation.office.office_batches import OfficeBatches
from shikisha.training.pointer_grpo import PointerTraining, train_pointer
from shikisha.training.task_reader_fit import fit_task_reader

EVERY = 200


def teach(lessons: int, seed: int) -> TaskReader:
    """Return a reader that so many lessons taught."""
    rng = random.Random(seed)
    texts = [[(each.text, str(each.role), each.uses) for each in draw_lesson(rng)] for _ in range(lessons)]
    return fit_task_reader(OFFICE_KINDS, texts, list(card_lessons()), seed)


def main() -> None:
    """Train and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=2_200)
    parser.add_argument("--lessons", type=int, default=28_000)
    parser.add_argument("--reader", type=Path, help="a pointer model whose reader is taken")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun, values = time.process_time(), list[float]()

    def report(update: int, value: float, shares: Floats32) -> None:
        values.append(value)
        if update % EVERY == EVERY - 1:
            modes = " / ".join(f"{share:.2f}" for share in shares)
            print(
                f"  update {update + 1}: value {np.mean(values[-EVERY:]):.3f}; call / opinion / vote / check {modes};"
                f" {time.process_time() - begun:.0f} s CPU",
                flush=True,
            )

    print(f"Pointer conductor, the office, simulated ({machine()})")
    reader = load_pointer(arguments.reader).reader if arguments.reader else teach(arguments.lessons, arguments.seed)
    print(f"  reading: {time.process_time() - begun:.0f} s CPU", flush=True)
    batches = OfficeBatches.draw_bank(arguments.seed)
    weights = train_pointer(
        batches, len(OFFICE_KINDS), PointerTraining(updates=arguments.updates, seed=arguments.seed), report
    )
    told = {"seed": str(arguments.seed), "updates": str(arguments.updates), "lessons": str(arguments.lessons)}
    save_pointer(arguments.file, PointerModel(reader, PointerNetwork(weights, np), ""), told)
    print(f"  {arguments.file}: {arguments.file.stat().st_size} bytes, {time.process_time() - begun:.0f} s CPU")


if __name__ == "__main__":
    main()
