"""Reads from journals which tools were right: what an agent was offered, what it called, and how the step came out.

A tool that was called with a result, in a step whose checks passed, is right for that step's subtask; a tool that was
offered there and not called is a weak negative. A tool that was called in the end but not offered at first counts as
right for the first search too: that search missed it. Invariants: a step that failed, or whose run was graded wrong,
says nothing; a tool that has changed since (its hash is another) says nothing; a run whose texts were erased says
nothing. The weight of a step is its evidence: a check that passed or a grade counts 1, none counts less.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from shikisha.core.events import AttemptFinished, CallRole, CheckStatus, ToolsOffered
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run, StepRecord
from shikisha.core.tools import load_offer
from shikisha.journal import Journal
from shikisha.retrieval.fit_ranker import Judgment
from shikisha.tools.catalogue_entry import CatalogueEntry

_UNCHECKED_WEIGHT = 0.5
_RIGHT = 0.5


@dataclass(frozen=True, slots=True)
class ToolJudgments:
    """Judgments over the tools of one catalogue, and what was left out, counted."""

    judgments: tuple[Judgment, ...]
    skipped: Mapping[str, int]


async def gather_judgments(journal: Journal, catalogue: str, entries: Sequence[CatalogueEntry]) -> ToolJudgments:
    """Read every run of an open journal, oldest first."""
    gathering = _JudgmentReader(catalogue, entries)
    for run in await journal.all_runs():
        gathering.add_run(run)
    return ToolJudgments(tuple(gathering.judgments), dict(gathering.skipped))


class _JudgmentReader:
    def __init__(self, catalogue: str, entries: Sequence[CatalogueEntry]) -> None:
        self._catalogue = catalogue
        self._places = {each.tool.name: place for place, each in enumerate(entries)}
        self._hashes = {each.tool.name: each.tool.sha256 for each in entries}
        self.judgments: list[Judgment] = []
        self.skipped: Counter[str] = Counter()

    def add_run(self, run: Run) -> None:
        """Take the steps of a run."""
        if run.erased is not None:
            self.skipped["runs whose texts were erased"] += 1
            return
        right = None if run.grade is None else bool((run.grade.score or 0.0) >= _RIGHT)
        for record in run.rounds:
            for index, step in record.steps.items():
                offers = [each for each in step.tools if isinstance(each, ToolsOffered)]
                if not offers:
                    continue
                subtask = record.plan.step_of(index).subtask if record.plan is not None else ""
                weight = self._weight(step, right)
                if weight:
                    self.judgments += self._judgments(step, offers, subtask, weight)

    def _weight(self, step: StepRecord, right: bool | None) -> float:
        """Return how much a step's outcome says; 0 where it says nothing."""
        result = step.result
        if result is None or result.fault is not None:
            self.skipped["steps without a result"] += 1
            return 0.0
        statuses = {verdict.status for verdict in result.verdicts}
        if CheckStatus.FAIL in statuses or right is False:
            self.skipped["steps that a check or a grade says were wrong"] += 1
            return 0.0
        return 1.0 if CheckStatus.PASS in statuses or right else _UNCHECKED_WEIGHT

    def _judgments(
        self, step: StepRecord, offers: Sequence[ToolsOffered], subtask: str, weight: float
    ) -> Iterator[Judgment]:
        called = list(dict.fromkeys(self._called(step)))
        if not called:
            self.skipped["steps in which no tool of the catalogue was called"] += 1
            return
        for offer in offers:
            offered = [
                each.tool
                for each in load_offer(offer.tools)
                if each.server == f"@{self._catalogue}" and self._hashes.get(each.tool) == each.sha256
            ]
            # A search of the agent's own was for something in particular: what it brought and was then called.
            right = [name for name in called if not offer.call or name in offered]
            query = offer.query or subtask
            if right and query.strip():
                unused = tuple(self._places[name] for name in offered if name not in called)
                yield Judgment(query, tuple(self._places[name] for name in right), unused, weight)

    def _called(self, step: StepRecord) -> Iterator[str]:
        for attempt in step.attempts:
            begun = attempt.started
            ours = begun.role is CallRole.TOOL and begun.worker == self._catalogue and begun.tool in self._places
            if ours and isinstance(attempt.outcome, AttemptFinished):
                yield begun.tool
