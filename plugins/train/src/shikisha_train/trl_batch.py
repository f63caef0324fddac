"""Between TRL and our groups: rewards in TRL's form, batches joined, and what processes tell each other.

TRL's rows are a prompt, padded on the left, and a completion, padded on the right. Invariants: what has no reward is
None, never a number; every process hears the same groups in the same order, as JSON (nothing is pickled), so all
compute the same advantages.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's documentation uses
from torch import Tensor

from shikisha.core.errors import ShikishaError
from shikisha_train.plan_reward import PlanScorer, ScoredPlan
from shikisha_train.process_group import ProcessGroup, current_process_group, first_error
from shikisha_train.rollout import PlanPrompt, RolloutGroup
from shikisha_train.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TrlRows = Mapping[str, Tensor]
"""TRL's names: prompt_ids and prompt_mask [N, P], completion_ids and completion_mask [N, C], more of [N, C] or [N]."""


class PlanRewardFunction:
    """The reward function that TRL calls: performs the plans that were sampled.

    `completions`, `scored` and `failure` are of the last call, by group of `size`; `end` is the token that ends a
    completion; `event_loop` is where plans are performed (None: in the caller's).
    """

    def __init__(self, tokenizer: "Tokenizer", end: int, scorer: PlanScorer, settings: TrainSettings) -> None:
        self._tokenizer, self.end, self._scorer = tokenizer, end, scorer
        self._times = settings.grpo.performances
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.size = settings.grpo.group
        self.completions: list[list[str]] = []
        self.scored: list[list[ScoredPlan]] = []
        self.failure: BaseException | None = None
        self._work: Future[list[list[ScoredPlan]]] | None = None

    def begin(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Perform in this event loop from now on."""
        self.event_loop, self._stopped = event_loop, False

    async def perform(
        self, completion_ids: Sequence[Sequence[int]], question: Sequence[PlanPrompt], **_: object
    ) -> list[float | None]:
        """Return the reward of each completion: the reward function, as TRL calls it.

        With several processes a failure is kept until all have finished this call: raised here, it would leave the
        others waiting in TRL's next collective operation.
        """
        self.failure = None
        try:
            texts = [self.text(ids) for ids in completion_ids]
            starts = range(0, len(texts), self.size)
            self.completions = [texts[start : start + self.size] for start in starts]
            asked = [question[start] for start in starts]
            work = self._scorer.scores(
                self.completions, [one.item for one in asked], [one.texts for one in asked], self._times
            )
            if self.event_loop is None:
                self.scored = await work
            else:
                self._work = asyncio.run_coroutine_threadsafe(work, self.event_loop)
                if self._stopped:  # while it was handed over
                    self._work.cancel()
                self.scored = await asyncio.wrap_future(self._work)
            return [one.total for group in self.scored for one in group]
        except (ShikishaError, ExceptionGroup, asyncio.CancelledError) as error:
            failure = first_error(error) if isinstance(error, ExceptionGroup) else error
            if current_process_group().count == 1 or not isinstance(failure, ShikishaError | asyncio.CancelledError):
                raise
            self.failure = failure
            return [None] * len(completion_ids)

    def stop(self) -> None:
        """Perform nothing more, from any thread: the reward function is cancelled, now or when it is called."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    def groups(self, questions: Sequence[PlanPrompt], rows: TrlRows) -> Iterator[RolloutGroup]:
        """Yield the groups of the last call, with the number of tokens that TRL's batch of it has."""
        tokens = rows["completion_mask"].sum(-1).view(len(questions), self.size).sum(-1).tolist()
        for place, question in enumerate(questions):
            yield RolloutGroup(question, tuple(self.completions[place]), tuple(self.scored[place]), int(tokens[place]))

    def text(self, ids: Sequence[int]) -> str:
        """Return what a completion's tokens say."""
        text: str = self._tokenizer.decode([token for token in ids if token != self.end], skip_special_tokens=True)
        return text


def join_batches(batches: Sequence[TrlRows], multiple: int) -> dict[str, Tensor]:
    """Return batches as one; copies of its last row fill it up to a multiple."""
    more = -sum(len(batch["prompt_ids"]) for batch in batches) % multiple
    joined: dict[str, Tensor] = {}
    for name, first in batches[0].items():
        parts = [batch[name] for batch in batches]
        if first.dim() == 0:
            joined[name] = torch.stack(parts).sum()
            continue
        if first.dim() > 1:
            # Parts [., T] padded to the same T; what is masked may hold anything.
            left = name.startswith("prompt")
            longest = max(part.shape[1] for part in parts)
            missing = [longest - part.shape[1] for part in parts]
            parts = [F.pad(part, (lack, 0) if left else (0, lack)) for part, lack in zip(parts, missing, strict=True)]
        joined[name] = torch.cat([*parts, parts[-1][-1:].expand(more, *parts[-1].shape[1:])])
    return joined


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What all processes must know of a group; workers' answers stay in the process that asked them.

    `rank` is whose it is, `second` whether it is a second round, `at_hand` whether the answer at hand was right.
    """

    rank: int
    second: bool
    at_hand: bool
    found: tuple[ScoredPlan, ...]
    tokens: int
    task: str = ""

    @property
    def right(self) -> float:
        """The share of right answers."""
        return sum(one.right for one in self.found) / len(self.found)


def gather_groups(processes: ProcessGroup, groups: Sequence[RolloutGroup]) -> list[GroupSummary]:
    """Return the groups of all processes, by rank."""
    if processes.count == 1:
        return [_summarize_group(group, group.scored) for group in groups]
    facts = [
        {**asdict(_summarize_group(group, ())), "found": [_encode_scored(one) for one in group.scored]}
        for group in groups
    ]
    return [
        GroupSummary(**{**fact, "rank": rank, "found": tuple(map(_decode_scored, fact["found"]))})
        for rank, text in enumerate(processes.gather_texts(json.dumps(facts)))
        for fact in json.loads(text)
    ]


def max_over_processes(processes: ProcessGroup, count: int) -> int:
    """Return the largest of the processes' numbers."""
    return max(int(each) for each in processes.gather_texts(str(count)))


def _summarize_group(group: RolloutGroup, found: tuple[ScoredPlan, ...]) -> GroupSummary:
    question = group.question
    return GroupSummary(0, question.is_second, bool(question.right), found, group.tokens, question.item.task.id)


def _encode_scored(one: ScoredPlan) -> dict[str, object]:
    """Return what can be told of it: all but its rounds."""
    told = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "rounds"}
    return {**told, "parts": dict(one.parts)}


def _decode_scored(told: dict[str, object]) -> ScoredPlan:
    make = cast("Callable[..., ScoredPlan]", ScoredPlan)
    return make(**{**told, "workers": tuple(cast("list[object]", told["workers"]))})
