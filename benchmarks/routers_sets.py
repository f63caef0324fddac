"""The recorded sets as `routers.py` uses them: panels, their costs, and which tasks are trained on.

Where a set has no costs they are made up from what is known, and `costs` says how. A task's side hangs on SHA-256 of
the seed and its id, so a seed's split is the same everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from json import loads
from pathlib import Path

import numpy as np

from recorded_pools import MP13, NOT_ZE21
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.model_selection import assign_folds
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix

FOLDER = Path(__file__).parent.parent.parent / "shared" / "recorded"
SETS = {"MP13": "mmlu-pro", "ZE21": "zeroeval", "LR9": "llmrouter", "RL": "routellm-mmlu"}
SHARE = 0.8
_CHARACTERS = 4  # a token
_FOLDS = "fit 0"  # those that the ladder fits on, so that its rungs are the rule and the cascade here


@dataclass(frozen=True)
class Recorded:
    """A set: its short name, its panel, and where its costs come from."""

    name: str
    panel: OutcomeMatrix
    costs: str


@dataclass(frozen=True)
class Split:
    """What is trained on, with five folds of it by content, and what is reported."""

    name: str
    train: OutcomeMatrix
    folds: Ints
    held: OutcomeMatrix


def recorded(name: str, folder: Path = FOLDER) -> Recorded:
    """Read a set."""
    log = OutcomeLog.read(folder / SETS[name])
    pools = {"MP13": MP13, "ZE21": tuple(worker for worker in log.workers if worker not in NOT_ZE21)}
    panel = build_outcome_matrix(log, pools.get(name, ()), whole=name in pools)
    if name == "LR9":
        costs = "list price a token times the prompt's characters / 4 (nothing is known of the output)"
        return Recorded(name, replace(panel, dollars=_listed(panel, folder / SETS[name])), costs)
    if name == "RL":
        dollars = np.where(np.arange(len(panel.workers)) == panel.best_worker(), 1.0, 0.0)
        costs = "a call to the strong worker costs 1, to the weak one nothing, as RouteLLM counts"
        return Recorded(name, replace(panel, dollars=np.broadcast_to(dollars, panel.codes.shape).copy()), costs)
    return Recorded(name, panel, "derived from approximate list prices and characters / 4")


def seeded(panel: OutcomeMatrix, seed: int) -> Split:
    """Return the split of a seed: 80 % of the tasks to train and choose on."""
    return _split(f"seed {seed}", panel, np.array([_place(seed, task) >= SHARE for task in panel.ids]))


def outer(panel: OutcomeMatrix, count: int) -> Iterator[Split]:
    """Yield each fold of so many as the part reported, with all others to train and choose on."""
    folds = assign_folds(panel.hashes, "routers", count)
    for fold in range(count):
        yield _split(f"fold {fold}", panel, folds == fold)


def first(split: Split, count: int) -> Split:
    """Return the same split with so many tasks to train on, the first by hash."""
    order = sorted(range(len(split.train)), key=lambda row: sha256(split.train.ids[row].encode()).digest())
    train = split.train.at(np.array(sorted(order[:count]), np.int64))
    return Split(f"{split.name}, {count:,} tasks", train, assign_folds(train.hashes, _FOLDS), split.held)


def _split(name: str, panel: OutcomeMatrix, held: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Split:
    train = panel.at(np.flatnonzero(~held))
    return Split(name, train, assign_folds(train.hashes, _FOLDS), panel.at(np.flatnonzero(held)))


def _place(seed: int, task: str) -> float:
    return int.from_bytes(sha256(f"{seed}:{task}".encode()).digest()[:6]) / 2**48


def _listed(panel: OutcomeMatrix, folder: Path) -> Floats:
    listed = loads((folder / "llm_candidates.json").read_text())
    prices = np.array([listed[worker]["input_price"] for worker in panel.workers]) / 1e6
    tokens = np.array([len(prompt) for prompt in panel.batch.prompts]) / _CHARACTERS
    return tokens[:, None] * prices
