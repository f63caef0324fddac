"""A policy's report as plain values for JSON: what `learn --json` and `policy show --json` print.

Invariant: what is not known is null and not 0. Deliberately absent: the arrays that decide (the policy file has them).
"""

from collections.abc import Mapping
from dataclasses import asdict

from shikisha.learn import summary
from shikisha.learn.figures import best_single, defended, hardly_known, paid, reach, settings
from shikisha.learn.frontier import POINTS
from shikisha.learn.ways import asked, ways
from shikisha.policy.dial import Mix
from shikisha.policy.policy import Policy, Rung


def plain(policy: Policy, version: str) -> Mapping[str, object]:
    """Return what is known of a policy: source, pool, rungs with their evidence and dials, yardsticks."""
    best = best_single(policy)
    return {
        "version": version,
        "about": asdict(policy.about),
        "best_single": {"name": best.name, "accuracy": best.score, "dollars": best.dollars},
        "workers": [asdict(worker) for worker in policy.workers],
        "few_outcomes": [worker.name for worker in hardly_known(policy)],
        "types": [{"name": name, "form": policy.types.form_of(place)} for place, name in enumerate(policy.types.names)],
        "kept": policy.kept,
        "defended": defended(policy),
        "said": list(summary.headline(policy)),
        "rungs": [_rung(policy, rung) for rung in policy.rungs],
        "yardsticks": [asdict(yardstick) for yardstick in policy.yardsticks],
    }


def _rung(policy: Policy, rung: Rung) -> Mapping[str, object]:
    evidence = rung.evidence
    reached = reach(paid(evidence), rung.dial.best_single) if evidence else None
    return {
        "name": rung.name,
        "unit_dollars": rung.dial.unit,
        "best_single": rung.dial.best_single,
        "evidence": asdict(evidence) if evidence else None,
        "reaches_best_single_at": reached,
        "dial": [{"name": name, **_setting(policy, rung, mix)} for name, mix in settings(rung, POINTS)],
    }


def _setting(policy: Policy, rung: Rung, mix: Mix) -> Mapping[str, object]:
    counted = asked(policy, mix)
    return {
        "cost": mix.cost,
        "accuracy": mix.accuracy,
        "error": max(mix.low.error, mix.high.error),
        "dollars_per_1k": 1000 * mix.cost * rung.dial.unit if rung.dial.unit > 0 else None,
        "asks": None if counted is None else sum(counted.values()),
        "asked": counted,
    }


def shown(policy: Policy, version: str, at: tuple[Rung, Mix, str]) -> Mapping[str, object]:
    """Return the same with one setting of one rung in full: whom it asks, type by type."""
    rung, mix, called = at
    found = [asdict(way) for way in ways(policy, mix)]
    return {
        **plain(policy, version),
        "shown": {"rung": rung.name, "at": called, **_setting(policy, rung, mix)},
        "ways": found,
    }
