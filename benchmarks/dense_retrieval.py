"""Whether the text encoder helps to find tools: candidates by meaning, and cosines as features of the ranker.

    python benchmarks/dense_retrieval.py DATA

DATA is that of `tool_retrieval.py`. Only its development queries are used: rankers are fitted on one half of them and
asked on the other, both ways round, so that nothing is chosen on the held-out ones. The rows are recall among the first
places, then recall at five of the ranker as it ships, with nine more features by meaning, and with those and the ten
nearest tools of each clause as further candidates.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from shikisha.retrieval.fit_ranker import Judgment
from shikisha.retrieval.ranker import candidate_features
from shikisha.retrieval.terms import split_clauses
from shikisha.retrieval.text_encoder import Floats, shipped_encoder
from shikisha.retrieval.text_index import Candidates, TextIndex
from shikisha.tools.catalogue import FIELD_WEIGHTS
from tool_retrieval import (
    OPERATIONS,
    TOP,
    ToolBench,
    build,
    interval,
    openapi_tools,
    read_seal_tools,
    read_stable_tool_bench,
)

MORE = 10


def widen(found: Candidates, near: Floats, more: int) -> Candidates:
    """Add the nearest tools of each clause, without a match by words."""
    nearest = np.unique(np.argpartition(-near, more, axis=1)[:, :more]) if more else np.zeros(0, np.int64)
    new = np.setdiff1d(nearest, found.positions)

    def pad(values: Floats, axis: int) -> Floats:
        shape = list(values.shape)
        shape[axis] = len(new)
        return np.concatenate([values, np.zeros(shape, values.dtype)], axis)

    return replace(
        found,
        positions=np.concatenate([found.positions, new]),
        scores=pad(found.scores, 0),
        matches=pad(found.matches, 1),
        clause_scores=pad(found.clause_scores, 0),
    )


def dense_features(near: Floats, near_groups: Floats, positions: np.ndarray) -> Floats:
    """Return nine columns: cosines to the query and its best clause, relative to the best, the place, the group's."""
    whole, clauses = near[0, positions], near[1:, positions]
    best = clauses.max(axis=0)
    place = np.argsort(np.argsort(-clauses, axis=1), axis=1).min(axis=0)
    near_best = (clauses >= clauses.max(axis=1, keepdims=True) - 0.02).sum(axis=0)
    groups = near_groups[:, positions]
    columns = (whole, best, best - best.max(), whole - whole.max(), np.log1p(place), near_best)
    return np.column_stack([*columns, groups[0], groups[1:].max(axis=0), clauses.mean(axis=0)]).astype(np.float32)


def cross_recall(rows: Sequence[tuple[Judgment, Candidates, Floats]]) -> np.ndarray:
    """Return recall at five by query, each by a ranker that was fitted on the other half."""
    shares = np.zeros(len(rows))
    for half in (0, 1):
        fitted, asked = rows[half::2], list(range(1 - half, len(rows), 2))
        right = [np.isin(found.positions, judgment.right) for judgment, found, _ in fitted]
        weights = [np.full(len(flags), 1 / len(row[0].right)) for flags, row in zip(right, fitted, strict=True)]
        model = HistGradientBoostingClassifier(
            max_iter=150, learning_rate=0.05, max_leaf_nodes=16, max_depth=6, early_stopping=False, random_state=0
        )
        features = np.concatenate([each for _, _, each in fitted])
        model.fit(features, np.concatenate(right), sample_weight=np.concatenate(weights))
        for at in asked:
            judgment, found, each = rows[at]
            best = found.positions[np.argsort(-model.decision_function(each), kind="stable")[:TOP]]
            shares[at] = np.isin(judgment.right, best).mean()
    return shares


def report_places(judgments: Sequence[Judgment], index: TextIndex, near: Sequence[Floats]) -> None:
    """Print how often the right tools are among the first places."""
    for most in (5, 25, 100):
        words = [np.isin(each.right, index.search(each.query).positions[:most]).mean() for each in judgments]
        dense = [
            np.isin(each.right, np.argsort(-found.max(axis=0))[:most]).mean()
            for each, found in zip(judgments, near, strict=True)
        ]
        print(f"  first {most:>3}: BM25F {np.mean(words):.3f}, encoder {np.mean(dense):.3f}", flush=True)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path)
    given = options.parse_args()
    bench = ToolBench()
    read_stable_tool_bench(bench, given.data / "StableToolBench")
    read_seal_tools(bench, given.data / "Seal-Tools")
    first = len(bench.documents)
    for key, group, fields in openapi_tools(given.data / "package"):
        bench.add(key, group, fields)
        if len(bench.documents) - first >= OPERATIONS:
            break
    index, encode = build(bench.documents, "BM25F", FIELD_WEIGHTS), shipped_encoder().encode
    begun = time.process_time()
    tools = encode([f"{each.fields[0]}. {each.fields[2]}" for each in bench.documents])
    groups = encode([each.fields[1] for each in bench.documents])
    print(f"tools and groups encoded in {time.process_time() - begun:.1f} s CPU", flush=True)
    judgments = [each for each in bench.judgments(bench.fitted) if len(index.search(each.query).positions)]
    asked = [encode([each.query, *(split_clauses(each.query) or [each.query])]) for each in judgments]
    near = [vectors @ tools.T for vectors in asked]
    report_places(judgments, index, near)
    base = np.zeros(0)
    for name, more, dense in (("ranker", 0, False), ("with cosines", 0, True), ("and candidates", MORE, True)):
        rows = []
        for each, vectors, found_near in zip(judgments, asked, near, strict=True):
            found = widen(index.search(each.query), found_near, more)
            features = candidate_features(index, found)
            if dense:
                extra = dense_features(found_near, vectors @ groups.T, found.positions)
                features = np.column_stack([features, extra])
            rows.append((each, found, features))
        shares = cross_recall(rows)
        base = base if len(base) else shares
        print(f"  {name:<16} recall@5 {shares.mean():.4f}, over the ranker {interval(shares - base)}", flush=True)


if __name__ == "__main__":
    main()
