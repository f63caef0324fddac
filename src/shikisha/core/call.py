"""A call to a worker, as data: the card that says what may be assumed of it, the request, the reply.

Invariants: a Request holds exactly what its step's access list grants; a worker gets nothing else. A run bears the
depth (how many servers of ours the request has come through) of the request that began it, so that a server that calls
itself does not do so for ever; `REQUEST_DEPTH` has it, and calls to chat endpoints send one more. Deliberately absent:
behaviour (a Worker answers, and `visibility` turns a request into a chat), and trust in the depth: it is a header that
any client may set, and guards against mistakes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import TypeAlias

from shikisha.core.budget import FREE, Amount, Price, Usage
from shikisha.core.errors import ConfigError
from shikisha.core.events import FinishReason
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import ChatMessage, Json, ToolCall, ToolExchange, forced_tools
from shikisha.core.plan import ANSWER, ANSWER_ALONE
from shikisha.core.task import Task


@dataclass(frozen=True, slots=True)
class GrantedStep:
    """An earlier step that the access list grants: its index, subtask, answer (or why it has none), and data labels."""

    index: int
    subtask: str
    text: str | None
    fault: str | None = None
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChildRunResult:
    """What a child run came to: its id, its answer if it has one, why it ended, what it used in all, and may have."""

    run: str
    answer: str | None
    why: str
    usage: Usage = Usage()
    dollars: float | None = 0.0
    uncertain: Amount = Amount()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What the client wants of the call that gives the answer: its tools are offered, its sampling options hold.

    `tool_choice` and `as_sent` as in `Task`. An agent's own tools are offered in the same way; `lenient`: what is wrong
    with its calls is told to it as their results, and is no fault.
    """

    tools: tuple[Mapping[str, Json], ...] = ()
    parallel_tool_calls: bool | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    tool_choice: str = ""
    lenient: bool = False
    as_sent: Mapping[str, Json] = field(default_factory=dict)

    @property
    def parallel(self) -> bool:
        """Whether several of the tools may be called at once."""
        return self.parallel_tool_calls is not False

    @classmethod
    def of(cls, task: Task) -> "ClientOptions":
        """Return those of this task's client."""
        return cls(task.tools, task.parallel_tool_calls, task.options, task.tool_choice, as_sent=task.as_sent)


NO_CLIENT_OPTIONS = ClientOptions()

# Of a task, the engine's conductor, names of workers and caps: core knows no conductor, so mypy checks none of them.
ChildRunLauncher: TypeAlias = Callable[..., Awaitable[ChildRunResult]]


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a worker: everything it may know.

    `turns`, when given, are sent as they are (a conductor's own prompt); otherwise `context.turns` renders task,
    granted steps and subtask. `remarks` are failed checks on this step's earlier answers. `key` is the idempotency
    key. `schema` is a JSON Schema that the answer should follow, for endpoints that can be held to one. `on_text`
    receives pieces of the answer as they arrive. `spawn` starts a child run inside this run's limits. `labels`
    are those of everything in it. `client_options` hold where this call is to give the answer; `exchanges` are
    the calls of the client's tools that were made so far, with their results. `held` says that the worker is held to
    the schema by its endpoint, so that no words need to ask for it (`visibility.adapt_request`). `forced` are the tools
    of which the answer is to be a call, as JSON that fits `schema`: their worker's endpoint takes no tools. `on_cancel`
    receives the most that a call which is being cancelled can have used, from workers that know better than what was
    reserved.
    """

    task: Task
    subtask: str
    granted: tuple[GrantedStep, ...] = ()
    turns: tuple[ChatMessage, ...] = ()
    remarks: tuple[str, ...] = ()
    key: str = ""
    schema: "Mapping[str, Json] | None" = None
    on_text: Callable[[str], None] | None = field(default=None, compare=False)
    spawn: "ChildRunLauncher | None" = field(default=None, compare=False)
    labels: frozenset[str] = frozenset()
    client_options: ClientOptions = NO_CLIENT_OPTIONS
    exchanges: tuple[ToolExchange, ...] = ()
    held: bool = False
    forced: tuple[Mapping[str, Json], ...] = ()
    on_cancel: Callable[[Amount], None] | None = field(default=None, compare=False)

    @property
    def own_words(self) -> bool:
        """Whether the worker is to answer the task as the client put it: the plan adds no word and no result."""
        own = self.subtask in (ANSWER, self.task.prompt)
        return own and not (self.granted or self.turns or self.remarks)

    @property
    def words(self) -> str:
        """What the worker is to do, in words: the task's prompt where the plan says no more than to answer it."""
        return self.task.prompt if self.subtask in (ANSWER, ANSWER_ALONE) else self.subtask

    def under(
        self,
        key: str,
        on_text: Callable[[str], None] | None,
        spawn: "ChildRunLauncher | None",
        on_cancel: Callable[[Amount], None] | None = None,
    ) -> "Request":
        """Return this request for one attempt: under its key, with who hears it and what starts its child runs."""
        shown = (self.task, self.subtask, self.granted, self.turns, self.remarks)
        more = (self.labels, self.client_options, self.exchanges, self.held, self.forced)
        return Request(*shown, key, self.schema, on_text, spawn, *more, on_cancel)


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's answer. `dollars` None: the card's price says.

    `prepaid`: what it used is already charged to the budget (a child run's calls are, each on its own). `calls` are
    those of the client's tools that it wants to be made before it answers. `stated` is what the endpoint said of its
    use where that cannot be true, `uncertain` what may have been used besides (both as in `events.AttemptFinished`).
    `confidence` is how sure it is of its answer by its own account, 0 to 1 (None: it does not say). `envelope` is what
    the endpoint sent with calls besides (`messages.Envelope.dump`), `notes` say what was odd without being wrong.
    """

    text: str
    usage: Usage = Usage()
    dollars: float | None = None
    finish: FinishReason = FinishReason.STOP
    model: str = ""
    prepaid: bool = False
    calls: tuple[ToolCall, ...] = ()
    stated: Usage | None = None
    uncertain: Amount = Amount()
    confidence: float | None = None
    envelope: str = ""
    notes: tuple[str, ...] = ()


class ApprovalMode(StrEnum):
    """When a person must approve a call to a worker."""

    NEVER = "never"  # it is autonomous
    WRITES = "writes"  # a call of a tool that may change something waits for a yes; of another worker, every call
    ALWAYS = "always"  # every call waits for a yes


@dataclass(frozen=True, slots=True)
class Card:
    """What the engine and a conductor know of a worker.

    `price` None means that the cost of a call is unknown: refused under a dollar cap. `max_output_tokens` bounds
    the reservation. `rate` is calls per second. `fallback` and `escalate` name workers of the same pool, `compensate`
    one that undoes what a call to this one did. `timeout` is seconds for one attempt; of a stream, seconds without a
    sign of life, and `longest` those of the whole. `attempts` is how often this worker may be tried for one step before
    the next is.
    `sees` are the guarded data labels that it is cleared for, `adds` those that everything it says bears (`clearance`).
    `takes` are the kinds of attachments that it accepts; `tools`: it can call the client's tools; `passthrough`: it
    speaks the chat API, so that a client's request can be sent on as it came; `schemas`: its endpoint can hold it to a
    JSON Schema.
    `foreign_calls`: it goes on within a question with calls that another model made. `cache_seconds` is how long its
    provider keeps a prefix after its last use (None: not known).
    `limits` names whose `concurrency` and `rate` it shares, where these are not its own.
    """

    name: str
    description: str = ""
    kind: str = ""
    price: Price | None = FREE
    max_output_tokens: int = 0
    context_tokens: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    timeout: float = 60.0
    attempts: int = 3
    fallback: str | None = None
    escalate: str | None = None
    approval: ApprovalMode = ApprovalMode.NEVER
    compensate: str | None = None
    skills: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    tools: bool = False
    limits: str = ""
    passthrough: bool = False
    schemas: bool = False
    longest: float | None = None
    foreign_calls: bool = True
    cache_seconds: float | None = None

    def can_call(self, tools: Sequence[Mapping[str, Json]], choice: str) -> bool:
        """Whether it can be asked for calls of these tools: where one is forced, its arguments by schema suffice."""
        return self.tools or (self.schemas and bool(forced_tools(tools, choice)))

    @property
    def limited(self) -> bool:
        """Whether a call may have to wait for others to the same worker."""
        return self.concurrency is not None or self.rate is not None

    @property
    def total(self) -> float:
        """Seconds for one attempt, however steadily its reply comes."""
        return self.longest or self.timeout

    def __post_init__(self) -> None:
        wrong = [name for name, least in _LEAST.items() if not _at_least(getattr(self, name), least)]
        wrong += [name for name in ("rate", "timeout") if not _above_zero(getattr(self, name))]
        if wrong:
            given = ", ".join(f"{name} {getattr(self, name)!r}" for name in wrong)
            raise ConfigError(f"worker {self.name!r}: numbers out of range: {given}")


_LEAST = {"max_output_tokens": 0, "context_tokens": 1, "concurrency": 1, "attempts": 1}


def _at_least(number: int | None, least: int) -> bool:
    return number is None or number >= least


def _above_zero(number: float | None) -> bool:
    return number is None or number > 0


DEPTH_HEADER = "X-Shikisha-Depth"
TOO_DEEP_CODE = "too_deep"  # the code of the refusal, which every server on the way back repeats
REQUEST_DEPTH: ContextVar[int] = ContextVar("depth", default=0)


def depth_headers() -> dict[str, str]:
    """Return the header that tells an endpoint how deep a call to it is."""
    return {DEPTH_HEADER: str(REQUEST_DEPTH.get() + 1)}
