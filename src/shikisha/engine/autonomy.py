"""How much a run may do on its own: the class of its task says whether a person looks at its answer, and when.

Three modes, after the three ways in which assistants are deployed: *review* (a person approves every answer),
*escalate* (a person is asked when a rule says so), *autonomous* (the journal is the audit trail). Invariants: the first
class that fits a task decides. Rules look at the journaled run only, so they say the same after a restart, and what
they cannot know (a cost without a price) counts as a reason to ask. No worker's output is an input of any rule but the
comparison of votes, which can only ask more (5). Deliberately absent: asking (`questions`) and the run's end
(`rounds`).
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from time import time

from shikisha.core.budget import format_dollars
from shikisha.core.errors import FaultKind
from shikisha.core.events import AttemptReason, EndReached
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Run
from shikisha.core.task import Task


class AutonomyMode(StrEnum):
    """Whether a person sees a run's answer before its user does."""

    REVIEW = "review"  # a person approves, changes or refuses it
    ESCALATE = "escalate"  # a person is asked where a rule says so
    AUTONOMOUS = "autonomous"  # no person is asked


class OnFailure(StrEnum):
    """What happens to the effects of a run that ends without an answer."""

    KEEP = "keep"  # they stay, until a person rolls them back
    ROLLBACK = "rollback"  # compensating calls undo them before the run ends


@dataclass(frozen=True, slots=True)
class EscalationRules:
    """When a person is asked. `workers` are those whose every call needs a yes; the others look at the answer.

    `check`: a check on the answer did not pass, or the last step failed and an earlier answer is kept. `substitution`:
    a fallback, a dearer worker or another conductor stood in. `dollars`: the run cost more. `confidence`: a round's
    plan was drawn with a lower probability. `disagreement`: steps with the same subtask answered differently.
    """

    check: bool = False
    substitution: bool = False
    disagreement: bool = False
    dollars: float | None = None
    confidence: float | None = None
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AutonomyClass:
    """A class of tasks and its mode. Empty domains or conductors fit any; `labels` must all be on the task.

    `expires` is how many seconds a question stays open (None: for ever). `belongs` says whether a prompt is of the
    class where no domain or label tells it (None: every prompt is). `tenant`: it was learned of this tenant's runs and
    fits these alone.
    """

    name: str = ""
    mode: AutonomyMode = AutonomyMode.AUTONOMOUS
    domains: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    conductors: tuple[str, ...] = ()
    rules: EscalationRules = EscalationRules()
    expires: float | None = None
    on_failure: OnFailure = OnFailure.KEEP
    clock: Callable[[], float] = time
    belongs: Callable[[str], bool] | None = None
    tenant: str | None = None

    def fits(self, task: Task, conductor: str) -> bool:
        """Whether a task under this conductor is of this class."""
        matches = (not self.domains or task.domain in self.domains) and set(self.labels) <= set(task.labels)
        matches = matches and (not self.conductors or conductor in self.conductors)
        matches = matches and (self.tenant is None or self.tenant == task.tenant)
        return matches and (self.belongs is None or self.belongs(task.prompt))

    @property
    def watches(self) -> bool:
        """Whether answers may need a person's eye."""
        return self.mode is not AutonomyMode.AUTONOMOUS

    def asks_before(self, worker: str) -> bool:
        """Whether each call to this worker needs a person's yes."""
        return worker in self.rules.workers

    def until(self) -> float:
        """Return when a question that is asked now expires; 0: never."""
        return 0.0 if self.expires is None else self.clock() + self.expires

    def over(self, expires: float) -> bool:
        """Whether a question's time is over."""
        return 0 < expires <= self.clock()


FULL_AUTONOMY = AutonomyClass()


@dataclass(frozen=True, slots=True)
class AutonomyPolicy:
    """The classes in order, and what holds for tasks of none."""

    classes: tuple[AutonomyClass, ...] = ()
    otherwise: AutonomyClass = FULL_AUTONOMY

    def of(self, task: Task, conductor: str) -> AutonomyClass:
        """Return the first class that fits, or what holds otherwise."""
        return next((each for each in self.classes if each.fits(task, conductor)), self.otherwise)


def review_reasons(autonomy: AutonomyClass, run: Run, end: EndReached) -> tuple[str, ...]:
    """Return why a person is to see the answer that the run is about to end with; empty: nobody is."""
    if end.answer is None or not autonomy.watches:
        return ()
    named = f" {autonomy.name}" if autonomy.name else ""
    if autonomy.mode is AutonomyMode.REVIEW:
        return (f"every answer to a task of class{named} is reviewed" if named else "every answer is reviewed",)
    return tuple(_escalation_reasons(autonomy.rules, run, end))


def _escalation_reasons(rules: EscalationRules, run: Run, end: EndReached) -> Iterator[str]:
    if rules.check:
        yield from _failed_check_reasons(run, end)
    if rules.substitution:
        yield from _substitution_reasons(run)
    if rules.dollars is not None:
        dollars = run.counted.dollars
        if dollars is None or dollars > rules.dollars:
            cost = "its cost is unknown" if dollars is None else f"it cost {format_dollars(dollars, 6)}"
            yield f"{cost}, and from {format_dollars(rules.dollars)} on a person looks at it"
    if rules.confidence is not None:
        drawn = [made.propensity for round_ in run.rounds if (made := round_.proposed) and made.propensity is not None]
        if drawn and min(drawn) < rules.confidence:
            yield f"its plan was drawn with probability {min(drawn):.3f}, below {rules.confidence:g}"
    if rules.disagreement:
        yield from _disagreement_reasons(run, end)


def _failed_check_reasons(run: Run, end: EndReached) -> Iterator[str]:
    if end.fault is not None and end.fault is not FaultKind.CAP:
        yield f"an earlier answer is kept, since the last step failed ({end.fault})"
    if end.round is None or end.step is None:
        return
    result = run.round(end.round).step(end.step).result
    for verdict in result.verdicts if result else ():
        if not verdict.passed:
            yield f"the check {verdict.check} said {verdict.status}: {verdict.reason}"


def _substitution_reasons(run: Run) -> Iterator[str]:
    for round_ in run.rounds:
        if round_.proposed is not None and round_.proposed.substituted is not None:
            yield f"{round_.proposed.substituted} planned instead of {round_.proposed.conductor}"
    for attempt in run.attempts:
        begun = attempt.started
        if begun.reason in (AttemptReason.FALLBACK, AttemptReason.ESCALATION):
            yield f"{begun.worker} stood in for {begun.instead_of} ({begun.reason})"


def _disagreement_reasons(run: Run, end: EndReached) -> Iterator[str]:
    round_ = run.rounds[end.round] if end.round is not None else None
    if round_ is None or round_.plan is None:
        return
    said: dict[str, set[str]] = {}
    for step, result in zip(round_.plan.steps, round_.results, strict=True):
        if result is not None and result.text is not None:
            said.setdefault(step.subtask, set()).add(" ".join(result.text.split()).casefold())
    for answers in said.values():
        if len(answers) > 1:
            yield f"workers that were asked the same gave {len(answers)} different answers"
