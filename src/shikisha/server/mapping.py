"""What went wrong, as an HTTP client is told: errors of the house and runs without an answer, each with its status.

Invariant 8: messages are the run's own, scrubbed already, and nothing of the server's configuration but names that the
client may use. Whoever would only repeat an expense by trying again is not asked to: `Retry-After` is for what passes.
Deliberately absent: what nobody foresaw (the app's own handler).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shikisha.depth import TOO_DEEP
from shikisha.errors import (
    CapReached,
    ConfigError,
    Conflict,
    FaultKind,
    JournalError,
    JournalUnavailable,
    PlanError,
    RunErased,
    ShikishaError,
    StillOpen,
    TaskError,
    UnknownRun,
    WorkerError,
)
from shikisha.events import AttemptFailed, AttemptFinished, Finish, Status
from shikisha.run import Run
from shikisha.server.problems import Problem
from shikisha.server.usage import answering

NO_RETRY: Mapping[str, str] = {
    "x-should-retry": "false"
}  # the openai SDKs go by it: a new try is a new run, and a bill
_JOURNAL_WAIT = 5.0
_CAPS: Mapping[str, int] = {"dollars": 402, "tokens": 402, "seconds": 504, "rounds": 429, "steps": 429, "depth": 429}
_FAULTS: Mapping[FaultKind, tuple[int, str]] = {
    FaultKind.NOT_CLEARED: (403, "not_cleared"),
    FaultKind.DENIED: (403, "denied"),
    FaultKind.NO_PLAN: (502, "no_plan"),
    FaultKind.UNREADABLE: (422, "unreadable"),  # another try would read the same words
    FaultKind.REFUSED: (502, "refused"),
    FaultKind.TRUNCATED: (502, "truncated"),
    FaultKind.TIMEOUT: (504, "worker_timeout"),
    FaultKind.RATE_LIMITED: (503, "workers_busy"),
    FaultKind.CHECK_FAILED: (502, "check_failed"),
    FaultKind.TOO_DEEP: (400, TOO_DEEP),
}


def problem_of(error: ShikishaError) -> Problem:
    """Return what a client is told of an error of the house."""
    match error:
        case PlanError() | TaskError():
            return Problem(400, str(error), "invalid_request")
        case JournalUnavailable():
            return Problem(
                503, "the journal cannot be written now; nothing was begun", "unavailable", wait=_JOURNAL_WAIT
            )
        case UnknownRun():
            return Problem(404, str(error), "run_not_found")
        case RunErased():
            return Problem(410, str(error), "run_erased")
        case StillOpen() | Conflict():
            return Problem(409, str(error), "conflict")
        case JournalError():
            return Problem(500, "the journal does not hold what it should; the operator is asked to look", "journal")
        case CapReached():
            return Problem(_CAPS.get(error.cap, 429), str(error), "budget_exceeded")
        case WorkerError():
            return _faulty(error.fault.kind, str(error))
        case ConfigError():
            return Problem(500, "the server is not configured for this; its log says more", "misconfigured")
        case _:
            return Problem(500, "an error that nobody foresaw; the server's log says more", "internal")


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's answer; `cut`: it ran into the limit on its length, and is what there was until then."""

    text: str
    cut: bool = False


def outcome(run: Run) -> Answer | Problem:
    """Return what a run that has ended, or was stopped, came to."""
    end = run.finished
    if end is None:
        return Problem(409, f"run {run.id} was stopped before its end", "cancelled")
    if end.answer is not None and end.status is not Status.FAILED:
        given = answering(run)
        said = given.outcome if given else None
        return Answer(end.answer, cut=isinstance(said, AttemptFinished) and said.finish is Finish.LENGTH)
    if end.fault is FaultKind.TRUNCATED and run.reached is None and (partial := _partial(run)):
        return Answer(partial, cut=True)
    why = f"run {run.id}: {end.why}"
    if end.cap is not None and end.status is Status.CAPPED:
        return Problem(_CAPS.get(end.cap, 402), why, "budget_exceeded")
    if end.fault is FaultKind.CAP:
        return Problem(402, why, "budget_exceeded")
    return Problem(502, why, "run_failed") if end.fault is None else _faulty(end.fault, why)


def _partial(run: Run) -> str | None:
    """Return what the last step's worker said before it ran into its limit."""
    plan = run.rounds[-1].plan if run.rounds else None
    last = run.rounds[-1].steps.get(len(plan) - 1) if plan else None
    ended = last.attempts[-1].outcome if last and last.attempts else None
    return ended.partial if isinstance(ended, AttemptFailed) and ended.fault is FaultKind.TRUNCATED else None


def _faulty(kind: FaultKind, said: str) -> Problem:
    status, code = _FAULTS.get(kind, (502, "run_failed"))
    return Problem(status, said if str(kind) in said else f"{said} ({kind})", code)
