"""Write what ordinary texts look like to a reading range: hashed features of texts that no conductor was trained on.

    python benchmarks/encoder_background.py pairs.tsv background.npz

The texts are requests, examples and sentences of the pairs' sources (`encoder_corpus.py`); the file holds numbers of
hashed words and runs of letters, and no text. `shikisha.conductors.reading_range` compares with it.
"""

import argparse
import random
from collections import defaultdict
from pathlib import Path

import numpy as np

from shikisha.conductors.reading_range import hash_sentences

DRAWN = {"intent": 2_400, "wordnet_example": 500, "wordnet_use": 400, "openapi": 200, "dialog": 400, "docstring": 200}


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    rows = defaultdict[str, list[str]](list)
    with arguments.pairs.open(encoding="utf-8") as opened:
        for line in opened:
            source, _, first, _ = line.rstrip("\n").split("\t")
            rows[source].append(first)
    rng = random.Random(0)
    texts = [
        text for source, count in DRAWN.items() for text in rng.sample(rows[source], min(count, len(rows[source])))
    ]
    features = hash_sentences(texts)
    sizes, places = np.diff(features.starts).astype(np.uint16), features.places.astype(np.uint16)
    np.savez_compressed(arguments.out, sizes=sizes, places=places)
    print(f"{len(texts):,} texts, {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
