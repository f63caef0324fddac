"""Files for a task: which files a commit changes, found from its message alone.

    python benchmarks/context.py REPOSITORY... [--commits 150] [--fit] [--json]

Each REPOSITORY is a git repository with its history (`git clone --bare`). For each of its newest commits that change 1
to 10 files, the query is the message; what is indexed is the tree and the history from before (at most ten commits
older). R@10 is the share of the changed files that were there and are among the first ten. Controls: BM25 over whole
files, and the files that changed lately, without reading the message at all. `--fit` fits the weights on these
repositories instead.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from common import Figure, report
from shikisha.context.git_history import Commit, GitRepository
from shikisha.gatherers.file_gatherer import FEATURES, WEIGHTS, FileSearch
from shikisha.retrieval.text_index import Vocabulary

Floats = NDArray[np.float64]
BLOCK, MOST_CHANGED, TOP = 10, 10, 10
_LARGEST = 300_000  # bytes of a file that is indexed
_BOOTSTRAPS = 2_000


@dataclass(frozen=True)
class Query:
    """A commit's message, and which of the indexed files it changes."""

    text: str
    right: frozenset[int]
    features: Floats
    bm25: Floats


class WholeFiles:
    """BM25 (k1 1.2, b .75) over whole files with their names, without any limit of length."""

    def __init__(self, names: Sequence[str], texts: Sequence[str], cache: dict[str, Counter[int]]) -> None:
        self._counts = [self._count(f"{name}\n{text}", cache) for name, text in zip(names, texts, strict=True)]
        self._lengths = np.array([sum(counts.values()) for counts in self._counts], float)
        self._postings: dict[int, list[int]] = {}
        for place, counts in enumerate(self._counts):
            for term in counts:
                self._postings.setdefault(term, []).append(place)

    @staticmethod
    def _count(text: str, cache: dict[str, Counter[int]]) -> Counter[int]:
        if text not in cache:
            cache[text] = Counter(terms_of(text))
        return cache[text]

    def scores(self, query: str) -> Floats:
        """Return the score of each file."""
        scores = np.zeros(len(self._counts))
        norm = 1.2 * (0.25 + 0.75 * self._lengths / max(1.0, self._lengths.mean()))
        for term in set(terms_of(query)):
            places = self._postings.get(term, [])
            rarity = log(1 + (len(scores) - len(places) + 0.5) / (len(places) + 0.5))
            for place in places:
                often = self._counts[place][term]
                scores[place] += rarity * often * 2.2 / (often + norm[place])
        return scores


_VOCABULARY = Vocabulary()


def terms_of(text: str) -> list[int]:
    """Return a text's terms, as the index has them, as numbers."""
    return _VOCABULARY.add_text(text)


def queries(repository: GitRepository, most: int) -> Iterator[Query]:
    """Yield the queries of a repository's newest commits."""
    commits = repository.commits(10 * most + 3_000)
    cache: dict[str, Counter[int]] = {}
    done = 0
    for start in range(0, len(commits), BLOCK):
        block, older = commits[start : start + BLOCK], commits[start + BLOCK :]
        usable = [commit for commit in block if 1 <= len(commit.files) <= MOST_CHANGED and commit.message]
        if done >= most or len(older) < 20:
            return
        if not usable:
            continue
        tree = repository.tree(older[0].sha, _LARGEST)
        files = {name: text for name, data in tree.items() if (text := _text(data)) is not None}
        index = FileSearch(files, older)
        whole = WholeFiles(index.names, [files[name] for name in index.names], cache)
        place = {name: number for number, name in enumerate(index.names)}
        for commit in usable:
            right = frozenset(place[name] for name in commit.files if name in place)
            if right and done < most:
                done += 1
                yield Query(commit.message, right, index.features(commit.message), whole.scores(commit.message))


def _text(data: bytes) -> str | None:
    if len(data) > _LARGEST or b"\0" in data[:8_000]:
        return None
    return data.decode(errors="replace")


def recall(scores: Floats, right: frozenset[int]) -> float:
    """Return the share of the right files among the first ten."""
    order = np.lexsort((np.arange(len(scores)), -scores))[:TOP]
    return len(right.intersection(order.tolist())) / len(right)


def fit(sets: Sequence[Sequence[Query]]) -> Floats:
    """Return weights by logistic regression over files, all commits alike."""
    from sklearn.linear_model import LogisticRegression

    rows, labels, weights = [], [], []
    luck = np.random.default_rng(0)
    for query in (query for found in sets for query in found):
        right = np.array(sorted(query.right))
        others = np.setdiff1d(np.arange(len(query.features)), right)
        hard = others[np.argsort(-query.features[others].sum(axis=1))[:30]]
        easy = luck.choice(others, min(30, len(others)), replace=False)
        for places, label in ((right, 1), (hard, 0), (easy, 0)):
            rows.append(query.features[places])
            labels += [label] * len(places)
            weights += [1.0 / len(right) if label else 1 / 30] * len(places)
    model = LogisticRegression(C=10.0, max_iter=1_000).fit(np.concatenate(rows), labels, sample_weight=weights)
    found: Floats = model.coef_[0]
    return found


def figures_of(name: str, found: Sequence[Query], weights: Floats) -> list[Figure]:
    """Return recall of ours, of BM25 and of what changed lately, and the paired gain over BM25."""
    ours = np.array([recall(query.features @ weights, query.right) for query in found])
    bm25 = np.array([recall(query.bm25, query.right) for query in found])
    lately = np.array([recall(query.features[:, FEATURES.index("lately")], query.right) for query in found])
    words = weights.copy()
    words[[FEATURES.index(one) for one in ("messages", "lately", "together")]] = 0.0
    plain = np.array([recall(query.features @ words, query.right) for query in found])
    draws = np.random.default_rng(1).integers(0, len(found), (_BOOTSTRAPS, len(found)))
    low, high = np.quantile((ours - bm25)[draws].mean(axis=1), (0.025, 0.975))
    return [
        Figure(f"{name}: commits", len(found), ""),
        Figure(f"{name}: BM25 R@10", bm25.mean(), ""),
        Figure(f"{name}: changed lately R@10", lately.mean(), ""),
        Figure(f"{name}: without history R@10", plain.mean(), ""),
        Figure(f"{name}: R@10", ours.mean(), ""),
        Figure(f"{name}: gain over BM25", (ours - bm25).mean(), f"[{low:+.3f}, {high:+.3f}]"),
    ]


def drop_one(found: Sequence[Query], weights: Floats) -> Iterator[tuple[str, float]]:
    """Yield what recall loses without each feature."""
    ours = np.mean([recall(query.features @ weights, query.right) for query in found])
    for place, name in enumerate(FEATURES):
        less = weights.copy()
        less[place] = 0.0
        yield name, float(ours - np.mean([recall(query.features @ less, query.right) for query in found]))


def search_speed(files: int = 5_000) -> list[Figure]:
    """Return seconds to index and to search made files."""
    luck = np.random.default_rng(3)
    words = [f"{a}{b}" for a in ("read", "write", "parse", "join", "fold", "send", "plan", "cost") for b in range(400)]
    made = {}
    for number in range(files):
        lines = [
            f"def {luck.choice(words)}_{luck.choice(words)}(value):\n    return {luck.choice(words)}(value)\n"
            for _ in range(25)
        ]
        made[f"src/pack{number % 50}/{luck.choice(words)}_{number}.py"] = "\n".join(lines)
    names = list(made)
    history = [
        Commit(str(age), (), 0, " ".join(luck.choice(words, 12)), tuple(luck.choice(names, 3))) for age in range(5_000)
    ]
    start = perf_counter()
    index = FileSearch(made, history)
    built = perf_counter() - start
    times = []
    for _ in range(20):
        query = " ".join(luck.choice(words, 30))
        start = perf_counter()
        index.rank(query, 10)
        times.append(perf_counter() - start)
    return [
        Figure(f"index of {files:,} files", built, "s"),
        Figure("search, median", 1_000 * float(np.median(times)), "ms", 150),
        Figure("search, slowest of 20", 1_000 * max(times), "ms"),
    ]


def main() -> None:
    """Measure and report, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("repositories", nargs="*", type=Path)
    parser.add_argument("--commits", type=int, default=150)
    parser.add_argument("--fit", action="store_true")
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    sets = {}
    for path in given.repositories:
        start = perf_counter()
        name = path.name if path.name not in ("repo", ".git") else path.parent.name
        sets[name] = list(queries(GitRepository(path), given.commits))
        print(f"{name}: {len(sets[name])} commits in {perf_counter() - start:.0f} s", file=sys.stderr)
    weights = fit(list(sets.values())) if given.fit else WEIGHTS
    print("weights:", ", ".join(f"{name} {weight:.2f}" for name, weight in zip(FEATURES, weights, strict=True)))
    figures = [figure for name, found in sets.items() for figure in figures_of(name, found, weights)]
    every = [query for found in sets.values() for query in found]
    if every:
        print("lost without:", ", ".join(f"{name} {lost:+.3f}" for name, lost in drop_one(every, weights)))
    report("Files for a task", [*figures, *([] if given.fit else search_speed())])


if __name__ == "__main__":
    main()
