"""Peers' own routers as entrants of `routers.py`: given our features, run in their environment, played on our panels.

What they picked for tasks of the first fold, having trained on the other four, puts a dial on them; what they picked
for the tasks held out, having trained on all five, is reported. Ours to say: the features, the prices, the dial.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from routers_entrants import Measured, by_trial
from routers_sets import Split
from shikisha.learn.panel import Panel
from shikisha.learn.yard_texts import Reduced
from shikisha.learn.yard_trials import Trial, of_picks

SCRIPT = Path(__file__).parent / "peers_routers.py"
DIRECTIONS = 256
PRICES = (0.0, 0.01, 2.0, 12.0)  # 0: any best one; then the cheapest right one; then without the dear, and the middling


def peers(
    split: Split, python: str, seconds: float, named: Sequence[str] = ()
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Return what their routers came to, and why some did not come to anything."""
    calibrates, train = split.folds == 0, split.train
    reduced = Reduced.of(train, DIRECTIONS)
    with TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(
            folder / "given.npz",
            train=reduced.rows(train.batch),
            held=reduced.rows(split.held.batch),
            scores=train.scores,
            costs=train.paid / train.unit(),
            calibrates=calibrates,
            prices=np.array(PRICES),
            pair=np.array(pair(train)),
        )
        _run([python, str(SCRIPT), str(folder), *(["--routers", *named] if named else [])], folder, seconds)
        told = json.loads((folder / "found.json").read_text())
        with np.load(folder / "found.npz", allow_pickle=False) as held:
            picks = {key: held[key].T for key in held.files}
    found = {}
    for router, taken in told["seconds"].items():
        if f"{router} held" not in picks:
            continue
        before, after = picks[f"{router} calibration"], picks[f"{router} held"]
        seen = of_picks(before, train.at(np.flatnonzero(calibrates)[: len(before)]))
        came, unit = of_picks(after, split.held), train.unit()
        curve = seen.paid.mean(axis=0) / unit, seen.won.mean(axis=0)
        tried = Trial(*curve, came.won, came.paid / unit, came.asks, unit, float(train.means().max()))
        decisions = told["milliseconds"].get(router, [])
        note = " and ".join(train.workers[worker] for worker in pair(train)) if router.startswith("RouteLLM") else ""
        found[router] = replace(by_trial(tried, split.held), seconds=taken, decisions=decisions, note=note)
    return found, told["failed"]


def pair(panel: Panel) -> tuple[int, int]:
    """Return the weak and the strong worker: the best one, and whoever lies furthest above the line from 0 to it."""
    strong, skill, cost = panel.best(), panel.means(), panel.paid.mean(axis=0) / panel.unit()
    above = np.where(np.arange(len(skill)) == strong, -np.inf, skill - cost * skill[strong])
    return int(above.argmax()), strong


def _run(command: Sequence[str], folder: Path, seconds: float) -> None:
    """Run their routers for at most so long; what they had found by then counts."""
    try:
        with (folder / "log").open("w") as log:
            subprocess.run(command, stdout=log, stderr=log, timeout=seconds, check=True)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        print(f"  peers' routers were stopped after {seconds:.0f} s")
