"""The progress of a run: a live tree on a terminal, plain lines elsewhere; and the same tree for `runs show`.

Progress observes every event (`Engine(observe=…)`) and draws from nothing else. Invariants: it writes to stderr only;
`paused` keeps it still while a person is asked; every text of a model or a user is cleaned and on one line. Child runs
hang below the step that started them.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import zip_longest
from time import time
from typing import TYPE_CHECKING

from shikisha.cli import output
from shikisha.core.budget import Amount, format_dollars
from shikisha.core.errors import FaultKind
from shikisha.core.events import (
    AttemptFailed,
    AttemptReason,
    AttemptStarted,
    CallRole,
    CheckDecided,
    CheckStatus,
    Event,
    PlanProposed,
    QuestionKind,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStatus,
    StepFinished,
    ToolRefused,
)
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.plan import Step, step_name
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord
from shikisha.core.text import one_line

if TYPE_CHECKING:  # rich is imported when something is drawn: most runs write to a pipe, or with --quiet
    from typing import Self

    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text
    from rich.tree import Tree

PastEvents = Mapping[str, Iterable[Event]]


class RunProgress:
    """Observes a run and shows nothing."""

    started = False

    def observe(self, event: Event) -> None:  # noqa: ARG002 - what draws needs the event
        """Take note of an event."""
        self.started = True

    def paused(self) -> AbstractContextManager[None]:
        """Write nothing inside the context."""
        return nullcontext()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None: ...


def choose_progress(quiet: bool, past: PastEvents | None = None) -> RunProgress:
    """Return the progress that suits stderr. `past` are the events of runs that continue."""
    if quiet:
        return RunProgress()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveProgress(past or {})
    return LineProgress(past or {})


class GrowingRuns(dict[str, Run]):
    """The runs so far, by id, in the order of their beginnings; each grows with its events."""

    def __init__(self, past: PastEvents) -> None:
        super().__init__({run: Run.fold(events) for run, events in past.items()})

    def add(self, event: Event) -> Run | None:
        """Take an event; return its run, None where the run's beginning is not known."""
        if isinstance(event, RunStarted):
            self[event.run] = Run.fold([event])
        elif event.run in self:
            self[event.run].take(event)
        return self.get(event.run)


class LiveProgress(RunProgress):
    """Redraws the run's tree on stderr, a few times a second."""

    def __init__(self, past: PastEvents) -> None:
        self.started = bool(past)
        self._runs = GrowingRuns(past)
        self._live: Live | None = None

    def observe(self, event: Event) -> None:
        """Take note of an event; the next refresh shows it."""
        self.started = True
        self._runs.add(event)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take the tree away and put it back."""
        self._stop(keep=False)
        try:
            yield
        finally:
            self._start()

    def __enter__(self) -> "Self":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(keep=True)

    def _start(self) -> None:
        from rich.live import Live

        _echo_controls(False)
        self._live = Live(console=output.make_console(), get_renderable=self._draw, refresh_per_second=8)
        self._live.start()

    def _stop(self, *, keep: bool) -> None:
        if self._live is not None:
            self._live.transient = not keep
            self._live.stop()
            self._live = None
            _echo_controls(True)

    def _draw(self) -> "RenderableType":
        runs = self._runs.copy()  # the thread that draws is not the one that adds
        root = next((run for run in runs.values() if run.started.parent is None), None)
        return run_tree(RunTreeView(runs, time()), root.id) if root is not None else ""


def _echo_controls(on: bool) -> None:
    """Let the terminal echo ^C or not; the echo would shift the tree by a column or a line."""
    try:
        import termios
    except ImportError:
        return
    with suppress(termios.error, OSError, ValueError):
        settings = termios.tcgetattr(sys.stderr)
        settings[3] = settings[3] | termios.ECHOCTL if on else settings[3] & ~termios.ECHOCTL
        termios.tcsetattr(sys.stderr, termios.TCSANOW, settings)


class LineProgress(RunProgress):
    """Prints a line when a round is planned, when a step ends, and when anything fails."""

    def __init__(self, past: PastEvents) -> None:
        self.started = bool(past)
        self._runs = GrowingRuns(past)
        self._failures: list[str] = []  # that nothing was printed after

    def observe(self, event: Event) -> None:
        """Print the line of this event, if it has one."""
        self.started = True
        run = self._runs.add(event)
        if run is None:
            return
        indent, lines = "  " * run.started.depth, list(self._lines(event, run))
        if isinstance(event, AttemptFailed):
            new = f"{indent}  {event.worker}: {event.fault}: {event.message}"
            self._failures += [new] if new not in self._failures else []  # once, however often it was tried
        elif lines and not isinstance(event, StepFinished):
            # The command's last line says why the run failed, and needs no other that says so before it.
            ended = event.why if isinstance(event, RunFinished) and not run.started.depth else None
            for failure in self._failures:
                if ended is None or failure.partition(": ")[2] not in ended:
                    output.print_note(failure)
            self._failures = []
        for line in lines:
            output.print_note(f"{indent}{line}")

    def _lines(self, event: Event, run: Run) -> Iterator[str]:
        match event:
            case RunStarted() | RunResumed() | RunFinished() | RunPaused():
                yield run_line(run, event.at).plain
            case PlanProposed():
                yield round_line(run.round(event.round), run).plain
            case StepFinished():
                record = run.round(event.round)
                if record.plan is not None:
                    yield step_line(record.plan.step_of(event.step), record.step(event.step), run).plain
            case AttemptStarted(role=CallRole.TOOL):
                yield f"  {event.tool or event.worker} is called: {one_line(event.arguments, 100)}"
            case ToolRefused():
                yield f"  {event.tool} is not called: {event.fault}: {one_line(event.message, 200)}"
            case AttemptStarted(reason=AttemptReason.TOOLS) if run.round(event.round).step(event.step).is_agent:
                return  # an agent goes on
            case AttemptStarted(reason=AttemptReason.RETRY):
                return  # its end says how it went
            case AttemptStarted() if event.reason is not AttemptReason.FIRST:
                yield f"  {event.reason}: {event.worker}"
            case CheckDecided() if event.status is not CheckStatus.PASS:
                yield f"  check {event.check}: {event.status}: {event.reason}"
            case _:
                return


_SHOWN_ITEMS = 8  # of a map step: those under way, and those that failed
RUNNING_SIGN, DONE_SIGN, FAILED_SIGN, WAITING_SIGN, ASKING_SIGN = "▶", "✓", "✗", "·", "?"
_SIGN_STYLES = {
    RUNNING_SIGN: "cyan",
    DONE_SIGN: "green",
    FAILED_SIGN: "red",
    WAITING_SIGN: "dim",
    ASKING_SIGN: "yellow",
}
_STATUS_STYLES = {RunStatus.DONE: "green", RunStatus.RUNNING: "cyan", RunStatus.FAILED: "red"}


@dataclass(frozen=True, slots=True)
class RunTreeView:
    """What is drawn: runs by id, the time now (None: afterwards), and whether answers are shown."""

    runs: Mapping[str, Run]
    now: float | None = None
    answers: bool = False


def run_tree(view: RunTreeView, root: str) -> "Tree":
    """Return the tree of a run and its child runs."""
    from rich.tree import Tree

    run = view.runs[root]
    tree = Tree(run_line(run, view.now).draw(), guide_style="dim")
    for record in run.rounds:
        branch = tree.add(round_line(record, run).draw())
        for rejection in record.rejected:
            branch.add(_styled_line(f"no plan: {rejection.where}: {rejection.what}", "yellow").draw())
        for line in problem_lines(record.planning):
            branch.add(line.draw())
        for index, step in enumerate(record.plan.steps if record.plan else ()):
            _add_step(branch, step, record.steps.get(index, StepRecord(index)), run, view)
    return tree


def _add_step(branch: "Tree", step: Step, record: StepRecord, run: Run, view: RunTreeView) -> None:
    leaf = branch.add(step_line(step, record, run, view.now).draw())
    for line in problem_lines(record):
        leaf.add(line.draw())
    for attempt in record.attempts:
        if attempt.started.key in view.runs and attempt.started.key != run.id:
            leaf.add(run_tree(view, attempt.started.key))
    unfinished = [item for item in record.items or () if item.attempts and (item.result is None or not item.result.ok)]
    for item in unfinished[:_SHOWN_ITEMS]:
        _add_step(leaf, step, item, run, view)
    result = record.result
    if view.answers and result is not None and result.text is not None:
        leaf.add(_styled_line(f"→ {one_line(result.text)}", "dim").draw())


def run_line(run: Run, now: float | None = None) -> "StyledLine":
    """Return the line of a run: id, status, seconds and cost."""
    status = run.status
    style = _STATUS_STYLES.get(status, "yellow")
    # While it is watched, the command itself says at the end why there is no answer.
    why = run.why if status is not RunStatus.DONE and (now is None or run.started.depth) else ""
    parts = [
        run.id,
        str(status),
        f"{_format_seconds(_run_seconds(run, now))}",
        format_cost(run.charged),
        *uncertain_cost(run.uncertain),
    ]
    return _styled_line(" · ".join(parts) + (f" · {why}" if why else ""), f"bold {style}")


def round_line(record: RoundRecord, run: Run) -> "StyledLine":
    """Return the line of a round: its topology, its conductor and the cost of planning."""
    if record.plan is None or record.proposed is None:
        return _styled_line(f"round {record.index}: {run.started.conductor} is planning", "cyan")
    who = record.proposed.substituted or record.proposed.conductor
    instead = f" in place of {record.proposed.conductor}" if record.proposed.substituted else ""
    shape = "keeps the answer" if record.plan.ships else record.plan.topology()
    cost = sum((attempt.charged for attempt in record.planning.attempts), Amount())
    paid = f" · {format_cost(cost)}" if record.planning.attempts else ""
    return _styled_line(f"round {record.index}: {shape} by {who}{instead}{paid}", "bold")


def step_line(step: Step, record: StepRecord, run: Run, now: float | None = None) -> "StyledLine":
    """Return the line of a step: worker, state, seconds, cost and subtask."""
    sign, state = _step_state(step, record, run.status)
    planned = run.started.pool[step.worker]
    own = [attempt for attempt in record.attempts if not attempt.started.call]  # and not an agent's tools
    worker = own[-1].started.worker if own else planned
    who = planned if worker == planned else f"{worker} for {planned}"
    facts = [state, *_step_figures(record, now)]
    tries = sum(attempt.started.reason is not AttemptReason.TOOLS for attempt in own)
    facts += [f"{tries} tries"] if tries > 1 and record.items is None else []
    if record.items is not None:
        facts.append(f"{sum(item.finished is not None for item in record.items)} of {len(record.items)} items")
    facts += [f"{record.tool_calls} call{'s' * (record.tool_calls > 1)} of tools"] if record.tool_calls else []
    shown = "".join(f" · {fact}" for fact in facts if fact)
    name = (f"{step_name(record.index)} {one_line(who, 40)}", "bold")
    return StyledLine([(f"{sign} ", _SIGN_STYLES[sign]), name, (shown, ""), (f" · {one_line(step.subtask)}", "dim")])


def _step_state(step: Step, record: StepRecord, status: RunStatus) -> tuple[str, str]:
    """Return the sign of a step, and in words what the sign does not say."""
    if record.finished is not None:
        return (DONE_SIGN, "") if record.finished.fault is None else (FAILED_SIGN, str(record.finished.fault))
    if record.questions and (not record.attempts or status is RunStatus.SUSPENDED):
        asks = record.questions[-1].asks
        return ASKING_SIGN, "waits for the client's tools" if asks is QuestionKind.TOOLS else f"asks a person ({asks})"
    if status is not RunStatus.RUNNING:
        return WAITING_SIGN, "not finished" if record.attempts else "not begun"
    if record.items is not None:
        return RUNNING_SIGN, ""
    if not record.attempts:
        return WAITING_SIGN, f"after {', '.join(map(str, step.access))}" if step.access else "waits"
    return RUNNING_SIGN, "" if record.attempts[-1].in_flight else "retries soon"


def _step_figures(record: StepRecord, now: float | None) -> Iterator[str]:
    if not record.attempts:
        return
    begun = record.attempts[0].started.at
    ended = record.finished.at if record.finished else now
    if ended is not None:
        yield _format_seconds(ended - begun)
    settled = [attempt for attempt in record.attempts if attempt.outcome is not None]
    if settled:
        yield format_cost(sum((attempt.charged for attempt in settled), Amount()))
        yield from uncertain_cost(sum((attempt.uncertain for attempt in settled), Amount()))


def problem_lines(record: StepRecord) -> Iterator["StyledLine"]:
    """Yield what failed in a step, and what was done about it."""
    for attempt, following in zip_longest(record.attempts, record.attempts[1:]):
        leads = _retry_reason(attempt, following)
        if attempt.in_flight and following is not None:
            yield _styled_line(f"{leads}in flight when the process ended", "red")
        # A retry that fails in the same way is one line.
        again = leads.startswith("retry after") and _failure(following) == _failure(attempt)
        if isinstance(attempt.outcome, AttemptFailed) and attempt.outcome.fault is not FaultKind.WAITING and not again:
            said = f": {one_line(attempt.outcome.message)}" if attempt.outcome.message else ""
            yield _styled_line(f"{leads}{attempt.outcome.fault}{said}", "red")
        for check in record.checks:
            if check.attempt == attempt.started.attempt and check.status is not CheckStatus.PASS:
                yield _styled_line(f"{leads}check {check.check}: {check.status}: {one_line(check.reason)}", "red")


def _failure(attempt: Attempt | None) -> tuple[FaultKind, str] | None:
    outcome = attempt.outcome if attempt is not None else None
    return (outcome.fault, outcome.message) if isinstance(outcome, AttemptFailed) else None


def _retry_reason(attempt: Attempt, following: Attempt | None) -> str:
    """Return why there was another attempt, and by which worker; empty where there was none."""
    if following is None or following.started.reason is AttemptReason.FIRST:
        return ""
    worker = following.started.worker
    to = "" if worker == attempt.started.worker else f" to {one_line(worker, 40)}"
    return f"{following.started.reason}{to} after "


def _run_seconds(run: Run, now: float | None) -> float:
    if run.finished is not None or now is None:
        return run.active_seconds
    return max(run.active_seconds, now - run.started.at)


class StyledLine(tuple[tuple[str, str], ...]):
    """A line in parts, each with its style; on a terminal it is cut where the terminal ends."""

    @property
    def plain(self) -> str:
        """The line without styles."""
        return "".join(text for text, _ in self)

    def draw(self) -> "Text":
        """Return the line as rich draws it."""
        from rich.text import Text

        return Text.assemble(*self, no_wrap=True, overflow="ellipsis")


def _styled_line(text: str, style: str) -> StyledLine:
    return StyledLine([(one_line(text, 400), style)])


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def uncertain_cost(amount: Amount) -> Iterator[str]:
    """Yield the cost that may come in addition, where there is any."""
    if amount.dollars is None or amount.dollars > 0:
        yield f"up to {format_cost(amount)} more, uncertain"


def format_cost(amount: Amount) -> str:
    """Return the dollars of an amount as text; `$?` where they are unknown."""
    return format_dollars(amount.dollars)


def run_summary(run: Run) -> Mapping[str, object]:
    """Return a run as `--json` prints it. Tokens and dollars include child runs; unknown dollars are null.

    The `uncertain_…` amounts may have been used in addition, by calls whose outcome is unknown.
    """
    end = run.finished
    return {
        "id": run.id,
        "run": run.id,  # its name before 0.3, for one version
        "status": str(run.status),
        "answer": run.answer,
        "why": run.why,
        "cap": end.cap if end else None,
        "fault": str(end.fault) if end and end.fault else None,
        "conductor": run.started.conductor,
        "rounds": len(run.rounds),
        "steps": sum(len(record.plan or ()) for record in run.rounds),
        "calls": len(run.attempts),
        "tokens": run.charged.tokens,
        "dollars": run.charged.dollars,
        "uncertain_tokens": run.uncertain.tokens,
        "uncertain_dollars": run.uncertain.dollars,
        "seconds": round(run.active_seconds, 3),
        "waits_for": [
            {"step": question.step, "worker": question.worker, "asks": str(question.asks), "prompt": question.prompt}
            for question in run.open_questions
        ],
    }
