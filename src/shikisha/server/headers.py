"""What every answer says of its run beside the API's own fields: headers, and on request the `shikisha` object.

Invariant 9: every substitution is in it: which worker answered instead of which, and why, attempt by attempt. Texts of
steps are told only where `full` is asked for. Deliberately absent: the usage (`usage`), and what workers were shown
(the run's page has that).
"""

from collections.abc import Mapping
from hashlib import sha256

from shikisha.budget import Amount
from shikisha.events import AttemptFailed, AttemptFinished, Role
from shikisha.run import Attempt, RoundRecord, Run, StepRecord
from shikisha.server.narrowing import Detail
from shikisha.server.usage import Bill

_PAGE = "/ui/runs/"
_HASH = 16
Told = dict[str, object]


def of_begun(run: str) -> dict[str, str]:
    """Return the headers of a stream: what is known when it opens (its cost is in the usage chunk)."""
    return {"x-shikisha-run-id": run}


def of_ended(run: str, bill: Bill) -> dict[str, str]:
    """Return the headers of a whole answer."""
    cost = "unknown" if bill.dollars is None else f"{bill.dollars:.10f}".rstrip("0").rstrip(".")
    said = {**of_begun(run), "x-shikisha-cost": cost, "x-shikisha-tokens": str(bill.tokens)}
    if bill.uncertain.dollars:
        said["x-shikisha-uncertain-cost"] = f"{bill.uncertain.dollars:.10f}".rstrip("0").rstrip(".")
    return said


def about(run: Run, detail: Detail, url: str | None) -> Told | None:
    """Return the `shikisha` object; None where none is asked for. `url` is where others reach this server."""
    if detail is Detail.NONE:
        return None
    full = detail is Detail.FULL
    planned = [turn for turn in run.rounds if turn.proposed is not None]
    gave = run.finished.round if run.finished and run.finished.round is not None else None
    shown = next((turn for turn in planned if turn.index == gave), planned[-1] if planned else None)
    return {
        "run": run.id,
        "trace": f"{(url or '').rstrip('/')}{_PAGE}{run.id}",
        "status": str(run.status),
        "why": run.finished.why if run.finished else None,
        "conductor": run.started.conductor,
        "policy_version": shown.proposed.version if shown and shown.proposed else None,
        "plan_hash": _plan_hash(shown),
        "rounds": [_round(turn) for turn in run.rounds],
        "steps": [_step(run, turn, index, full=full) for turn in run.rounds for index in range(len(turn.plan or ()))],
    }


def _plan_hash(turn: RoundRecord | None) -> str | None:
    if turn is None or turn.proposed is None:
        return None
    return sha256(turn.proposed.plan.encode()).hexdigest()[:_HASH]


def _round(turn: RoundRecord) -> Told:
    made = turn.proposed
    return {
        "round": turn.index,
        "plan_hash": _plan_hash(turn),
        "policy_version": made.version if made else None,
        "substituted": made.substituted if made else None,
        "rejected": len(turn.rejected),
        "planning": [_attempt(attempt) for attempt in turn.planning.attempts],
    }


def _step(run: Run, turn: RoundRecord, index: int, *, full: bool) -> Told:
    step = turn.plan.steps[index] if turn.plan else None
    record = turn.steps.get(index) or StepRecord(index)
    result = record.result
    own = [attempt for attempt in record.attempts if attempt.started.role is Role.STEP]
    last = own[-1] if own else None
    planned = run.started.pool[step.worker] if step else None
    told: Told = {
        "round": turn.index,
        "step": index,
        "planned_worker": planned,
        "worker": result.worker if result else last.started.worker if last else planned,
        "model": _model(last),
        "access": list(step.access) if step else [],
        "status": "running" if result is None else "ok" if result.ok else "failed",
        "fault": str(result.fault.kind) if result and result.fault else None,
        "attempts": [_attempt(attempt) for attempt in record.attempts],
        "substituted": any(attempt.started.instead_of for attempt in own),
        **_sums(record.attempts),
        "checks": [_check(verdict.check, str(verdict.status), verdict.reason, full=full) for verdict in record.checks],
    }
    if full:
        told |= {"subtask": step.subtask if step else None, "answer": result.text if result else None}
    return told


def _attempt(attempt: Attempt) -> Told:
    begun, end = attempt.started, attempt.outcome
    return {
        "worker": begun.worker,
        "role": str(begun.role),
        "reason": str(begun.reason),
        "instead_of": begun.instead_of,
        "model": _model(attempt),
        "fault": str(end.fault) if isinstance(end, AttemptFailed) else None,
        **_sums([attempt]),
    }


def _sums(attempts: list[Attempt]) -> Mapping[str, object]:
    ended = [each.outcome for each in attempts if each.outcome is not None]
    charged = sum((each.charged for each in attempts), Amount())
    uncertain = sum((each.uncertain for each in attempts), Amount())
    return {
        "tokens": charged.tokens,
        "cost": charged.dollars,
        "uncertain_tokens": uncertain.tokens,
        "uncertain_cost": uncertain.dollars,
        "milliseconds": round(1000 * sum(outcome.seconds for outcome in ended)),
    }


def _model(attempt: Attempt | None) -> str | None:
    end = attempt.outcome if attempt else None
    return (end.model or None) if isinstance(end, AttemptFinished) else None


def _check(name: str, status: str, reason: str, *, full: bool) -> Told:
    return {"check": name, "status": status, **({"reason": reason} if full else {})}
