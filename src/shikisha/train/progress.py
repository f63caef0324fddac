"""What one step of training came to, in figures and samples: one record, which every view and file reads.

Invariant: a `Step` holds what was counted in that step and nothing smoothed; shares sum to 1 over what they are of. A
record is JSON data, so a run's figures are one JSONL file that any view can be drawn from again. Deliberately absent:
views (`live`, `page`, TensorBoard). Figures of tasks that are not learned from are `Judged`; few steps have them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import log2
from typing import Protocol, TypedDict

import numpy as np

from shikisha.train.advantage import Floats
from shikisha.train.scoring import Scored

SHOWN = 4  # samples a step


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion, what it was for and what it came to."""

    task: str
    text: str
    reward: float | None
    shape: str
    right: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What the policy comes to on tasks that it does not learn from: `right` of `count` (greedy), dollars a task."""

    count: int
    right: float
    valid: float
    dollars: float
    shapes: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)  # what others come to on the same tasks


@dataclass(frozen=True, slots=True)
class Step:
    """One step of GRPO.

    `reward` and `parts` are means over what was scored; `right` of all, `right_if_valid` of valid plans; `masked` is
    the share spoilt by workers, `even` of groups without variance; `workers` and `shapes` are shares; `entropy` of the
    policy's tokens (nats), `worker_entropy` of who was asked (bits); `seconds` by what took them.
    """

    number: int
    of: int
    reward: float
    parts: Mapping[str, float]
    right: float
    valid: float
    right_if_valid: float
    several_steps: float
    masked: float
    even: float
    workers: Mapping[str, float]
    worker_entropy: float
    shapes: Mapping[str, float]
    entropy: float
    kl: float
    loss: float
    gradient: float
    rate: float
    tokens: int
    dollars: float
    seconds: Mapping[str, float]
    second_round: Mapping[str, float] = field(default_factory=dict)  # share kept, repaired, broken, where there was one
    samples: tuple[Sample, ...] = ()
    judged: Judged | None = None
    replay: float = 0.0  # mean loss of the lessons beside it (nats a token)

    def dumps(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def loads(cls, line: str) -> "Step":
        """Return what `dumps` wrote."""
        data = json.loads(line)
        data["samples"] = tuple(Sample(**one) for one in data["samples"])
        data["judged"] = None if data["judged"] is None else Judged(**data["judged"])
        return cls(**data)


class Counted(TypedDict):
    """The fields of a `Step` that are counted from what was scored."""

    reward: float
    parts: dict[str, float]
    right: float
    valid: float
    right_if_valid: float
    several_steps: float
    masked: float
    workers: dict[str, float]
    worker_entropy: float
    shapes: dict[str, float]


class Watcher(Protocol):
    """Is told of every step."""

    def __call__(self, step: Step) -> None:
        """Take note of a step."""
        ...


def counted(found: Sequence[Scored]) -> Counted:
    """Return the fields of a Step that are counted from what was scored."""
    known = [one for one in found if one.total is not None]
    valid = [one for one in known if one.valid]
    names = sorted({name for one in known for name in one.parts})
    asked = Counter(worker for one in valid for worker in one.workers)
    return {
        "reward": _mean([one.total or 0.0 for one in known]),
        "parts": {name: _mean([one.parts.get(name, 0.0) for one in known]) for name in names},
        "right": _mean([one.right for one in known]),
        "valid": _mean([one.valid for one in known]),
        "right_if_valid": _mean([one.right for one in valid]),
        "several_steps": _mean([one.several for one in valid]),
        "masked": 1 - len(known) / max(1, len(found)),
        "workers": _shares(asked),
        "worker_entropy": bits(asked),
        "shapes": _shares(Counter(one.shape for one in known)),
    }


def second_round(found: Sequence[tuple[bool, Scored]]) -> dict[str, float]:
    """Return the shares kept, repaired and broken of second rounds, each with whether the answer at hand was right."""
    if not found:
        return {}
    return {
        "kept": _mean([one.shape == "ship" for _, one in found]),
        "repaired": _mean([one.right and not right for right, one in found]),
        "broken": _mean([right and not one.right for right, one in found]),
    }


def bits(counts: Mapping[str, int]) -> float:
    """Return the entropy of counts, in bits."""
    total = sum(counts.values())
    return -sum(count / total * log2(count / total) for count in counts.values() if count) if total else 0.0


def rewards_of(found: Sequence[Scored]) -> Floats:
    """Return [N] rewards; NaN where a worker spoilt the run."""
    return np.array([np.nan if one.total is None else one.total for one in found], np.float64)


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: count / total for name, count in ordered}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
