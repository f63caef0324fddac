"""The frontier of a policy on a log: what each budget comes to, against the best single worker and the simpler rungs.

Invariants: what is played here is what the engine would perform (the same parts, the same recorded answers), as
expectations over the dial's lots; the tasks are those that `eval` reports on. Deliberately absent: choosing anything on
these tasks; the best single worker is the one that the policy's own log knew as the best.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha.config.gathering import parted
from shikisha.errors import ConfigError
from shikisha.outcomes import open_log
from shikisha.tasksets.recorded import taskset

if TYPE_CHECKING:
    from shikisha.config.stage import Setup
    from shikisha.learn.frontier import Frontier
    from shikisha.learn.panel import Panel
    from shikisha.policy.policy import Policy

POLICY = "policy:"
Told = Mapping[str, object]


def frontiers(setup: "Setup", conductors: Sequence[str]) -> list[Told]:
    """Return the frontier of each of these conductors that is a policy file, on the tasks that `eval` reports on."""
    named = [name.partition("=")[2] if f"={POLICY}" in name else name for name in conductors]
    files = [name.removeprefix(POLICY).partition("?")[0] for name in named if name.startswith(POLICY)]
    if setup.log is None or not files:
        raise ConfigError(f"--frontier: expected --log DIR and a conductor {POLICY}FILE, whose curve it is")
    items, _ = parted(setup, taskset(open_log(Path(setup.log), setup.workers)))
    return [_frontier(setup, Path(file), [item.task.id for item in items]) for file in dict.fromkeys(files)]


def _frontier(setup: "Setup", file: Path, task_ids: Sequence[str]) -> Told:
    import numpy as np

    from shikisha.learn.panel import panel_of
    from shikisha.policy.file import load

    policy, version = load(file)
    log = open_log(Path(setup.log or ""), setup.workers)
    missing = [name for name in policy.names if name not in log.workers]
    if missing:
        raise ConfigError(f"--frontier: {file} asks {', '.join(missing)}, of whom the log {log.folder} has nothing")
    whole = panel_of(log, policy.names, policy.types, whole=setup.reply == "both")
    places = {task_id: place for place, task_id in enumerate(whole.ids)}
    panel = whole.at(np.array([places[task_id] for task_id in task_ids], np.int64)).heard(policy.hearing)
    return {"policy": str(file), "version": version, "log": str(setup.log), "tasks": len(panel), **_told(policy, panel)}


def _told(policy: "Policy", panel: "Panel") -> Told:
    from shikisha.learn.frontier import gain

    held = {rung.name: _played(policy, rung.name, panel) for rung in policy.rungs}
    best = policy.names.index(policy.best_single.name)
    unit = policy.rung().dial.unit
    alone = _alone(panel, best, unit, held[policy.kept])
    others = {"best single": alone, **{name: front for name, front in held.items() if name != policy.kept}}
    kept = held[policy.kept]
    points = [
        {
            "budget": met.budget,
            "spent": met.spent,
            "dollars_per_1k": 1000 * met.spent * unit,
            "accuracy": met.accuracy,
            "low": met.low,
            "high": met.high,
            "against": {name: _difference(kept, other, place) for name, other in others.items()},
        }
        for place, met in enumerate(kept.met())
    ]
    areas = {name: _gain(gain(name, kept, other)) for name, other in others.items()}
    return {
        "rung": policy.kept,
        "unit_dollars": unit,
        "best_single": {
            "worker": policy.names[best],
            "accuracy": float(alone.won[:, 0].mean()),
            "cost": float(alone.cost[:, 0].mean()),
        },
        "area": kept.area,
        "gains": areas,
        "points": points,
    }


def _played(policy: "Policy", rung: str, panel: "Panel") -> "Frontier":
    import numpy as np

    from shikisha.learn.fits import Fit
    from shikisha.learn.frontier import BUDGETS, POINTS
    from shikisha.learn.ladder import played

    dial = policy.rung(rung).dial
    budgets = np.array(sorted({*POINTS, *BUDGETS.tolist()}))
    return played(Fit(policy.parts, {}, policy.hearing), dial, panel, dial.unit or 1.0, budgets)


def _alone(panel: "Panel", worker: int, unit: float, like: "Frontier") -> "Frontier":
    """Return the best single worker as a frontier that is the same at every budget."""
    import numpy as np

    from shikisha.learn.frontier import Frontier

    won, cost = panel.won[:, worker], panel.paid[:, worker] / (unit or 1.0)
    count = len(like.budgets)
    return Frontier(like.budgets, np.repeat(won[:, None], count, axis=1), np.repeat(cost[:, None], count, axis=1))


def _difference(one: "Frontier", other: "Frontier", place: int) -> Told:
    from shikisha.evaluate.statistics import difference_interval

    differences = one.won[:, place] - other.won[:, place]
    low, high = difference_interval(differences.tolist())
    return {"mean": float(differences.mean()), "low": low, "high": high}


def _gain(found: object) -> Told:
    return {name: getattr(found, name) for name in ("mean", "low", "high")}
