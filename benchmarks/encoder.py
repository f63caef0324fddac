"""What the text encoder reads: kinds of work across authors, cards for questions, typing errors, and what it costs.

    python benchmarks/encoder.py [--file encoder.onnx] [--pairs pairs.tsv] [--json]

The texts are the office's: what held-out authors wrote is classified by what the training authors wrote (or, without
any of these, by the cards). Controls on the same texts, fitted on the same: words and runs of 3 to 5 letters by TF-IDF,
with the same nearest neighbors and the same logistic regression. With `--pairs` (`encoder_corpus.py`), also intents and
operations that training never saw. Typing errors: two letters swapped in two words of a sentence.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from common import machine
from shikisha.retrieval.text_encoder import TextEncoder, shipped_encoder
from shikisha.simulation.office.cards import card_authors, card_texts
from shikisha.simulation.office.company import OFFICE_OPERATIONS, WorkKind, draw_entity, write_value
from shikisha.simulation.office.questions import AuthorSplit, all_sentences

NEIGHBORS = 5
Vectors = NDArray[np.float32]
Names = NDArray[np.str_]
Encode = Callable[[Sequence[str]], Vectors]


def questions(split: AuthorSplit, seed: int = 0) -> tuple[list[str], Names]:
    """Return the sentences of a split's authors, with literals in their slots, and their kinds of work."""
    rng, texts, kinds = random.Random(seed), list[str](), list[str]()
    for name, template in all_sentences(split):
        operation = OFFICE_OPERATIONS[name]
        slots = dict(zip("cd", (str(rng.randint(*span)) for span in operation.constants), strict=False))
        slots["x"] = write_value(draw_entity(operation.takes[0], rng.randrange(1 << 30)))
        texts.append(template.format(**slots))
        kinds.append(str(operation.kind))
    return texts, np.array(kinds)


def cards(split: AuthorSplit) -> tuple[list[str], Names]:
    """Return the cards of a split's authors and their kinds of work."""
    rows = [
        (text, str(kind)) for kind in WorkKind for author in card_authors(split) for text in card_texts()[kind][author]
    ]
    return [text for text, _ in rows], np.array([kind for _, kind in rows])


def mistype(text: str, rng: random.Random) -> str:
    """Swap two letters in two words."""
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    for at in rng.sample(long, min(2, len(long))):
        cut = rng.randrange(1, len(words[at]) - 2)
        words[at] = words[at][:cut] + words[at][cut + 1] + words[at][cut] + words[at][cut + 2 :]
    return " ".join(words)


def tfidf(analyzer: str, runs: tuple[int, int], fitted_on: Sequence[str]) -> Encode:
    """Return a vectorizer that knows the words of these texts."""
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=runs, sublinear_tf=True).fit(fitted_on)
    return lambda texts: np.asarray(vectorizer.transform(texts).todense(), np.float32)


def by_neighbors(known: Vectors, kinds: Names, asked: Vectors) -> Names:
    """Return the kind that most of the nearest texts have, weighed by how near they are."""
    near = asked @ known.T
    found = np.argsort(-near, axis=1)[:, :NEIGHBORS]
    names = sorted(set(kinds))
    votes = [[np.sum(row[at][kinds[at] == name] + 1) for name in names] for row, at in zip(near, found, strict=True)]
    return np.array([names[at] for at in np.argmax(votes, axis=1)])


def by_regression(known: Vectors, kinds: Names, asked: Vectors) -> Names:
    """Return the kind that a logistic regression says."""
    model = LogisticRegression(C=10.0, max_iter=2_000).fit(known, kinds)
    return np.asarray(model.predict(asked))


def by_cards(known: Vectors, kinds: Names, asked: Vectors) -> Names:
    """Return the kind whose texts are nearest on average: no question was seen."""
    names = sorted(set(kinds))
    near = asked @ known.T
    best = np.argmax([[row[kinds == name].mean() for name in names] for row in near], axis=1)
    return np.array([names[at] for at in best])


def measure(encoder: TextEncoder) -> dict[str, dict[str, float]]:
    """Return the share of right answers by task and reader."""
    known, kinds = questions(AuthorSplit.TRAIN)
    asked, truth = questions(AuthorSplit.HELDOUT)
    said, said_kinds = cards(AuthorSplit.TRAIN)
    shown, shown_kinds = cards(AuthorSplit.HELDOUT)
    rng = random.Random(1)
    typed = [mistype(text, rng) for text in asked]
    readers: dict[str, Encode] = {
        "encoder": encoder.encode,
        "TF-IDF, words": tfidf("word", (1, 2), [*known, *said]),
        "TF-IDF, 3 to 5 letters": tfidf("char_wb", (3, 5), [*known, *said]),
    }
    found: dict[str, dict[str, float]] = {}
    for name, encode in readers.items():
        one, two, three, four, five = map(encode, (known, asked, said, shown, typed))
        for task, right in {
            "held-out questions, 5 nearest": by_neighbors(one, kinds, two) == truth,
            "held-out questions, regression": by_regression(one, kinds, two) == truth,
            "the same with typing errors, regression": by_regression(one, kinds, five) == truth,
            "held-out cards, 5 nearest": by_neighbors(three, said_kinds, four) == shown_kinds,
            "held-out cards, regression": by_regression(three, said_kinds, four) == shown_kinds,
            "held-out questions by held-out cards, nothing fitted": by_cards(four, shown_kinds, two) == truth,
        }.items():
            found.setdefault(task, {})[name] = float(np.mean(right))
    return found


def measure_pairs(encoder: TextEncoder, file: Path, most: int = 2_000) -> dict[str, dict[str, float]]:
    """Return the same for intents and operations of providers that training never saw."""
    rows: dict[str, list[list[str]]] = {}
    with file.open(encoding="utf-8") as opened:
        for line in opened:
            source, *row = line.rstrip("\n").split("\t")
            if "held" in source:
                rows.setdefault(source, []).append(row)
    found: dict[str, dict[str, float]] = {}
    texts = sorted({(text, group) for group, *both in rows.pop("intent_held") for text in both})
    drawn = random.Random(0).sample(texts, min(most, len(texts)))
    words, groups = [text for text, _ in drawn], np.array([group for _, group in drawn])
    for name, encode in {"encoder": encoder.encode, "TF-IDF, 3 to 5 letters": tfidf("char_wb", (3, 5), words)}.items():
        vectors = encode(words)
        near = vectors @ vectors.T
        np.fill_diagonal(near, -2)
        found.setdefault(f"held-out intents, nearest of {len(words):,}", {})[name] = float(
            np.mean(groups[near.argmax(1)] == groups)
        )
    for source, pairs in sorted(rows.items()):
        drawn_pairs = random.Random(0).sample(pairs, min(most, len(pairs)))
        left, right = [row[1] for row in drawn_pairs], [row[2] for row in drawn_pairs]
        for name, encode in {
            "encoder": encoder.encode,
            "TF-IDF, 3 to 5 letters": tfidf("char_wb", (3, 5), [*left, *right]),
        }.items():
            best = (encode(left) @ encode(right).T).argmax(1)
            found.setdefault(f"{source}, the other half of {len(left):,}", {})[name] = float(
                np.mean(best == np.arange(len(left)))
            )
    return found


def costs(encoder: TextEncoder) -> dict[str, float]:
    """Return CPU time: one sentence alone, and one of many at once, in milliseconds."""
    texts, _ = questions(AuthorSplit.HELDOUT)
    encoder.encode(texts[:10])
    begun = time.process_time()
    for text in texts:
        encoder.encode([text])
    alone = time.process_time() - begun
    begun = time.process_time()
    encoder.encode(texts)
    together = time.process_time() - begun
    return {"one alone, ms": 1e3 * alone / len(texts), "one of many, ms": 1e3 * together / len(texts)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    encoder = TextEncoder(arguments.file) if arguments.file else shipped_encoder()
    found = measure(encoder)
    if arguments.pairs:
        found |= measure_pairs(encoder, arguments.pairs)
    took = costs(encoder)
    if arguments.json:
        print(json.dumps({"right": found, "cost": took}, indent=1))
        return
    print(f"The text encoder ({machine()})")
    for task, by in found.items():
        print(f"  {task:<56} " + "  ".join(f"{name} {share:.3f}" for name, share in by.items()))
    print("  " + ", ".join(f"{name} {value:.2f}" for name, value in took.items()) + " (CPU)")


if __name__ == "__main__":
    main()
