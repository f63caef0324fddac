"""How well a task reader reads authors whom it was not taught: lessons by some training authors, texts by the others.

    python benchmarks/reader.py [--trunk trunk.safetensors] [--without boss,form,...] [--lessons 56000] [--texts 600]
    python benchmarks/reader.py --file pointer.safetensors --without boss,form       # a reader that is there

Prints the share of texts that are read wholly right (none is left whole), by author, and what is wrong with the others.
Settings are chosen by this, on training authors alone: held-out and fresh authors are not in it.
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from conductor_office import judge_reading
from shikisha.conductors import task_reader
from shikisha.conductors.pointer_conductor import PointerModel, load_pointer, save_pointer
from shikisha.conductors.pointer_network import PointerNetwork, first_weights
from shikisha.conductors.task_reader import TaskReader
from shikisha.routing.arrays import Floats32
from shikisha.simulation.office.language_lessons import OFFICE_KINDS, card_lessons, draw_lesson, draw_question_text
from shikisha.simulation.office.questions import AuthorSplit, OfficeQuestion, office_authors
from shikisha.training.task_reader_fit import fit_task_reader, read_trunk

WITHOUT = "boss,form,texter,foreign,nurse,professor,grandmother,analyst,speaker,journalist"


def report(reader: TaskReader, drawn: list[tuple[OfficeQuestion, str, float]], title: str) -> None:
    """Print the shares."""
    task_reader.DOUBTFUL, kept = 2.0, task_reader.DOUBTFUL
    by, wrong = defaultdict[str, list[bool]](list), Counter[str]()
    conditions, rows, begun = list[bool](), list[tuple[float, bool]](), time.process_time()
    for question, text, value in drawn:
        read = reader.read(text)
        said, doubt = judge_reading(read, question, value), read.doubt
        by[question.author].append(said == "right")
        rows.append((doubt, said == "right"))
        wrong[said] += 1
        if question.condition is not None:
            conditions.append(said == "right")
    task_reader.DOUBTFUL = kept
    taken = (time.process_time() - begun) / len(drawn) * 1e3
    kept_rows = [right for doubt, right in rows if doubt <= kept]
    shares = ", ".join(f"{author} {np.mean(found):.2f}" for author, found in sorted(by.items()))
    print(
        f"{title}: right {wrong['right'] / len(drawn):.3f}, with a condition {np.mean(conditions):.3f};"
        f" {dict(wrong.most_common())}; not in doubt {len(kept_rows) / len(rows):.2f}, of these right"
        f" {np.mean(kept_rows or [False]):.3f}; {shares}; {taken:.1f} ms a text",
        flush=True,
    )


def main() -> None:
    """Teach and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a pointer model whose reader is judged")
    parser.add_argument("--trunk", type=Path)
    parser.add_argument("--without", default=WITHOUT, help="training authors who are left out of the lessons")
    parser.add_argument("--lessons", type=int, default=56_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--keep", type=Path, help="write the reader there, as a pointer model whose network is untrained"
    )
    arguments = parser.parse_args()
    left_out = tuple(arguments.without.split(",")) if arguments.without else ()
    draws = random.Random(77)
    drawn = [draw_question_text(draws, left_out or None) for _ in range(arguments.texts)]
    if arguments.file is not None:
        report(load_pointer(arguments.file).reader, drawn, str(arguments.file))
        return
    taught = tuple(author for author in office_authors(AuthorSplit.TRAIN) if author not in left_out)
    rng, begun = random.Random(arguments.seed), time.monotonic()
    texts = [
        [(each.text, str(each.role), each.uses) for each in draw_lesson(rng, taught)] for _ in range(arguments.lessons)
    ]
    trunk = read_trunk(arguments.trunk) if arguments.trunk else None
    reader = task_reader_of(texts, trunk, arguments)
    print(f"  taught in {time.monotonic() - begun:.0f} s", flush=True)
    if arguments.keep is not None:
        network = PointerNetwork(first_weights(len(OFFICE_KINDS), 0), np)
        save_pointer(arguments.keep, PointerModel(reader, network, ""), {"network": "untrained"})
    report(reader, drawn, f"{arguments.trunk}, {arguments.lessons} lessons, {arguments.epochs} epochs")


def task_reader_of(
    texts: list[list[tuple[str, str, int]]], trunk: Mapping[str, Floats32] | None, arguments: argparse.Namespace
) -> TaskReader:
    """Return a reader that the lessons taught."""
    torch.set_num_threads(1)
    return fit_task_reader(
        OFFICE_KINDS, texts, list(card_lessons()), arguments.seed, tag_epochs=arguments.epochs, trunk=trunk,
        device=arguments.device,
    )  # fmt: skip


if __name__ == "__main__":
    main()
