"""The result of a run for an HTTP client: its answer or error, its usage, its headers, and the `shikisha` object.

Invariants: every call of a run and of its child runs counts once, either as the call that gave the answer or as
orchestration; the cost is unknown (None) as soon as one call's cost is. What a call with an unknown outcome may have
used is a separate figure. Every substitution of a worker is visible (9). Texts of steps appear only with
`X-Shikisha-Metadata: full`. A run that waits for a client's tools is billed in parts, one per response
(`RunUsage.less`). An error that a retry cannot cure says so (`NO_RETRY`), since each retry costs money.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from shikisha.core.budget import ZERO, Amount, Usage
from shikisha.core.call import TOO_DEEP_CODE
from shikisha.core.errors import (
    CapReached,
    ConfigError,
    Fault,
    FaultCause,
    FaultKind,
    IdempotencyConflict,
    JournalError,
    JournalUnavailable,
    PlanError,
    RunErased,
    RunStillOpen,
    ShikishaError,
    TaskError,
    UnknownRun,
    WorkerError,
)
from shikisha.core.events import AttemptFailed, AttemptFinished, CallRole, FinishReason, RunStatus
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord, child_run_id
from shikisha.server.http.api_errors import CONTEXT_LENGTH_CODE, ApiError
from shikisha.server.http.request import MetadataDetail

UsageFields = dict[str, int | float | dict[str, int] | None]
_NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Usage of the call that gave the answer, of all other calls, and the cost of both.

    `uncertain` is what calls with an unknown outcome may have used in addition.
    """

    answer: Usage = _NO_USAGE
    others: Usage = _NO_USAGE
    dollars: float | None = 0.0
    uncertain: Amount = ZERO

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.answer.total + self.others.total

    def __add__(self, other: "RunUsage") -> "RunUsage":
        """Return the usage of both."""
        unknown = self.dollars is None or other.dollars is None
        return RunUsage(
            self.answer + other.answer,
            self.others + other.others,
            None if unknown else (self.dollars or 0.0) + (other.dollars or 0.0),
            self.uncertain + other.uncertain,
        )

    def less(self, earlier: "RunUsage") -> "RunUsage":
        """Return the usage since an earlier response of the same run; the answering call belongs to this one."""
        if earlier is NO_RUN_USAGE and self.uncertain.dollars is not None:
            return self
        before = earlier.answer + earlier.others
        others = self.others - before
        unknown = self.dollars is None or earlier.dollars is None
        dollars = None if unknown else max(0.0, (self.dollars or 0.0) - (earlier.dollars or 0.0))
        possible = max(0.0, (self.uncertain.dollars or 0.0) - (earlier.uncertain.dollars or 0.0))
        uncertain = Amount(max(0, self.uncertain.tokens - earlier.uncertain.tokens), possible)
        return RunUsage(self.answer, others, dollars, uncertain)

    def chat_fields(self) -> UsageFields:
        """Return the `usage` object of a chat completion."""
        return self._fields("prompt", "completion")

    def response_fields(self) -> UsageFields:
        """Return the `usage` object of a response."""
        return self._fields("input", "output")

    def _fields(self, into: str, out: str) -> UsageFields:
        """Return the `usage` object with an API's own words for input and output tokens."""
        answer, others = self.answer, self.others
        fields: UsageFields = {
            f"{into}_tokens": answer.input_tokens,
            f"{out}_tokens": answer.output_tokens,
            "total_tokens": self.tokens,
            f"{into}_tokens_details": {
                "cached_tokens": answer.cached_tokens,
                "cache_write_tokens": answer.cache_write_tokens + answer.cache_write_1h_tokens,
                "orchestration_input_tokens": others.input_tokens,
                "orchestration_input_cached_tokens": others.cached_tokens,
            },
            f"{out}_tokens_details": {
                "reasoning_tokens": answer.reasoning_tokens,
                "orchestration_output_tokens": others.output_tokens,
            },
            "cost": self.dollars,
        }
        if self.uncertain != ZERO:
            fields |= {"uncertain_tokens": self.uncertain.tokens, "uncertain_cost": self.uncertain.dollars}
        return fields


NO_RUN_USAGE = RunUsage()


def run_usage(run: Run, family: Iterable[Run] = ()) -> RunUsage:
    """Return a run's usage so far; `family` holds its descendants, as far as they are known."""
    below = {child.id: child for child in family if child.id != run.id}
    answer, others, charged, uncertain = _NO_USAGE, _NO_USAGE, ZERO, ZERO
    for attempt, is_answer in _counted_calls(run, below, answers=True):
        charged += attempt.charged
        uncertain += attempt.uncertain
        # A failed call has only its charge, which does not tell input from output: count it as input.
        done = attempt.outcome
        used = done.usage if isinstance(done, AttemptFinished) else Usage(attempt.charged.tokens)
        if is_answer:
            answer = answer + used
        else:
            others = others + used
    return RunUsage(answer, others, charged.dollars, uncertain)


def answering_call(run: Run) -> Attempt | None:
    """Return the call that gave the run's answer, or the last thing that the run said before it waited."""
    if run.finished is not None:
        if run.finished.round is None or run.finished.step is None:
            return None
        record = run.rounds[run.finished.round].steps.get(run.finished.step)
        if record is None or record.finished is None:
            return None
        return next((call for call in record.attempts if call.started.attempt == record.finished.attempt), None)
    asked = {(question.round, question.step) for question in run.open_questions}
    spoken = [call for call in run.attempts if isinstance(call.outcome, AttemptFinished)]
    return next((call for call in reversed(spoken) if (call.started.round, call.started.step) in asked), None)


def _counted_calls(run: Run, below: Mapping[str, Run], *, answers: bool) -> Iterable[tuple[Attempt, bool]]:
    """Yield every call, child runs' in the place of the calls that started them, and whether it gave the answer."""
    last, seen = answering_call(run) if answers else None, set[str]()
    for attempt in run.attempts:
        key = attempt.started.key
        if key in seen:
            continue  # a repeat finds the child runs of its key again
        children = _child_runs(key, below) if below else []
        if not children:
            yield attempt, attempt is last
            continue
        seen.add(key)
        for child in children:
            yield from _counted_calls(
                child, below, answers=child is children[-1] and last is not None and last.started.key == key
            )


def _child_runs(key: str, below: Mapping[str, Run]) -> list[Run]:
    found: list[Run] = []
    while (child := below.get(child_run_id(key, len(found)))) is not None:
        found.append(child)
    return found


_RUN_PAGE = "/ui/runs/"
_HASH_LENGTH = 16
MetadataFields = dict[str, object]


def started_headers(run: str) -> dict[str, str]:
    """Return the headers of a stream: what is known when it opens (its cost is in the usage chunk)."""
    return {"x-shikisha-run-id": run}


def finished_headers(run: str, usage: RunUsage) -> dict[str, str]:
    """Return the headers of a whole response."""
    cost = "unknown" if usage.dollars is None else f"{usage.dollars:.10f}".rstrip("0").rstrip(".")
    headers = {"x-shikisha-run-id": run, "x-shikisha-cost": cost, "x-shikisha-tokens": str(usage.tokens)}
    if usage.uncertain.dollars:
        headers["x-shikisha-uncertain-cost"] = f"{usage.uncertain.dollars:.10f}".rstrip("0").rstrip(".")
    return headers


def run_metadata(run: Run, detail: MetadataDetail, url: str | None) -> MetadataFields | None:
    """Return the `shikisha` object; None where none is asked for. `url` is where others reach this server."""
    if detail is MetadataDetail.NONE:
        return None
    full = detail is MetadataDetail.FULL
    planned = [turn for turn in run.rounds if turn.proposed is not None]
    gave = run.finished.round if run.finished and run.finished.round is not None else None
    shown = next((turn for turn in planned if turn.index == gave), planned[-1] if planned else None)
    return {
        "run": run.id,
        "trace": f"{(url or '').rstrip('/')}{_RUN_PAGE}{run.id}",
        "status": str(run.status),
        "why": run.finished.why if run.finished else None,
        "conductor": run.started.conductor,
        "policy_version": shown.proposed.version if shown and shown.proposed else None,
        "plan_hash": _plan_hash(shown),
        "rounds": [_round_fields(turn) for turn in run.rounds],
        "steps": [
            _step_fields(run, turn, index, full=full) for turn in run.rounds for index in range(len(turn.plan or ()))
        ],
    }


def _plan_hash(turn: RoundRecord | None) -> str | None:
    if turn is None or turn.proposed is None:
        return None
    return sha256(turn.proposed.plan.encode()).hexdigest()[:_HASH_LENGTH]


def _round_fields(turn: RoundRecord) -> MetadataFields:
    made = turn.proposed
    return {
        "round": turn.index,
        "plan_hash": _plan_hash(turn),
        "policy_version": made.version if made else None,
        "substituted": made.substituted if made else None,
        "rejected": len(turn.rejected),
        "planning": [_attempt_fields(attempt) for attempt in turn.planning.attempts],
    }


def _step_fields(run: Run, turn: RoundRecord, index: int, *, full: bool) -> MetadataFields:
    step = turn.plan.step_of(index) if turn.plan else None
    record = turn.steps.get(index) or StepRecord(index)
    result = record.result
    own = [attempt for attempt in record.attempts if attempt.started.role is CallRole.STEP]
    last = own[-1] if own else None
    planned = run.started.pool[step.worker] if step else None
    told: MetadataFields = {
        "round": turn.index,
        "step": index,
        "planned_worker": planned,
        "worker": result.worker if result else last.started.worker if last else planned,
        "model": _attempt_model(last),
        "access": step.access_entries() if step else [],
        "status": "running" if result is None else "ok" if result.ok else "failed",
        "fault": str(result.fault.kind) if result and result.fault else None,
        "attempts": [_attempt_fields(attempt) for attempt in record.attempts],
        "substituted": any(attempt.started.instead_of for attempt in own),
        **_cost_fields([attempt for each in (record, *(record.items or ())) for attempt in each.attempts]),
        "checks": [
            _check_fields(verdict.check, str(verdict.status), verdict.reason, full=full) for verdict in record.checks
        ],
    }
    if record.items is not None:
        told["items"] = [_step_fields(run, turn, item.index, full=full) for item in record.items]
    if full:
        told |= {"subtask": step.subtask if step else None, "answer": result.text if result else None}
    return told


def _attempt_fields(attempt: Attempt) -> MetadataFields:
    begun, end = attempt.started, attempt.outcome
    return {
        "worker": begun.worker,
        "role": str(begun.role),
        "reason": str(begun.reason),
        "instead_of": begun.instead_of,
        "model": _attempt_model(attempt),
        "fault": str(end.fault) if isinstance(end, AttemptFailed) else None,
        **_cost_fields([attempt]),
    }


def _cost_fields(attempts: list[Attempt]) -> Mapping[str, object]:
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


def _attempt_model(attempt: Attempt | None) -> str | None:
    end = attempt.outcome if attempt else None
    return (end.model or None) if isinstance(end, AttemptFinished) else None


def _check_fields(name: str, status: str, reason: str, *, full: bool) -> MetadataFields:
    return {"check": name, "status": status, **({"reason": reason} if full else {})}


# The openai SDKs obey this header. A retry would be a new run, and cost its price again.
NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
_JOURNAL_RETRY_SECONDS = 5.0
_LONGEST_WAIT = 86_400.0  # that a client is asked for
_CAP_STATUSES: Mapping[str, int] = {
    "dollars": 402,
    "tokens": 402,
    "seconds": 504,
    "rounds": 429,
    "steps": 429,
    "depth": 429,
    "tool_calls": 429,
}
_FAULT_STATUSES: Mapping[FaultKind, tuple[int, str]] = {
    FaultKind.NOT_CLEARED: (403, "not_cleared"),
    FaultKind.DENIED: (403, "denied"),
    FaultKind.NO_PLAN: (502, "no_plan"),
    FaultKind.UNREADABLE: (422, "unreadable"),  # another try would read the same words
    FaultKind.REFUSED: (502, "refused"),  # by a worker that ignores what was asked; see REFUSED below
    FaultKind.TRUNCATED: (502, "truncated"),
    FaultKind.TIMEOUT: (504, "worker_timeout"),
    FaultKind.CHECK_FAILED: (502, "check_failed"),
    FaultKind.TOO_DEEP: (400, TOO_DEEP_CODE),
}
_CAUSE_STATUSES: Mapping[
    FaultCause, tuple[int, str]
] = {  # what an endpoint says is wrong with the request, or its state
    FaultCause.TOO_LONG: (400, CONTEXT_LENGTH_CODE),
    FaultCause.FILTERED: (400, "content_filter"),
    FaultCause.REFUSED: (422, "refused"),  # by the model: another try would be declined as well
    FaultCause.PARAMETER: (400, "unsupported_parameter"),
    FaultCause.SCHEMA: (400, "invalid_json_schema"),
    FaultCause.TOOL_LIMITS: (400, "tool_limits"),
    FaultCause.THROTTLED: (429, "rate_limit_exceeded"),
    FaultCause.OVERLOADED: (503, "workers_busy"),
    FaultCause.QUOTA: (503, "worker_quota"),  # the operator's account: the client can do nothing about it
}
_CAUSE_PARAMS = {
    FaultCause.TOO_LONG: "messages",
    FaultCause.SCHEMA: "response_format",
    FaultCause.TOOL_LIMITS: "tools",
}


def api_error_of(error: ShikishaError) -> ApiError:
    """Return the HTTP error for one of our exceptions."""
    match error:
        case PlanError() | TaskError():
            return ApiError(400, str(error), "invalid_request")
        case JournalUnavailable():
            return ApiError(
                503,
                "the journal cannot be written now; nothing was started",
                "unavailable",
                wait=_JOURNAL_RETRY_SECONDS,
            )
        case UnknownRun():
            return ApiError(404, str(error), "run_not_found")
        case RunErased():
            return ApiError(410, str(error), "run_erased")
        case RunStillOpen() | IdempotencyConflict():
            return ApiError(409, str(error), "conflict")
        case JournalError():
            return ApiError(500, "the journal is inconsistent; the operator has to check it", "journal")
        case CapReached():
            return ApiError(_CAP_STATUSES.get(error.cap, 429), str(error), "budget_exceeded")
        case WorkerError():
            return _fault_error(error.fault, str(error))
        case ConfigError():
            return ApiError(500, "the server is not configured for this; its log says more", "misconfigured")
        case _:
            return ApiError(500, "an unexpected error; the server's log says more", "internal")


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """A run's answer; `cut`: it was truncated by a limit on its length."""

    text: str
    cut: bool = False


def answer_or_error(run: Run) -> RunAnswer | ApiError:
    """Return the answer of a run that has ended, or the error in its place."""
    end = run.finished
    if end is None:
        return ApiError(409, f"run {run.id} was stopped before its end", "cancelled")
    if end.answer is not None and end.status is not RunStatus.FAILED:
        given = answering_call(run)
        said = given.outcome if given else None
        return RunAnswer(end.answer, cut=isinstance(said, AttemptFinished) and said.finish is FinishReason.LENGTH)
    if end.fault is FaultKind.TRUNCATED and run.reached is None and (partial := _truncated_text(run)):
        return RunAnswer(partial, cut=True)
    why = f"run {run.id}: {end.why}"
    if end.cap is not None and end.status is RunStatus.CAPPED:
        return ApiError(_CAP_STATUSES.get(end.cap, 402), why, "budget_exceeded")
    if end.fault is FaultKind.CAP:
        return ApiError(402, why, "budget_exceeded")
    return ApiError(502, why, "run_failed") if end.fault is None else _fault_error(_last_fault(run, end.fault), why)


def _last_fault(run: Run, kind: FaultKind) -> Fault:
    """Return the fault that ended a run with what its last attempt of this kind says: cause, parameter and wait."""
    failed = [end for call in run.attempts if isinstance(end := call.outcome, AttemptFailed) and end.fault is kind]
    if not failed:  # nobody was asked: the request itself asks for what the worker cannot do
        return Fault(kind, stated=FaultCause.PARAMETER if kind is FaultKind.BAD_REQUEST else FaultCause.UNKNOWN)
    return Fault(kind, retry_after=failed[-1].retry_after, stated=failed[-1].cause, param=failed[-1].param)


def _truncated_text(run: Run) -> str | None:
    """Return what the last step's worker said before it ran into its limit."""
    plan = run.rounds[-1].plan if run.rounds else None
    last = run.rounds[-1].steps.get(len(plan) - 1) if plan else None
    own = [attempt for attempt in last.attempts if not attempt.started.call] if last else []
    ended = own[-1].outcome if own else None
    return ended.partial if isinstance(ended, AttemptFailed) and ended.fault is FaultKind.TRUNCATED else None


def _fault_error(fault: Fault, said: str) -> ApiError:
    kind, cause = fault.kind, fault.cause
    stated = cause is not FaultCause.REFUSED or fault.stated is cause
    status, code = (_CAUSE_STATUSES.get(cause) if stated else None) or _FAULT_STATUSES.get(kind, (502, "run_failed"))
    wait = fault.retry_after if fault.retry_after is not None and 0 < fault.retry_after <= _LONGEST_WAIT else None
    param = fault.param or _CAUSE_PARAMS.get(cause) if cause in _CAUSE_STATUSES and status == 400 else None
    said = said if str(kind) in said else f"{said} ({kind})"
    return ApiError(status, said, code, param=param, wait=wait if status in (429, 503) else None)
