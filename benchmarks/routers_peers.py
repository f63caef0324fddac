"""Peers' own routers as entrants of `routers.py`: given our features, run in their environment, played on our panels.

What they picked for tasks of the first fold, having trained on the other four, puts a dial on them; what they picked
for the tasks held out, having trained on all five, is reported. Ours to say: the features, the prices, the dial. Their
picks are kept in a folder by the hash of what they were given, because they take minutes to come by.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from router_baselines import ReducedTexts
from routers_entrants import Measured, by_trial
from routers_sets import Split
from shikisha.routing.arrays import Ints
from shikisha.routing.fit.baselines import BaselineTrial, score_picks
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix

SCRIPT = Path(__file__).parent / "peers_routers.py"
DIRECTIONS = 256
PRICES, LIMITS = (0.0, 0.0, 0.0, 0.0, 0.01), (np.inf, 0.5, 0.2, 0.08, np.inf)  # a fit each; the last: the cheapest best


@dataclass(frozen=True)
class Peers:
    """Where their environment is, where picks are kept, how long they may take, and which of them take part (all)."""

    python: str
    kept: Path
    seconds: float
    named: Sequence[str] = ()

    def measured(self, split: Split) -> tuple[dict[str, Measured], Mapping[str, str]]:
        """Return what their routers came to, and why some did not come to anything."""
        folder = self._asked(split)
        told = json.loads((folder / "found.json").read_text())
        with np.load(folder / "found.npz", allow_pickle=False) as held:
            picks = {key: held[key].T for key in held.files}
        found = {}
        for router, seconds in told["seconds"].items():
            if f"{router} held" in picks:
                came = _tried(split, picks[f"{router} calibration"], picks[f"{router} held"])
                decisions = told["milliseconds"].get(router, [])
                note = " over ".join(split.train.workers[worker] for worker in reversed(pair(split.train)))
                told_pair = note if router.startswith("RouteLLM") else ""
                found[router] = replace(
                    by_trial(came, split.held), seconds=seconds, decisions=decisions, note=told_pair
                )
        return found, told["failed"]

    def _asked(self, split: Split) -> Path:
        """Return the folder of what they found, which is run now unless it has been."""
        train, reduced = split.train, ReducedTexts.of(split.train, DIRECTIONS)
        wide = [(train.paid.mean(axis=0) / train.cost_unit() <= limit).sum() > 1 for limit in LIMITS]
        given = {
            "train": reduced.rows(train.batch),
            "held": reduced.rows(split.held.batch),
            "scores": train.scores,
            "costs": train.paid / train.cost_unit(),
            "calibrates": split.folds == 0,
            "prices": np.array(PRICES)[wide],
            "limits": np.array(LIMITS)[wide],
            "pair": np.array(pair(train)),
        }
        key = sha256(b"".join(np.round(array.astype(float), 6).tobytes() for array in given.values()))
        key.update(repr((self.named, SCRIPT.read_bytes())).encode())
        folder = self.kept / key.hexdigest()[:16]
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / "given.npz", allow_pickle=False, **given)
            self._run(folder)
            (folder / "done").touch()
        return folder

    def _run(self, folder: Path) -> None:
        """Run their routers for as long as they may; what they had found by then counts."""
        command = [self.python, str(SCRIPT), str(folder), *(["--routers", *self.named] if self.named else [])]
        try:
            with (folder / "log").open("w") as log:
                subprocess.run(command, stdout=log, stderr=log, timeout=self.seconds, check=True)  # noqa: S603 - ours
        except subprocess.TimeoutExpired:
            print(f"  peers' routers were stopped after {self.seconds:.0f} s")


def pair(panel: OutcomeMatrix) -> tuple[int, int]:
    """Return the weak and the strong worker: the best one, and whoever lies furthest above the line from 0 to it."""
    strong, skill, cost = panel.best_worker(), panel.mean_scores(), panel.paid.mean(axis=0) / panel.cost_unit()
    above = np.where(np.arange(len(skill)) == strong, -np.inf, skill - cost * skill[strong])
    return int(above.argmax()), strong


def _tried(split: Split, before: Ints, after: Ints) -> BaselineTrial:
    """Return what picks [T, L] come to: those made for the first fold put the dial on those made for the part held."""
    train, unit = split.train, split.train.cost_unit()
    seen = score_picks(before, train.at(np.flatnonzero(split.folds == 0)[: len(before)]))
    came, curve = score_picks(after, split.held), (seen.paid.mean(axis=0) / unit, seen.won.mean(axis=0))
    return BaselineTrial(*curve, came.won, came.paid / unit, came.asks, unit, float(train.mean_scores().max()))
