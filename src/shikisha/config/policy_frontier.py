"""The cost-accuracy frontier of a policy on a log, compared with the best single worker and the simpler candidates.

Invariants: the replay makes the same decisions as the engine (the same parts, the same recorded answers), as
expectations over random choices; the tasks are those that `eval` reports on. Nothing is chosen on these tasks: the best
single worker is the one that was best on the policy's own log.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shikisha.config.eval_tasks import EvaluationSetup, split_dev
from shikisha.core.errors import ConfigError
from shikisha.evals.statistics import difference_interval
from shikisha.evals.tasksets.recorded import recorded_taskset
from shikisha.outcomes.log_reader import open_log
from shikisha.routing.fit.cost_frontier import BUDGETS, REPORTED_BUDGETS, Frontier, paired_gain
from shikisha.routing.fit.log_replay import replay_frontier
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import load_policy

POLICY_PREFIX = "policy:"
JsonObject = Mapping[str, object]


def policy_frontiers(setup: EvaluationSetup, conductors: Sequence[str]) -> list[JsonObject]:
    """Return the frontier of each of these conductors that is a policy file, on the tasks that `eval` reports on."""
    named = [name.partition("=")[2] if f"={POLICY_PREFIX}" in name else name for name in conductors]
    files = [name.removeprefix(POLICY_PREFIX).partition("?")[0] for name in named if name.startswith(POLICY_PREFIX)]
    if setup.log is None or not files:
        raise ConfigError(f"--frontier: expected --log DIR and a conductor {POLICY_PREFIX}FILE")
    items, _ = split_dev(setup, recorded_taskset(open_log(Path(setup.log), setup.workers)))
    return [_policy_frontier(setup, Path(file), [item.task.id for item in items]) for file in dict.fromkeys(files)]


def _policy_frontier(setup: EvaluationSetup, file: Path, task_ids: Sequence[str]) -> JsonObject:
    import numpy as np

    policy, version = load_policy(file)
    log = open_log(Path(setup.log or ""), setup.workers)
    missing = [name for name in policy.names if name not in log.workers]
    if missing:
        raise ConfigError(
            f"--frontier: {file} asks {', '.join(missing)}, and the log {log.folder} has no outcome of them"
        )
    whole = build_outcome_matrix(log, policy.names, policy.types, whole=setup.reply == "both")
    places = {task_id: place for place, task_id in enumerate(whole.ids)}
    panel = whole.at(np.array([places[task_id] for task_id in task_ids], np.int64))
    return {
        "policy": str(file),
        "version": version,
        "log": str(setup.log),
        "tasks": len(panel),
        **_frontier_json(policy, panel),
    }


def _frontier_json(policy: Policy, panel: OutcomeMatrix) -> JsonObject:
    held = {rung.name: _play_frontier(policy, rung.name, panel) for rung in policy.rungs}
    best = policy.names.index(policy.best_single.name)
    unit = policy.rung().dial.unit
    # The best single worker as a frontier that is constant over the budgets.
    like = held[policy.kept]
    import numpy as np

    won, cost = panel.won[:, best], panel.paid[:, best] / (unit or 1.0)
    count = len(like.budgets)
    alone = Frontier(like.budgets, np.repeat(won[:, None], count, axis=1), np.repeat(cost[:, None], count, axis=1))
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
            "against": {name: _difference_json(kept, other, place) for name, other in others.items()},
        }
        for place, met in enumerate(kept.points())
    ]
    areas = {name: _gain_json(paired_gain(name, kept, other)) for name, other in others.items()}
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


def _play_frontier(policy: Policy, rung: str, panel: OutcomeMatrix) -> Frontier:
    import numpy as np

    budgets = np.array(sorted({*REPORTED_BUDGETS, *BUDGETS.tolist()}))
    return replay_frontier(policy.parts, policy.rung(rung).dial, panel, budgets)


def _difference_json(one: Frontier, other: Frontier, place: int) -> JsonObject:
    differences = one.won[:, place] - other.won[:, place]
    low, high = difference_interval(differences.tolist())
    return {"mean": float(differences.mean()), "low": low, "high": high}


def _gain_json(found: object) -> JsonObject:
    return {name: getattr(found, name) for name in ("mean", "low", "high")}
