"""A step on its way through TRL: what all processes' completions came to, their advantages, what was learned of them.

Invariant: every process reckons the same from the same. Deliberately absent: how a step is taken (`trainer`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from shikisha.train.advantage import Floats
from shikisha.train.batch import Group
from shikisha.train.compared import by_itself, compared
from shikisha.train.processes import Heard
from shikisha.train.progress import SHOWN, Step, counted, second_round
from shikisha.train.settings import TrainSettings


@dataclass(slots=True)
class Taking:
    """A step; `terms` are policy loss, KL and entropy, added up over the parts of its batch."""

    groups: Sequence[Group] = ()  # this process's own
    heard: Sequence[Heard] = ()  # everybody's
    wished: Floats = field(default_factory=lambda: np.zeros(0))  # everybody's advantages
    even: float = 0.0
    terms: Tensor = field(default_factory=lambda: torch.zeros(3))
    begun: float = field(default_factory=perf_counter)
    sampled: float = 0.0
    replayed: bool = False  # the lessons beside it were taken

    @property
    def kept(self) -> int:
        """How many completions there are to learn from."""
        return int(np.count_nonzero(self.wished))

    def compare(self, settings: TrainSettings, step: int) -> None:
        """Find the advantages of what was heard."""
        found, second = [one.found for one in self.heard], [one.second for one in self.heard]
        tasks = [f"{one.rank} {one.task}" for one in self.heard]
        self.wished, self.even = compared(found, second, settings, step, tasks)
        self.sampled = perf_counter()

    def weigh(self, rows: dict[str, Tensor], rank: int, processes: int) -> None:
        """Put the advantages of this process into its rows, and what each row weighs in a mean over all of them.

        TRL takes the mean over a process's rows, and then over processes; ours is over completions that have an
        advantage, wherever they are. Rows after the last completion fill the batch up.
        """
        ranks = np.repeat([one.rank for one in self.heard], [len(one.found) for one in self.heard])
        own = np.zeros(len(rows["prompt_ids"]))
        own[: int((ranks == rank).sum())] = self.wished[ranks == rank]
        share = len(own) * processes / max(1, self.kept)
        like = rows["advantages"]
        rows["advantages"] = torch.tensor(own * share, dtype=torch.float32, device=like.device)
        rows["weights"] = torch.tensor((own != 0) * share, dtype=torch.float32, device=like.device)

    def told(self, number: int, gradient: float, settings: TrainSettings) -> Step:
        """Return the step's record; `number` steps were taken, this one included."""
        policy, kl, entropy = self.terms.tolist()
        pairs = [(one.at_hand, each) for one in self.heard if one.second for each in one.found]
        return Step(
            number=number,
            of=settings.grpo.steps,
            **counted(by_itself([one.found for one in self.heard if not one.second], settings, number - 1)),
            dollars=sum(each.dollars for one in self.heard for each in one.found),
            second_round=second_round(pairs),
            even=self.even,
            entropy=entropy,
            kl=kl,
            loss=policy,
            gradient=gradient,
            rate=settings.rate_at(number - 1),
            tokens=sum(one.tokens for one in self.heard),
            seconds={"sample and perform": self.sampled - self.begun, "learn": perf_counter() - self.sampled},
            samples=tuple(group.shown() for group in self.groups[:SHOWN]),
        )
