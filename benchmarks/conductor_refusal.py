"""Whether the shipped pointer conductor knows what it cannot read: held-out tasks of the office, and everyday prompts.

    python benchmarks/conductor_refusal.py [--json]

The 300 everyday prompts were written for this script as different people would type them (`everyday.txt`). The rows are
the reading range in the file of the shipped pointer conductor, asked about 3,000 tasks of authors that it never saw and
about the everyday prompts. The control is the nearest training sentence by the text encoder, given the threshold that
refuses 2 % of the held-out tasks.
"""

from pathlib import Path

import numpy as np

from common import Figure, report
from shikisha.retrieval.text_encoder import Floats, shipped_encoder
from shikisha_train.office.office_tasks import office_tasks
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.pointer.pointer_conductor import load_pointer, shipped_pointer
from shikisha_train.pointer.reading_range import ReadingRange, split_sentences

SEEDS, TASKS = (5, 6, 7), 1000
EVERYDAY = (Path(__file__).parent / "everyday.txt").read_text("utf-8").splitlines()


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


if __name__ == "__main__":
    report("What the shipped conductor refuses to read", office_figures())
