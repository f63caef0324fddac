"""Makers of small policies and shelves: policies that ask who they are told to, in turn, and ship the last answer."""

from pathlib import Path

import numpy as np

from shikisha.grade.canon import Form
from shikisha.policy.cascade import Cascade
from shikisha.policy.dial import Dial, Point
from shikisha.policy.features import Scales
from shikisha.policy.file import save
from shikisha.policy.policy import About, Known, Policy, Rung
from shikisha.policy.shelf import By
from shikisha.policy.shelf_file import put
from shikisha.policy.types import Types

POOL = ("ann", "bob", "cyd")
ME = By(who="kim", at=1.0)
_ALWAYS = 2.0  # a confidence that nothing reaches


def asking(*workers: str, note: str = "", cost: float = 1.0) -> Policy:
    """A policy that asks these of the POOL, each whatever the one before said, and ships the last answer there is."""
    order = np.array([[[POOL.index(name) for name in workers]]])
    scales = Scales(np.zeros((1, len(POOL))), np.ones(len(POOL)))
    part = Cascade(order, np.full(order.shape, _ALWAYS), {}, scales, np.arange(len(POOL)))
    known = tuple(Known(name, 0.5, 1.0, 100) for name in POOL)
    dial = Dial((Point(0, 0, cost, 0.5),), 1.0, 0.5)
    about = About("made", "0", 100, notes=(note,))
    return Policy(about, known, Types((), (), Form.CHOICE), (part,), (Rung("cascade", dial),), "cascade")


def shelf_of(folder: Path, *policies: Policy) -> list[str]:
    """Put these policies on a shelf in this folder, the first of them live, and return their versions."""
    versions = []
    for place, policy in enumerate(policies):
        file = folder.parent / f"policy-{place}"
        save(policy, file)
        versions.append(put(folder, file, ME)[0])
    return versions
