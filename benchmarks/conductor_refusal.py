"""Whether a trained conductor knows what it cannot read: how many of its own tasks it refuses, and of everyday ones.

    python benchmarks/conductor_refusal.py [CHECKPOINT] [--json]

The checkpoint is a folder with a `model.onnx` (by default the shipped one). Its own tasks are those of the
rehearsal's three splits, three seeds each, with the pools that were drawn for them. The 300 everyday prompts were
written for this script as different people would type them (`everyday.txt`); they meet chat workers as a README would
describe them, the same without descriptions, and the embedded orchestra. Nothing is decoded: only whether the conductor
would begin to write. The office's rows are the reading range in the file of the shipped pointer conductor, asked about
3,000 tasks of authors that it never saw and about the everyday prompts. The control is the nearest training sentence by
the text encoder, given the threshold that refuses 2 % of the held-out tasks.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from common import Figure, report
from shikisha.conductors.onnx_checkpoint import open_onnx_checkpoint, shipped_checkpoint
from shikisha.conductors.pointer_conductor import load_pointer, shipped_pointer
from shikisha.conductors.reading_range import ReadingRange, split_sentences
from shikisha.conductors.trained_model import TrainedConductor
from shikisha.config.container import build_container
from shikisha.core.budget import Price
from shikisha.core.task import Task
from shikisha.engine.worker import Card
from shikisha.retrieval.text_encoder import Floats, shipped_encoder
from shikisha.simulation.office.office_tasks import office_tasks
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit

SEEDS, TASKS = (5, 6, 7), 1000
EVERYDAY = (Path(__file__).parent / "everyday.txt").read_text("utf-8").splitlines()
CHAT = (
    Card("cheap", "Quick and cheap; good at short, clear tasks.", kind="chat", price=Price(0.0, 0.0)),
    Card("dear", "Slow and careful; strong at reasoning and code.", kind="chat", price=Price(1.25, 10.0)),
    Card("calculator", "Runs a short Python program and returns what it prints.", kind="python"),
)
BLANK = tuple(Card(card.name, kind=card.kind, price=card.price) for card in CHAT)


def refused(conductor: TrainedConductor, asked: Iterable[tuple[Task, Sequence[Card]]]) -> float:
    """Return the percentage of tasks that it says it cannot read."""
    return 100 * mean(conductor.unreadable(cards, task) is not None for task, cards in asked)


def office_figures() -> list[Figure]:
    """Return what a reading range for the office tells, and what the controls do."""
    sentences = [item.question.sentences for item in office_tasks(AuthorSplit.TRAIN, 1, count=1_500)]
    asked = [item.task.prompt for seed in SEEDS for item in office_tasks(AuthorSplit.HELDOUT, seed, count=TASKS)]
    fitted = load_pointer(shipped_pointer()).reader.known
    assert fitted is not None
    found = [
        Figure(
            "office, reading range: held-out tasks (3,000) told", told(fitted.familiarities(asked), fitted), "%", 2.0
        ),
        Figure(
            f"office, reading range: everyday prompts ({len(EVERYDAY)}) told",
            told(fitted.familiarities(EVERYDAY), fitted),
            "%",
            97.0,
            at_least=True,
        ),
    ]
    clean = list(dict.fromkeys(each for said in sentences for each in said))
    vectors = shipped_encoder().encode(clean)
    least = np.quantile([nearest(vectors, text) for text in asked], 0.02)
    share = 100 * float(np.mean([nearest(vectors, text) < least for text in EVERYDAY]))
    return [*found, Figure("office, nearest sentence by the encoder, at 2 % of held-out: everyday told", share, "%")]


def told(familiarities: Floats, fitted: ReadingRange) -> float:
    """Return the percentage below the threshold."""
    return 100 * float(np.mean(familiarities < fitted.threshold))


def nearest(vectors: Floats, text: str) -> float:
    """Return how near a text's nearest sentence is to one of these."""
    return float((shipped_encoder().encode(split_sentences(text)) @ vectors.T).max())


def main() -> None:
    """Measure and print."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    conductor = TrainedConductor("lm:measured", open_onnx_checkpoint(Path(given[0]) if given else shipped_checkpoint()))
    own = [
        (item.task, item.pool.cards)
        for split in (WordingSplit.HELDOUT, WordingSplit.DEV, WordingSplit.TRAIN)
        for seed in SEEDS
        for item in generate_tasks(split, seed, count=TASKS)
    ]
    embedded = build_container({"pool": ["simulated"]}, "here", Path()).cards()
    pools = {"chat workers": CHAT, "chat workers that say nothing": BLANK, "the embedded orchestra": embedded}
    found = [Figure(f"own tasks ({len(own):,}): refused", refused(conductor, own), "%", 0.0)]
    found += [
        Figure(f"everyday prompts ({len(EVERYDAY)}), {what}: refused", share, "%", 95.0, at_least=True)
        for what, cards in pools.items()
        for share in [refused(conductor, [(Task(prompt), cards) for prompt in EVERYDAY])]
    ]
    few = [(item.task, CHAT) for item in generate_tasks(WordingSplit.HELDOUT, SEEDS[0], count=TASKS)]
    found.append(Figure("own questions, chat workers: refused", refused(conductor, few), "%", 95.0, at_least=True))
    report("What a trained conductor refuses to read", [*found, *office_figures()])


if __name__ == "__main__":
    main()
