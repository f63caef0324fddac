"""What can go wrong, as one tree, and what went wrong with a worker, as data.

A ShikishaError is raised to whoever called us. A Fault is recorded: it says why a worker's attempt or a step
has no result, and it travels in results and journals like any other value. Messages name what, where and what was
expected, and never hold a key (see `secrets`). Deliberately absent: warnings, error codes for HTTP (the server's
business), and any exception that means "try again" (retries are decided in `attempt` alone, from the fault's kind).

    ShikishaError
    ├── PlanError            a plan text that does not parse or does not fit its pool
    │   ├── NoPlan           a conductor can make no plan; carries what it rejected (see `conductor`)
    │   └── Unreadable       a trained conductor does not know the words of a task or of its pool's cards
    ├── TaskError            a task that cannot be put to anyone
    │   └── QuestionClosed   a person's answer to a question that is not open; says why it is not
    ├── ConfigError          a configuration that cannot be used: file, key, what was expected
    │   ├── UnknownName      a worker, conductor or check that is not registered; lists the known ones
    │   ├── MissingExtra     an optional library is needed; names the extra that brings it
    │   └── MissingPlugin    a kind comes with a distribution of its own; names it
    ├── CapReached           a budget's hard cap refuses the next step, round, call or child run
    ├── RunFailed            a run that Python code waited for ended, or waits, without an answer; says which and why
    ├── Diverged             training came to a loss, a gradient or weights that are no numbers
    ├── WorkerError          a worker's attempt failed; carries the Fault
    └── JournalError
        ├── JournalUnavailable   the store cannot take or give events now (locked, full, away)
        │   └── Expelled         this server was taken for dead; its runs are others' now
        ├── Conflict             a request under this idempotency key was made before
        ├── StillOpen            the run is being performed: it cannot be erased now
        ├── RunErased            the run's texts were erased: it can be listed, but not gone on with
        ├── JournalTampered      the hash chain does not hold; says at which row
        └── UnknownRun           no such run in this journal
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class FaultKind(StrEnum):
    """Why an attempt or a step has no result."""

    CONNECT = "connect"  # no connection came about: nothing was performed
    TIMEOUT = "timeout"  # no (whole) answer in time: may have been performed
    RESET = "reset"  # the connection broke: may have been performed
    RATE_LIMITED = "rate_limited"  # the worker asks us to slow down
    SERVER = "server"  # the worker's own failure (5xx, a crashed tool process)
    BAD_REPLY = "bad_reply"  # an answer that its protocol does not allow
    CUT_OFF = "cut_off"  # a stream that ended before its end marker
    TOO_LARGE = "too_large"  # an answer beyond the size that is taken
    BAD_USAGE = "bad_usage"  # absent or absurd usage where it is needed for the bill
    EMPTY = "empty"  # a well-formed answer without content
    REFUSED = "refused"  # the worker declined to answer
    TRUNCATED = "truncated"  # the worker ran into its output limit
    AUTH = "auth"  # key missing, wrong or not allowed
    BAD_REQUEST = "bad_request"  # the worker says that our request is wrong
    BAD_ARGUMENTS = "bad_arguments"  # the subtask does not hold the arguments that a tool needs
    TOOL_ERROR = "tool_error"  # the tool ran and reported an error of its own
    NOT_OFFERED = "not_offered"  # an agent calls a tool that it was not offered, or that changed since it was pinned
    GUARDED = "guarded"  # a guard refused the call before it was made
    NO_RECORD = "no_record"  # replay: there is no record of this worker on this task
    NO_PLAN = "no_plan"  # a conductor wrote nothing that can be performed
    UNREADABLE = "unreadable"  # a trained conductor does not know the words of the task, or of its workers' cards
    NO_ANSWER = "no_answer"  # a child run, here or at another server of ours, ended without an answer
    TOO_DEEP = "too_deep"  # a server of ours that calls itself, however many others are between
    CHECK_FAILED = "check_failed"  # a handoff check did not pass
    BLOCKED = "blocked"  # everything that the step was granted had failed
    CAP = "cap"  # a budget's cap refused the call
    NOT_CLEARED = "not_cleared"  # the worker may not see data of this label
    DENIED = "denied"  # a person said no
    WAITING = "waiting"  # a person has not answered yet
    CANCELLED = "cancelled"  # stopped from outside or by the run's deadline
    UNCERTAIN = "uncertain"  # in flight when the process died
    INTERNAL = "internal"  # an error in a worker's adapter that nobody foresaw

    @property
    def retryable(self) -> bool:
        """Whether the same call to the same worker may succeed a moment later."""
        return self in _RETRYABLE

    @property
    def free(self) -> bool:
        """Whether nothing can have been used: the worker refused before doing anything, or was not reached."""
        return self in _FREE

    @property
    def unbilled(self) -> bool:
        """Whether it is a definite failure, for which nobody owes anything unless the worker says what was used.

        A worker that fails so may have done something all the same (`free` says whether it can), but nobody sells
        failures: what may really have been used is that of calls whose outcome is not known.
        """
        return self in _FREE or self in _UNBILLED

    @property
    def ambiguous(self) -> bool:
        """Whether the worker may have performed the call all the same (repeat it under the same key)."""
        return self in _AMBIGUOUS


class FaultCause(StrEnum):
    """What an endpoint refuses or lacks, whatever words it has for it: decides what comes next and what clients hear.

    A kind is what a fault means for the engine (is it billed, may it be repeated), a cause what can be done about it.
    """

    TOO_LONG = "too_long"  # the conversation does not fit the model's window: a longer one may take it
    FILTERED = "filtered"  # a content filter refused the request or stopped the answer
    PARAMETER = "parameter"  # a parameter that the model does not take; `Fault.param` names it
    QUOTA = "quota"  # the account has no credit or allowance left: asking again takes time only
    THROTTLED = "throttled"  # too many requests now; `Fault.retry_after` says until when
    OVERLOADED = "overloaded"  # the endpoint has no capacity now
    SCHEMA = "schema"  # the endpoint cannot hold an answer to this JSON Schema
    TOOL_LIMITS = "tool_limits"  # more tools, or longer names, than the endpoint takes
    AUTH = "auth"  # the key is missing, wrong or not allowed to do this
    NOT_FOUND = "not_found"  # there is no such model or address
    NETWORK = "network"  # nothing, or not all, came over the network in time
    TRUNCATED = "truncated"  # the answer ran into its limit
    REFUSED = "refused"  # the model declined
    UNKNOWN = "unknown"


_RETRYABLE = frozenset(
    {
        FaultKind.CONNECT,
        FaultKind.TIMEOUT,
        FaultKind.RESET,
        FaultKind.RATE_LIMITED,
        FaultKind.SERVER,
        FaultKind.BAD_REPLY,
        FaultKind.CUT_OFF,
        FaultKind.EMPTY,
        FaultKind.UNCERTAIN,
    }
)
_AMBIGUOUS = frozenset({FaultKind.TIMEOUT, FaultKind.RESET, FaultKind.CUT_OFF, FaultKind.UNCERTAIN, FaultKind.CONNECT})
_FREE = frozenset(
    {
        FaultKind.CONNECT,
        FaultKind.RATE_LIMITED,
        FaultKind.AUTH,
        FaultKind.BAD_REQUEST,
        FaultKind.BAD_ARGUMENTS,
        FaultKind.NOT_OFFERED,
        FaultKind.GUARDED,
        FaultKind.NO_RECORD,
        FaultKind.TOO_DEEP,
        FaultKind.WAITING,
        FaultKind.CAP,
        FaultKind.NOT_CLEARED,
    }
)
_UNBILLED = frozenset({FaultKind.SERVER, FaultKind.REFUSED})
_CAUSES = {
    FaultKind.CONNECT: FaultCause.NETWORK,
    FaultKind.TIMEOUT: FaultCause.NETWORK,
    FaultKind.RESET: FaultCause.NETWORK,
    FaultKind.CUT_OFF: FaultCause.NETWORK,
    FaultKind.RATE_LIMITED: FaultCause.THROTTLED,
    FaultKind.REFUSED: FaultCause.REFUSED,
    FaultKind.TRUNCATED: FaultCause.TRUNCATED,
    FaultKind.AUTH: FaultCause.AUTH,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no result.

    `retry_after` is the worker's own wish in seconds, as received (it may be negative or huge: `attempt` judges it).
    `partial` keeps what had arrived before the fault; it is evidence and never passed on as an answer. `tokens` and
    `dollars` are what the attempt is known to have used all the same; None: the worker did not say. `uncertain_tokens`
    and `uncertain_dollars` are what it may have used besides (a child run's calls whose outcome nobody knows). `stated`
    is the cause that an endpoint stated, and `param` the parameter that it means.
    """

    kind: FaultKind
    message: str = ""
    retry_after: float | None = None
    partial: str | None = None
    tokens: int | None = None
    dollars: float | None = None
    uncertain_tokens: int = 0
    uncertain_dollars: float | None = 0.0
    stated: FaultCause = FaultCause.UNKNOWN
    param: str = ""

    @property
    def cause(self) -> FaultCause:
        """The stated cause, or what the kind alone says."""
        return self.stated if self.stated is not FaultCause.UNKNOWN else _CAUSES.get(self.kind, FaultCause.UNKNOWN)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else str(self.kind)

    @property
    def unbilled(self) -> bool:
        """Whether nothing was used: a definite failure before anything of an answer had come."""
        return self.kind.unbilled and not self.partial


_INVALID = (  # what pydantic says of a value, and what a person reads
    (r"^(Value|Assertion) (error|failed), ", ""),
    (r"^Input tag .* using '(\w+)' does not match any of the expected tags: (.*)", r"expected \1 to be one of \2"),
    (r"^Unable to extract tag using discriminator '?(\w+).*", r"\1 is missing"),
    (r"^Input should be a valid (int\w*).*", "expected a whole number"),
    (r"^Input should be a valid (number|decimal).*", "expected a number"),
    (r"^Input should be a valid boolean.*", "expected true or false"),
    (r"^Input should be a valid (string|bytes).*", "expected text"),
    (r"^Input should be a valid (list|tuple|set|frozenset|array).*", "expected a list"),
    (r"^Input should be (a valid (dict|mapping|object|model)|an object).*", "expected {table}"),
    (r"^Input should be a valid (date\w*).*", r"expected a \1 such as 2026-11-28"),
    (r"^Input should be greater than or equal to (\S+)$", r"expected at least \1"),
    (r"^Input should be less than or equal to (\S+)$", r"expected at most \1"),
    (r"^Input should be greater than", "expected more than"),
    (r"^(?:List|Tuple|Set|Dictionary) should have (at (?:least|most) \d+ items?).*", r"expected \1"),
    (r"^String should have (at (?:least|most) \d+ characters?).*", r"expected \1"),
    (r"^String should match pattern (.*)", r"expected text of the form \1"),
    (r"^Unexpected keyword argument", "unknown field"),
    (r"^Field required", "is missing"),
    (r"^Extra inputs are not permitted", "unknown key"),
    (r"^Input should be", "expected"),
)


def describe_invalid(message: str, table: str = "a table") -> str:
    """Return what is wrong with a value in a person's words, from pydantic's; `table`: what the format calls one."""
    for pattern, words in _INVALID:
        message = re.sub(pattern, words, message)
    return message.replace("{table}", table)


PROCESS_STOPS: tuple[type[BaseException], ...] = (GeneratorExit, KeyboardInterrupt)
"""How Python ends a coroutine or a person the process. Cancelling aside, whatever else foreign code raises is a failure
of that call: SystemExit and a Rust extension's PanicException are no Exceptions, and would end the server."""


def describe_error(error: BaseException) -> str:
    """Return an error of anyone's code as text, whatever its own words do."""
    try:
        return f"{type(error).__name__}: {error}"
    except PROCESS_STOPS:
        raise
    except BaseException:  # noqa: BLE001 - its __str__ is anyone's code too
        return type(error).__name__


MOST_LISTED = 15  # known names, where the one that was meant can be told


def close_name(name: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant: one that is a word of it (`max_steps`: `steps`), or the closest."""
    folded = {each.casefold(): each for each in names}
    asked = name.casefold()[:200]
    words = (folded[word] for word in re.split(r"\W|_", asked) if word in folded)
    if close := get_close_matches(asked, folded, n=1):
        return next(words, folded[close[0]])
    # `fixd:vote` of `fixed:NAME`.
    kinds = {each.partition(":")[0]: each for each in names if ":" in each and each.partition(":")[2].upper() in each}
    close = get_close_matches(asked.partition(":")[0], kinds, n=1)
    return next(words, kinds[close[0]] if close else None)


class ShikishaError(Exception):
    """The root of everything that Shikisha raises on purpose."""


class PlanError(ShikishaError):
    """A plan that cannot be performed as written: `what` is wrong, and `where` in the text or plan."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what
        self.where = where


class UnreadableTask(PlanError):
    """A task, or cards of workers, in words that a trained conductor never learned: whatever it wrote were chance."""


class TaskError(ShikishaError):
    """A task that cannot be put to anyone: empty, or not text that can be stored."""


class ClosedReason(StrEnum):
    """Why a question is not open."""

    UNKNOWN = "unknown"  # nobody asked it
    ANSWERED = "answered"  # somebody's word is there already
    EXPIRED = "expired"  # its time is over
    OVER = "over"  # the run has ended, or goes on without the answer


class QuestionClosed(TaskError):
    """An answer to a question that is not open."""

    def __init__(self, why: ClosedReason, message: str) -> None:
        super().__init__(message)
        self.why = why


class ConfigError(ShikishaError):
    """A configuration that cannot be used; the message names file, key and what was expected."""


class UnknownName(ConfigError):
    """A name that nobody registered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = close_name(name, names)
        hint = f"; did you mean {close!r}?" if close else ""
        listed = "" if close and len(names) > MOST_LISTED else f": known are {', '.join(names) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}{listed}{hint}")
        self.name = name


class MissingExtra(ConfigError):
    """An optional library is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra {extra!r}: pip install 'shikisha[{extra}]'")
        self.extra = extra


class MissingPlugin(ConfigError):
    """A kind that comes with a distribution of its own, which is not installed."""

    def __init__(self, distribution: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} comes with a distribution of its own: pip install {distribution}"
            f" (from a clone, pip install ./plugins/{distribution.removeprefix('shikisha-')})"
        )


class CapReached(ShikishaError):
    """A hard cap refuses what was about to happen."""

    def __init__(self, cap: str, why: str) -> None:
        super().__init__(f"{cap} cap reached: {why}")
        self.cap = cap
        self.why = why


class RunFailed(ShikishaError):
    """A run has no answer: it failed, or it waits for a person."""

    def __init__(self, run: str, why: str) -> None:
        super().__init__(f"run {run}: {why}")
        self.run = run
        self.why = why


class TrainingDiverged(ShikishaError):
    """Training came to a loss, a gradient or weights that are no numbers; its last good checkpoint stays."""


class WorkerError(ShikishaError):
    """A worker's attempt failed; the fault says how."""

    def __init__(
        self,
        kind: FaultKind,
        message: str = "",
        *,
        retry_after: float | None = None,
        partial: str | None = None,
        tokens: int | None = None,
        dollars: float | None = None,
        uncertain_tokens: int = 0,
        uncertain_dollars: float | None = 0.0,
        stated: FaultCause = FaultCause.UNKNOWN,
        param: str = "",
    ) -> None:
        possible = (uncertain_tokens, uncertain_dollars)
        self.fault = Fault(kind, message, retry_after, partial, tokens, dollars, *possible, stated, param)
        super().__init__(str(self.fault))

    @classmethod
    def of(cls, fault: Fault) -> "WorkerError":
        """Return the error that carries this fault."""
        error = cls(fault.kind, fault.message)
        error.fault = fault
        return error


class JournalError(ShikishaError):
    """The journal cannot be used as asked."""


class JournalUnavailable(JournalError):
    """The store cannot take or give events now: locked, full, or away. Nothing acknowledged is lost."""


class ServerFenced(JournalUnavailable):
    """This server was taken for dead and its runs were taken over: nothing that it still adds is stored."""


class IdempotencyConflict(JournalError):
    """A request under this idempotency key was made before: `run` is its run, `same` whether it was the same one."""

    def __init__(self, run: str, *, same: bool) -> None:
        other = "the same request" if same else "another request"
        super().__init__(f"{other} was made under this idempotency key: run {run}")
        self.run = run
        self.same = same


class JournalTampered(JournalError):
    """A stored event is not what was written, or one is missing or out of order."""


class RunStillOpen(JournalError):
    """The run is being performed, or about to be: stop it first."""


class RunErased(JournalError):
    """The run's texts were erased for good: it can be listed and counted, but nobody can go on with it."""


class UnknownRun(JournalError):
    """No such run in this journal."""
