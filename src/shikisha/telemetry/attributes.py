"""Events as the attributes of spans.

Invariant: nothing here is content (what people, models or tools wrote) except what `input_attributes` and
`output_attributes` return, which are used only where the operator asked for content. Deliberately absent: when spans
begin and end (`observer`).

What telemetry knows of a worker besides its name: how it is called, which model, and where it is.

A span before any SDK sees it: its ids, its times, its attributes, events and links.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import TypeAlias
from urllib.parse import urlsplit

from shikisha.core.budget import ZERO, Amount
from shikisha.core.errors import FaultKind
from shikisha.core.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptReason,
    AttemptStarted,
    CallRole,
    CheckDecided,
    CheckStatus,
    EffectKept,
    EffectUndone,
    GuardDecided,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    RollbackStarted,
    RunFinished,
    RunStarted,
    ToolRefused,
    ToolResultsCut,
    ToolsOffered,
    TurnRouted,
)
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import ToolEvent
from shikisha.core.tools import load_offer
from shikisha.telemetry import conventions
from shikisha.telemetry.conventions import OpenInferenceKind

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A span, as others refer to it."""

    trace_id: int
    span: int
    remote: bool = False
    sampled: bool = True


def trace_id(root: str) -> int:
    """Return the trace id of a root run and all its child runs."""
    return int.from_bytes(blake2b(root.encode("utf-8", "surrogatepass"), digest_size=16).digest()) or 1


def span_id(run: str, part: int, place: str) -> int:
    """Return the id of the span at a place in a run's part; `part` counts how often the run had been resumed."""
    name = f"{run}\n{part}\n{place}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest()) or 1


def parse_traceparent(header: str | None) -> SpanRef | None:
    """Return the span that a W3C `traceparent` header names; None for none, and for what is no such header."""
    found = _TRACEPARENT.fullmatch(header.strip().lower()) if header else None
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.groups())
    return SpanRef(trace, span, remote=True, sampled=bool(flags & 1)) if trace and span else None


SpanValue: TypeAlias = str | bool | int | float | Sequence[str] | Sequence[int]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened in a span."""

    name: str
    at: float
    attributes: dict[str, SpanValue]


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A reference from a span to another that is not its parent."""

    place: SpanRef
    attributes: dict[str, SpanValue]


@dataclass(slots=True)
class RunSpan:
    """A stretch of a run. `error` is the kind of fault (few values); empty: none."""

    name: str
    place: SpanRef
    parent: SpanRef | None
    start: float
    attributes: dict[str, SpanValue]
    client: bool = False
    events: list[SpanEvent] = field(default_factory=list)
    links: list[SpanLink] = field(default_factory=list)
    end: float = 0.0
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took; never below 0, even if a clock was set back."""
        return max(0.0, self.end - self.start)


SpanCallback: TypeAlias = Callable[[RunSpan], None]


class CallKind(StrEnum):
    """How a worker is called, as far as spans are concerned."""

    CHAT = "chat"  # a model behind a chat endpoint
    TOOL = "tool"  # a function, an HTTP service, a tool of an MCP server
    OTHER = "other"  # a person, a child run, a recording


_VIA = {
    "chat": CallKind.CHAT,
    "agent": CallKind.CHAT,
    "python": CallKind.TOOL,
    "http": CallKind.TOOL,
    "mcp": CallKind.TOOL,
}
_TOOL_TYPES = {"python": "function", "http": "extension", "mcp": "extension"}
RequestAttributes = Mapping[str, str | int | float | bool]
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker. `request` are the attributes of every call to it that the configuration settles (temperature...)."""

    name: str
    kind: str = ""
    description: str = ""
    model: str = ""
    provider: str = ""
    address: str = ""
    port: int | None = None
    tool_type: str = ""
    request: RequestAttributes = field(default_factory=dict)
    via: CallKind = field(init=False)  # how it is called

    def __post_init__(self) -> None:
        object.__setattr__(self, "via", _VIA.get(self.kind, CallKind.OTHER))


def describe_worker(
    name: str,
    kind: str,
    description: str = "",
    *,
    model: str = "",
    url: str = "",
    provider: str = "openai",
    request: RequestAttributes | None = None,
) -> WorkerFacts:
    """Return the facts of a worker of this kind, with this model, at this URL.

    `provider`: the conventions' name of who is there, by default of the protocol.
    """
    via = _VIA.get(kind, CallKind.OTHER)
    parts = urlsplit(url)
    host = parts.hostname or ""
    return WorkerFacts(
        name,
        kind,
        description,
        model if via is CallKind.CHAT else "",
        provider if via is CallKind.CHAT else "",
        host,
        (parts.port or _PORTS.get(parts.scheme)) if host else None,
        _TOOL_TYPES.get(kind, ""),
        dict(request or {}),
    )


Attributes = dict[str, SpanValue]
_FINISH = {FaultKind.TRUNCATED: "length", FaultKind.REFUSED: "content_filter"}
NO_ERRORS = frozenset({FaultKind.WAITING})  # the call is not over: a person has yet to answer


def run_started_attributes(event: RunStarted) -> Attributes:
    """Return the attributes of a run from its start."""
    attributes: Attributes = {
        conventions.KIND: OpenInferenceKind.CHAIN.value,
        conventions.OPERATION: conventions.INVOKE_WORKFLOW,
        conventions.WORKFLOW_NAME: event.conductor,
        conventions.RUN: event.run,
        conventions.DEPTH: event.depth,
        conventions.POOL: event.pool,
    }
    if event.parent is not None:
        attributes[conventions.WORKFLOW_NESTED] = True
        attributes[conventions.RUN_PARENT] = event.parent
    for name, value in (
        (conventions.TASK, event.task_id),
        (conventions.DOMAIN, event.domain),
        (conventions.LABELS, event.labels),
    ):
        if value:
            attributes[name] = value
    return attributes


def run_finished_attributes(event: RunFinished) -> Attributes:
    """Return how a run ended."""
    attributes: Attributes = {conventions.RUN_STATUS: event.status.value}
    if event.cap is not None:
        attributes[conventions.RUN_CAP] = event.cap
    return attributes


def run_error(event: RunFinished) -> str:
    """Return the kind of error of a run, in a word; a run with an answer has none."""
    if event.answer is not None:
        return ""
    if event.fault is not None:
        return event.fault.value
    return "cap" if event.cap is not None else event.status.value


def tool_attributes(event: ToolEvent) -> Attributes:
    """Return the attributes of a decision on an agent's tools: names and verdicts, never arguments or reasons."""
    match event:
        case ToolsOffered():
            offered = tuple(each.name for each in load_offer(event.tools))
            return {conventions.TOOLS_OFFERED: offered, conventions.TOOLS_WITHHELD: tuple(event.withheld)}
        case ToolRefused():
            return {conventions.TOOL_NAME: event.tool, conventions.FAULT: event.fault.value}
        case GuardDecided():
            return {
                conventions.TOOL_NAME: event.tool,
                conventions.GUARD: event.guard,
                conventions.GUARD_MOMENT: event.moment.value,
                conventions.GUARD_PASSED: event.passed,
            }
        case ToolResultsCut():
            return {conventions.CALLS_CUT: event.calls, conventions.TOKENS_CUT: max(0, event.before - event.after)}
        case TurnRouted():
            changed = {} if event.instead_of is None else {conventions.INSTEAD_OF: event.instead_of}
            return {conventions.WORKER: event.worker, **changed}


def plan_attributes(event: PlanProposed, hashed: str, steps: int) -> Attributes:
    """Return the attributes of a plan with this hash and this many steps."""
    attributes: Attributes = {conventions.PLAN_HASH: hashed, conventions.PLAN_STEPS: steps}
    if event.version:
        attributes[conventions.POLICY_VERSION] = attributes[conventions.AGENT_VERSION] = event.version
    if event.substituted is not None:
        attributes[conventions.SUBSTITUTED] = event.substituted
    if event.propensity is not None:
        attributes[conventions.PLAN_PROPENSITY] = event.propensity
    return attributes


def plan_hash(event: PlanProposed) -> str:
    """Return the plan's hash, the one under which the journal keeps it."""
    return sha256(event.plan.encode("utf-8", "surrogatepass")).hexdigest()


def attempt_attributes(event: AttemptStarted, worker: WorkerFacts) -> Attributes:
    """Return the attributes of an attempt from its start."""
    judged = event.role is CallRole.CHECK
    attributes: Attributes = {
        conventions.KIND: _EVALUATOR if judged and worker.via is not CallKind.CHAT else _KINDS[worker.via],
        conventions.WORKER: event.worker,
        conventions.RUN: event.run,
        conventions.ROUND: event.round,
        conventions.ATTEMPT_NUMBER: event.attempt,
        conventions.ROLE: event.role.value,
        conventions.REASON: event.reason.value,
        conventions.ARGUMENTS_HASH: event.view,
    }
    if event.step is not None:
        attributes[conventions.STEP] = event.step
    if worker.kind == "conductor":
        attributes[conventions.CHILD_RUN] = True  # what it costs is what its child runs' calls cost
    if event.instead_of is not None:
        attributes[
            conventions.ESCALATED_FROM if event.reason is AttemptReason.ESCALATION else conventions.INSTEAD_OF
        ] = event.instead_of
    if event.call:
        attributes[conventions.KIND] = OpenInferenceKind.TOOL.value
        attributes[conventions.OPERATION] = conventions.EXECUTE_TOOL
        attributes[conventions.TOOL_NAME] = event.tool or event.worker
        attributes[conventions.AGENT_NAME] = event.worker
        attributes[conventions.TOOL_TYPE] = worker.tool_type or _FUNCTION
        attributes[conventions.TOOL_CALL_ID] = event.key
    elif worker.via is CallKind.CHAT:
        attributes[conventions.OPERATION] = conventions.CHAT
        attributes.update(model_attributes(worker))
        attributes.update(worker.request)
    elif worker.via is CallKind.TOOL:
        attributes[conventions.OPERATION] = conventions.EXECUTE_TOOL
        attributes[conventions.TOOL_NAME] = attributes[conventions.AGENT_NAME] = event.worker
        attributes[conventions.TOOL_TYPE] = worker.tool_type
        attributes[conventions.TOOL_CALL_ID] = event.key
    if worker.address:
        attributes[conventions.SERVER_ADDRESS] = worker.address
        if worker.port is not None:
            attributes[conventions.SERVER_PORT] = worker.port
    return attributes


_FUNCTION = "function"
_EVALUATOR = OpenInferenceKind.EVALUATOR.value
_KINDS = {
    CallKind.CHAT: OpenInferenceKind.LLM.value,
    CallKind.TOOL: OpenInferenceKind.TOOL.value,
    CallKind.OTHER: OpenInferenceKind.CHAIN.value,
}


def model_attributes(worker: WorkerFacts) -> Attributes:
    """Return the model and provider of a chat worker."""
    return {conventions.PROVIDER: worker.provider, conventions.REQUEST_MODEL: worker.model or worker.name}


def reply_attributes(event: AttemptFinished, chat: bool) -> Attributes:
    """Return the attributes of a call that gave an answer."""
    attributes = cost_attributes(Amount(event.usage.total, event.dollars), event.uncertain)
    if event.stated is not None:
        attributes[conventions.USAGE_UNDERSTATED] = True
    if chat:
        usage = event.usage
        attributes[conventions.INPUT_TOKENS], attributes[conventions.OUTPUT_TOKENS] = (
            usage.input_tokens,
            usage.output_tokens,
        )
        if usage.cached_tokens:
            attributes[conventions.CACHE_READ_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens:
            attributes[conventions.REASONING_TOKENS] = usage.reasoning_tokens
        attributes[conventions.RESPONSE_FINISH] = ("tool_calls" if event.calls else event.finish.value,)
        if event.model:
            attributes[conventions.RESPONSE_MODEL] = event.model
        if event.dollars is not None:
            attributes[conventions.USAGE_COST] = event.dollars
    return attributes


def failure_attributes(event: AttemptFailed, chat: bool) -> Attributes:
    """Return the attributes of a call that failed."""
    attributes = cost_attributes(event.charged, event.uncertain)
    attributes[conventions.FAULT] = event.fault.value
    if chat and event.fault in _FINISH:
        attributes[conventions.RESPONSE_FINISH] = (_FINISH[event.fault],)
    return attributes


def cost_attributes(amount: Amount, uncertain: Amount) -> Attributes:
    """Return what a call or run used (no dollars: unknown cost), and apart from it what it may have used as well."""
    attributes: Attributes = {conventions.CHARGED_TOKENS: amount.tokens}
    if amount.dollars is not None:
        attributes[conventions.COST] = amount.dollars
    if uncertain != ZERO:
        attributes[conventions.UNCERTAIN_TOKENS] = uncertain.tokens
        if uncertain.dollars is not None:
            attributes[conventions.UNCERTAIN_COST] = uncertain.dollars
    return attributes


def check_attributes(event: CheckDecided) -> Attributes:
    """Return a check's verdict: 1 for a pass, 0 for a failure, no number where there was nothing to judge."""
    attributes: Attributes = {
        conventions.EVALUATION_NAME: event.check,
        conventions.EVALUATION_LABEL: event.status.value,
        conventions.ATTEMPT_NUMBER: event.attempt,
    }
    if event.status is not CheckStatus.NO_ANSWER:
        attributes[conventions.EVALUATION_VALUE] = float(event.status is CheckStatus.PASS)
    if event.leads_to is not None:
        attributes[conventions.LEADS_TO] = event.leads_to.value
    return attributes


def grade_attributes(event: AnswerGraded) -> Attributes:
    """Return a grade."""
    attributes: Attributes = {
        conventions.EVALUATION_NAME: event.checker,
        conventions.EVALUATION_LABEL: event.mark.value,
        conventions.GRADE_BASIS: event.basis.value,
    }
    if event.score is not None:
        attributes[conventions.EVALUATION_VALUE] = event.score
    if event.actor:
        attributes[conventions.ACTOR] = event.actor
    return attributes


def question_attributes(event: QuestionAsked) -> Attributes:
    """Return the attributes of a question to a person."""
    return {
        conventions.QUESTION_HASH: event.question,
        conventions.QUESTION_ASKS: event.asks.value,
        conventions.WORKER: event.worker,
    }


def decision_attributes(event: QuestionAnswered) -> Attributes:
    """Return a decision and its actor; the hash is that of the exact call."""
    return {
        conventions.QUESTION_HASH: event.question,
        conventions.DECISION: "approved" if event.approved else "denied",
        conventions.ACTOR: event.actor,
        conventions.VIA: event.via,
    }


def rollback_attributes(event: RollbackStarted | EffectUndone | EffectKept) -> Attributes:
    """Return the attributes of a rollback, or of the outcome for an effect."""
    if isinstance(event, RollbackStarted):
        return {conventions.ROLLBACK_NUMBER: event.rollback, conventions.ACTOR: event.actor}
    kept = isinstance(event, EffectKept)
    return {
        conventions.ROLLBACK_NUMBER: event.rollback,
        conventions.EFFECT: event.effect,
        conventions.EFFECT_STATUS: "kept" if kept else "undone",
        conventions.WORKER: event.by,
    }


def input_attributes(text: str) -> Attributes:
    """Return a prompt: as JSON messages for the conventions, and as plain text for OpenInference."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    return {conventions.INPUT_MESSAGES: _dumps(messages), conventions.INPUT: text}


def output_attributes(text: str, finish: str = "stop") -> Attributes:
    """Return an answer, in the same forms."""
    parts = [{"type": "text", "content": text}]
    messages = [{"role": "assistant", "parts": parts, "finish_reason": finish}]
    return {conventions.OUTPUT_MESSAGES: _dumps(messages), conventions.OUTPUT: text}


_dumps = json.JSONEncoder(ensure_ascii=False).encode
