"""Picking one of five tools that were never seen, from a question alone: MetaTool's public pairs.

    python benchmarks/value_tools.py MetaTool [--seeds 1,2,3] [--json]

MetaTool is a clone of github.com/HowieHwong/MetaTool (MIT). Its questions (`dataset/data/all_clean_data.csv`) have one
right tool each, described in `plugin_des.json` or `big_tool_des.json`. A third of the tools is held out with all their
questions; a question is asked with its own tool and four others drawn from the held-out ones. Rows: words by TF-IDF;
runs of letters by TF-IDF; the shipped encoder, which was never trained on these pairs; and a fit on the other tools'
questions: a bilinear form over the encoder's vectors, weighed with the three cosines by a softmax on fives of seen
tools. Intervals are over held-out tools, seeds together; a tool counts once, however many questions it has.
"""

import argparse
import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from common import machine
from shikisha.retrieval.text_encoder import shipped_encoder

OFFERED, RANK_ROUNDS, BATCH, RATE, DECAY = 5, 1_200, 128, 0.05, 1e-4
ROWS = ("words", "letters", "encoder", "fitted on other tools")


def read_pairs(root: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Return questions, the tool of each, and what each tool's description says."""
    folder = root / "dataset"
    described = {
        name: text
        for file in ("plugin_des.json", "big_tool_des.json")
        for name, text in json.loads((folder / file).read_text("utf-8")).items()
    }
    with (folder / "data" / "all_clean_data.csv").open(encoding="utf-8", newline="") as opened:
        rows = [(row["Query"], row["Tool"]) for row in csv.DictReader(opened) if row["Tool"] in described]
    return [row[0] for row in rows], [row[1] for row in rows], described


def unit(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))


def draw_fives(tools: np.ndarray, own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return for each question its own tool first, and four others."""
    found = np.empty((len(own), OFFERED), dtype=np.int64)
    found[:, 0] = own
    for row, tool in enumerate(own):
        others = rng.choice(tools, OFFERED, replace=False)
        found[row, 1:] = others[others != tool][: OFFERED - 1]
    return found


def fit_form(
    questions: np.ndarray,
    tools: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    pool: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the bilinear form under which right tools score highest among drawn ones, by Adam on softmax losses."""
    size = questions.shape[1]
    form = np.eye(size) * 8.0
    first, second = np.zeros_like(form), np.zeros_like(form)
    train, own = pairs
    for step in range(1, RANK_ROUNDS + 1):
        at = rng.integers(0, len(train), BATCH)
        asked, right = questions[train[at]], own[at]
        offered = rng.choice(pool, 24, replace=False)
        scores = np.hstack([(asked @ form * tools[right]).sum(1, keepdims=True), asked @ form @ tools[offered].T])
        scores[:, 1:][offered[None, :] == right[:, None]] = -1e9
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        pulled = (1 - shares[:, :1]) * tools[right] - shares[:, 1:] @ tools[offered]
        slope = -asked.T @ pulled / BATCH + DECAY * form
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        form -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return form


def fit_mix(features: np.ndarray) -> np.ndarray:
    """Return weights of the scores under which the first of five is the right one, by gradient ascent."""
    weights = np.ones(features.shape[2])
    for _ in range(300):
        scores = features @ weights
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        weights += 2.0 * (features[:, 0] - (shares[:, :, None] * features).sum(1)).mean(0)
    return weights


def measure(questions: list[str], names: list[str], described: dict[str, str], seed: int) -> dict[str, np.ndarray]:
    """Return by row the share of right picks for each held-out tool."""
    rng = np.random.default_rng(seed)
    tools = sorted(set(names))
    place = {name: at for at, name in enumerate(tools)}
    own = np.array([place[name] for name in names])
    texts = [f"{name}: {described[name]}" for name in tools]
    order = rng.permutation(len(tools))
    held, seen = order[: len(tools) // 3], order[len(tools) // 3 :]
    is_held = np.isin(own, held)
    train, test = np.flatnonzero(~is_held), np.flatnonzero(is_held)
    cosines, encoder = [], shipped_encoder()
    for options in ({"sublinear_tf": True}, {"sublinear_tf": True, "analyzer": "char_wb", "ngram_range": (3, 5)}):
        vectorizer = TfidfVectorizer(**options, max_features=60_000)
        vectorizer.fit([*(questions[at] for at in train), *(texts[at] for at in seen)])
        cosines.append(np.asarray((vectorizer.transform(questions) @ vectorizer.transform(texts).T).todense()))
    asked, told = unit(encoder.encode(questions)), unit(encoder.encode(texts))
    cosines.append(asked @ told.T)
    # The mix is fitted on fives of seen tools that the form was not fitted on.
    kept, rest = seen[: len(seen) // 4], seen[len(seen) // 4 :]
    inner = np.flatnonzero(np.isin(own, rest))
    form = fit_form(asked, told, (inner, own[inner]), rest, rng)
    scores = np.stack([*cosines, asked @ form @ told.T], axis=2)
    mix = np.flatnonzero(np.isin(own, kept))
    fives = draw_fives(kept, own[mix], rng)
    weights = fit_mix(np.take_along_axis(scores[mix], fives[:, :, None], axis=1))
    fives = draw_fives(held, own[test], rng)
    offered = np.take_along_axis(scores[test], fives[:, :, None], axis=1)
    picks = {name: offered[:, :, at].argmax(1) == 0 for at, name in enumerate(ROWS[:3])}
    picks[ROWS[3]] = (offered @ weights).argmax(1) == 0
    return {
        name: np.array([right[own[test] == tool].mean() for tool in held if (own[test] == tool).any()])
        for name, right in picks.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metatool", type=Path)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    questions, names, described = read_pairs(given.metatool)
    runs = [measure(questions, names, described, int(seed)) for seed in given.seeds.split(",")]
    table = {}
    for name in ROWS:
        values = np.concatenate([run[name] for run in runs])
        draws = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
        low, high = np.quantile(values[draws].mean(1), (0.025, 0.975))
        table[name] = [round(float(one), 4) for one in (values.mean(), low, high)]
    if given.json:
        print(json.dumps({"questions": len(questions), "tools": len(Counter(names)), "right": table}, indent=1))
        return
    print(f"{len(questions)} questions of {len(set(names))} tools; right of five unseen ones ({machine()})")
    for name, (mean, low, high) in table.items():
        print(f"  {name:<24} {mean:.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
