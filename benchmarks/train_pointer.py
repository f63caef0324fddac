"""Train a pointer conductor on the office, as `shikisha train pointer` does, with the machine and the CPU time said.

    python benchmarks/train_pointer.py FILE [--seed 1] [--updates 3500] [--lessons 28000] [--reader OTHER]

Writes FILE (`pointer:FILE`). Some 25 minutes of CPU on one core, 22 of them for reading. All workers are simulated;
what is taught and what is found out by outcomes stands in `shikisha_train.office_pointer`. `--reader` takes the
reader of another such file instead of teaching one.
"""

import argparse
import time
from pathlib import Path

import torch

from common import machine
from shikisha_train.office_pointer import OfficeProgress, OfficeTraining, train_office_pointer
from shikisha_train.pointer.pointer_conductor import load_reader, save_pointer


def main() -> None:
    """Train and write the file."""
    default = OfficeTraining()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--updates", type=int, default=default.updates)
    parser.add_argument("--lessons", type=int, default=default.lessons)
    parser.add_argument("--reader", type=Path, help="a pointer model whose reader is taken")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()

    def report(progress: OfficeProgress) -> None:
        what = f"reading {progress.read:.0%}"
        if progress.updates:
            modes = " / ".join(f"{share:.2f}" for share in progress.shares)
            what = f"update {progress.updates}: value {progress.value:.3f}; call / opinion / vote / check {modes}"
        print(f"  {what}; {time.process_time() - begun:.0f} s CPU", flush=True)

    print(f"Pointer conductor, the office, simulated ({machine()})")
    settings = OfficeTraining(arguments.seed, arguments.updates, arguments.lessons)
    reader = load_reader(arguments.reader) if arguments.reader else None
    save_pointer(arguments.file, train_office_pointer(settings, reader, report), settings.describe())
    print(f"  {arguments.file}: {arguments.file.stat().st_size} bytes, {time.process_time() - begun:.0f} s CPU")


if __name__ == "__main__":
    main()
