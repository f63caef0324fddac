"""Makers of small policies and shelves: policies that ask who they are told to, in turn, and ship the last answer."""

from pathlib import Path

import numpy as np

from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.policy_data import Candidate, KnownWorker, Policy, PolicyOrigin
from shikisha.routing.policy_file import CascadeRule, save_policy
from shikisha.routing.policy_registry import ChangeAuthor, add_policy
from shikisha.routing.state import LengthScales, TaskTypes
from shikisha.routing.trade_off import OperatingPoint, TradeOff

POOL = ("ann", "bob", "cyd")
ME = ChangeAuthor(who="kim", at=1.0)
_ALWAYS = 2.0  # a confidence that nothing reaches


def asking(*workers: str, note: str = "", cost: float = 1.0) -> Policy:
    """A policy that asks these of the POOL, each whatever the one before said, and ships the last answer there is."""
    order = np.array([[[POOL.index(name) for name in workers]]])
    scales = LengthScales(np.zeros((1, len(POOL))), np.ones(len(POOL)))
    part = CascadeRule(order, np.full(order.shape, _ALWAYS), {}, scales, np.arange(len(POOL)))
    known = tuple(KnownWorker(name, 0.5, 1.0, 100) for name in POOL)
    dial = TradeOff((OperatingPoint(0, 0, cost, 0.5),), 1.0, 0.5)
    about = PolicyOrigin("made", "0", 100, notes=(note,))
    return Policy(about, known, TaskTypes((), (), AnswerForm.CHOICE), (part,), (Candidate("cascade", dial),), "cascade")


def shelf_of(folder: Path, *policies: Policy) -> list[str]:
    """Put these policies on a shelf in this folder, the first of them live, and return their versions."""
    versions = []
    for place, policy in enumerate(policies):
        file = folder.parent / f"policy-{place}"
        save_policy(policy, file)
        versions.append(add_policy(folder, file, ME)[0])
    return versions
