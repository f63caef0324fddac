"""A run as a tree: rounds, steps with worker, state, seconds and cost, and below them why anything was done again.

The same picture serves while a run is performed (folded from the events so far) and afterwards (`trace`). Child runs
hang below the step that started them. Invariant: every text of a model or a user is cleaned and on one line.
Deliberately absent: anything that the events do not say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from shikisha.budget import Amount, format_dollars
from shikisha.clean import one_line
from shikisha.errors import FaultKind
from shikisha.events import AttemptFailed, CheckStatus, QuestionKind, Reason, Status
from shikisha.plan import Step
from shikisha.run import Attempt, RoundRecord, Run, StepRecord

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

RUNNING, DONE, FAILED, WAITS, ASKS = "▶", "✓", "✗", "·", "?"
_STYLES = {RUNNING: "cyan", DONE: "green", FAILED: "red", WAITS: "dim", ASKS: "yellow"}
_STATUS_STYLES = {Status.DONE: "green", Status.RUNNING: "cyan", Status.FAILED: "red"}


@dataclass(frozen=True, slots=True)
class View:
    """What is drawn: the runs by id, the time now (None: afterwards), whether answers are shown too."""

    runs: Mapping[str, Run]
    now: float | None = None
    answers: bool = False


def draw(view: View, root: str) -> "Tree":
    """Return the tree of a run and its child runs."""
    from rich.tree import Tree

    run = view.runs[root]
    tree = Tree(headline(run, view.now), guide_style="dim")
    for record in run.rounds:
        _add_round(tree, record, run, view)
    return tree


def _add_round(tree: "Tree", record: RoundRecord, run: Run, view: View) -> None:
    branch = tree.add(round_line(record, run))
    for rejection in record.rejected:
        branch.add(_line(f"no plan: {rejection.where}: {rejection.what}", "yellow"))
    for line in troubles(record.planning):
        branch.add(line)
    for index, step in enumerate(record.plan.steps if record.plan else ()):
        _add_step(branch, step, record.steps.get(index, StepRecord(index)), run, view)


def _add_step(branch: "Tree", step: Step, record: StepRecord, run: Run, view: View) -> None:
    leaf = branch.add(step_line(step, record, run, view.now))
    for line in troubles(record):
        leaf.add(line)
    for attempt in record.attempts:
        if attempt.started.key in view.runs and attempt.started.key != run.id:
            leaf.add(draw(view, attempt.started.key))
    result = record.result
    if view.answers and result is not None and result.text is not None:
        leaf.add(_line(f"→ {one_line(result.text)}", "dim"))


def headline(run: Run, now: float | None = None) -> "Text":
    """Return where a run stands, on one line."""
    status = run.status
    style = _STATUS_STYLES.get(status, "yellow")
    why = run.why if status is not Status.DONE else ""
    parts = [run.id, str(status), f"{_seconds(_age(run, now))}", money(run.charged), *uncertain(run.uncertain)]
    return _line(" · ".join(parts) + (f" · {why}" if why else ""), f"bold {style}")


def round_line(record: RoundRecord, run: Run) -> "Text":
    """Return who planned a round, and its shape."""
    if record.plan is None or record.proposed is None:
        return _line(f"round {record.index}: {run.started.conductor} is planning", "cyan")
    who = record.proposed.substituted or record.proposed.conductor
    instead = f" in place of {record.proposed.conductor}" if record.proposed.substituted else ""
    shape = "keeps the answer" if record.plan.ships else record.plan.topology()
    cost = sum((attempt.charged for attempt in record.planning.attempts), Amount())
    paid = f" · {money(cost)}" if record.planning.attempts else ""
    return _line(f"round {record.index}: {shape} by {who}{instead}{paid}", "bold")


def step_line(step: Step, record: StepRecord, run: Run, now: float | None = None) -> "Text":
    """Return a step's worker, state, seconds, dollars and subtask."""
    from rich.text import Text

    sign, state = _state(step, record, run.status)
    planned = run.started.pool[step.worker]
    worker = record.attempts[-1].started.worker if record.attempts else planned
    who = planned if worker == planned else f"{worker} for {planned}"
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{sign} ", _STYLES[sign])
    line.append(f"{record.index} {one_line(who, 40)}", "bold")
    facts = [state, *_figures(record, now)]
    line.append(" · " + " · ".join(fact for fact in facts if fact) if any(facts) else "")
    line.append(f" · {one_line(step.subtask)}", "dim")
    return line


def _state(step: Step, record: StepRecord, status: Status) -> tuple[str, str]:
    """Return a step's sign, and in words what the sign does not say."""
    if record.finished is not None:
        return (DONE, "") if record.finished.fault is None else (FAILED, str(record.finished.fault))
    if record.questions and (not record.attempts or status is Status.SUSPENDED):
        asks = record.questions[-1].asks
        return ASKS, "waits for the client's tools" if asks is QuestionKind.TOOLS else f"asks a person ({asks})"
    if status is not Status.RUNNING:
        return WAITS, "not finished" if record.attempts else "not begun"
    if not record.attempts:
        return WAITS, f"after {', '.join(map(str, step.access))}" if step.access else "waits"
    return RUNNING, "" if record.attempts[-1].in_flight else "again soon"


def _figures(record: StepRecord, now: float | None) -> Iterator[str]:
    if not record.attempts:
        return
    begun = record.attempts[0].started.at
    ended = record.finished.at if record.finished else now
    if ended is not None:
        yield _seconds(ended - begun)
    settled = [attempt for attempt in record.attempts if attempt.outcome is not None]
    if settled:
        yield money(sum((attempt.charged for attempt in settled), Amount()))
        yield from uncertain(sum((attempt.uncertain for attempt in settled), Amount()))


def troubles(record: StepRecord) -> Iterator["Text"]:
    """Say why anything was done again or otherwise: what failed, and what it led to."""
    for attempt, following in zip_longest(record.attempts, record.attempts[1:]):
        leads = _leads(attempt, following)
        if attempt.in_flight and following is not None:
            yield _line(f"{leads}in flight when the process ended", "red")
        if isinstance(attempt.outcome, AttemptFailed) and attempt.outcome.fault is not FaultKind.WAITING:
            said = f": {one_line(attempt.outcome.message)}" if attempt.outcome.message else ""
            yield _line(f"{leads}{attempt.outcome.fault}{said}", "red")
        for check in record.checks:
            if check.attempt == attempt.started.attempt and check.status is not CheckStatus.PASS:
                yield _line(f"{leads}check {check.check}: {check.status}: {one_line(check.reason)}", "red")


def _leads(attempt: Attempt, following: Attempt | None) -> str:
    """Say what came after an attempt, where it was not the end: again, or somebody else."""
    if following is None or following.started.reason is Reason.FIRST:
        return ""
    worker = following.started.worker
    to = "" if worker == attempt.started.worker else f" to {one_line(worker, 40)}"
    return f"{following.started.reason}{to} after "


def _age(run: Run, now: float | None) -> float:
    if run.finished is not None or now is None:
        return run.active_seconds
    return max(run.active_seconds, now - run.started.at)


def _line(text: str, style: str) -> "Text":
    from rich.text import Text

    return Text(one_line(text, 400), style, no_wrap=True, overflow="ellipsis")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def uncertain(amount: Amount) -> Iterator[str]:
    """Yield what may have been used besides, as people read it, where that is anything."""
    if amount.dollars is None or amount.dollars > 0:
        yield f"up to {money(amount)} more, uncertain"


def money(amount: Amount) -> str:
    """Return an amount's dollars as people read them; `$?` where nobody can say."""
    return format_dollars(amount.dollars)
