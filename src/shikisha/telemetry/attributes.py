"""What spans say: events, as attributes.

Invariant: nothing here is content (what people, models or tools wrote) except what `content` makes, and that is used
only where whoever runs this asked for it. Deliberately absent: when spans begin and end (`spans`).
"""

import json
from hashlib import sha256

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
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    RollbackStarted,
    RunFinished,
    RunStarted,
)
from shikisha.telemetry import conventions
from shikisha.telemetry.conventions import OpenInferenceKind
from shikisha.telemetry.span_model import SpanValue
from shikisha.telemetry.worker_facts import CallKind, WorkerFacts

Attributes = dict[str, SpanValue]
_FINISH = {FaultKind.TRUNCATED: "length", FaultKind.REFUSED: "content_filter"}
NO_ERRORS = frozenset({FaultKind.WAITING})  # the call is not over: a person has yet to answer


def run_started_attributes(event: RunStarted) -> Attributes:
    """Return what is said of a run from its start on."""
    said: Attributes = {
        conventions.KIND: OpenInferenceKind.CHAIN.value,
        conventions.OPERATION: conventions.INVOKE_WORKFLOW,
        conventions.WORKFLOW_NAME: event.conductor,
        conventions.RUN: event.run,
        conventions.DEPTH: event.depth,
        conventions.POOL: event.pool,
    }
    if event.parent is not None:
        said[conventions.WORKFLOW_NESTED] = True
        said[conventions.RUN_PARENT] = event.parent
    for name, value in (
        (conventions.TASK, event.task_id),
        (conventions.DOMAIN, event.domain),
        (conventions.LABELS, event.labels),
    ):
        if value:
            said[name] = value
    return said


def run_finished_attributes(event: RunFinished) -> Attributes:
    """Return how a run ended."""
    said: Attributes = {conventions.RUN_STATUS: event.status.value}
    if event.cap is not None:
        said[conventions.RUN_CAP] = event.cap
    return said


def run_error(event: RunFinished) -> str:
    """Return what went wrong with a run, in a word; an answer that was kept is no error."""
    if event.answer is not None:
        return ""
    if event.fault is not None:
        return event.fault.value
    return "cap" if event.cap is not None else event.status.value


def plan_attributes(event: PlanProposed, hashed: str, steps: int) -> Attributes:
    """Return what is said of a plan with this hash and this many steps."""
    said: Attributes = {conventions.PLAN_HASH: hashed, conventions.PLAN_STEPS: steps}
    if event.version:
        said[conventions.POLICY_VERSION] = said[conventions.AGENT_VERSION] = event.version
    if event.substituted is not None:
        said[conventions.SUBSTITUTED] = event.substituted
    if event.propensity is not None:
        said[conventions.PLAN_PROPENSITY] = event.propensity
    return said


def plan_hash(event: PlanProposed) -> str:
    """Return the plan's hash, the one under which the journal keeps it."""
    return sha256(event.plan.encode("utf-8", "surrogatepass")).hexdigest()


def attempt_attributes(event: AttemptStarted, worker: WorkerFacts) -> Attributes:
    """Return what is said of an attempt from its start on."""
    judged = event.role is CallRole.CHECK
    said: Attributes = {
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
        said[conventions.STEP] = event.step
    if worker.kind == "conductor":
        said[conventions.CHILD_RUN] = True  # what it costs is what its child runs' calls cost
    if event.instead_of is not None:
        said[conventions.ESCALATED_FROM if event.reason is AttemptReason.ESCALATION else conventions.INSTEAD_OF] = (
            event.instead_of
        )
    if worker.via is CallKind.CHAT:
        said[conventions.OPERATION] = conventions.CHAT
        said.update(model_attributes(worker))
        said.update(worker.request)
    elif worker.via is CallKind.TOOL:
        said[conventions.OPERATION] = conventions.EXECUTE_TOOL
        said[conventions.TOOL_NAME] = said[conventions.AGENT_NAME] = event.worker
        said[conventions.TOOL_TYPE] = worker.tool_type
        said[conventions.TOOL_CALL_ID] = event.key
    if worker.address:
        said[conventions.SERVER_ADDRESS] = worker.address
        if worker.port is not None:
            said[conventions.SERVER_PORT] = worker.port
    return said


_EVALUATOR = OpenInferenceKind.EVALUATOR.value
_KINDS = {
    CallKind.CHAT: OpenInferenceKind.LLM.value,
    CallKind.TOOL: OpenInferenceKind.TOOL.value,
    CallKind.OTHER: OpenInferenceKind.CHAIN.value,
}


def model_attributes(worker: WorkerFacts) -> Attributes:
    """Return which model a chat worker asks, and whose."""
    return {conventions.PROVIDER: worker.provider, conventions.REQUEST_MODEL: worker.model or worker.name}


def reply_attributes(event: AttemptFinished, chat: bool) -> Attributes:
    """Return what is said of a call that gave an answer."""
    said = cost_attributes(Amount(event.usage.total, event.dollars), event.uncertain)
    if event.stated is not None:
        said[conventions.USAGE_UNDERSTATED] = True
    if chat:
        usage = event.usage
        said[conventions.INPUT_TOKENS], said[conventions.OUTPUT_TOKENS] = usage.input_tokens, usage.output_tokens
        if usage.cached_tokens:
            said[conventions.CACHE_READ_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens:
            said[conventions.REASONING_TOKENS] = usage.reasoning_tokens
        said[conventions.RESPONSE_FINISH] = ("tool_calls" if event.calls else event.finish.value,)
        if event.model:
            said[conventions.RESPONSE_MODEL] = event.model
        if event.dollars is not None:
            said[conventions.USAGE_COST] = event.dollars
    return said


def failure_attributes(event: AttemptFailed, chat: bool) -> Attributes:
    """Return what is said of a call that gave none."""
    said = cost_attributes(event.charged, event.uncertain)
    said[conventions.FAULT] = event.fault.value
    if chat and event.fault in _FINISH:
        said[conventions.RESPONSE_FINISH] = (_FINISH[event.fault],)
    return said


def cost_attributes(amount: Amount, uncertain: Amount) -> Attributes:
    """Return what something used; no dollars where nobody can say. What it may have used besides stands apart."""
    said: Attributes = {conventions.CHARGED_TOKENS: amount.tokens}
    if amount.dollars is not None:
        said[conventions.COST] = amount.dollars
    if uncertain != ZERO:
        said[conventions.UNCERTAIN_TOKENS] = uncertain.tokens
        if uncertain.dollars is not None:
            said[conventions.UNCERTAIN_COST] = uncertain.dollars
    return said


def check_attributes(event: CheckDecided) -> Attributes:
    """Return a check's verdict: 1 where it holds, 0 where it does not, no number where there was nothing to judge."""
    said: Attributes = {
        conventions.EVALUATION_NAME: event.check,
        conventions.EVALUATION_LABEL: event.status.value,
        conventions.ATTEMPT_NUMBER: event.attempt,
    }
    if event.status is not CheckStatus.NO_ANSWER:
        said[conventions.EVALUATION_VALUE] = float(event.status is CheckStatus.PASS)
    if event.leads_to is not None:
        said[conventions.LEADS_TO] = event.leads_to.value
    return said


def grade_attributes(event: AnswerGraded) -> Attributes:
    """Return a grade."""
    said: Attributes = {
        conventions.EVALUATION_NAME: event.checker,
        conventions.EVALUATION_LABEL: event.mark.value,
        conventions.GRADE_BASIS: event.basis.value,
    }
    if event.score is not None:
        said[conventions.EVALUATION_VALUE] = event.score
    if event.actor:
        said[conventions.ACTOR] = event.actor
    return said


def question_attributes(event: QuestionAsked) -> Attributes:
    """Return what a person is asked for."""
    return {
        conventions.QUESTION_HASH: event.question,
        conventions.QUESTION_ASKS: event.asks.value,
        conventions.WORKER: event.worker,
    }


def decision_attributes(event: QuestionAnswered) -> Attributes:
    """Return who decided what; the hash is that of the exact call which was asked for."""
    return {
        conventions.QUESTION_HASH: event.question,
        conventions.DECISION: "approved" if event.approved else "denied",
        conventions.ACTOR: event.actor,
        conventions.VIA: event.via,
    }


def rollback_attributes(event: RollbackStarted | EffectUndone | EffectKept) -> Attributes:
    """Return what is said of a rollback, or of what became of an effect."""
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
    """Return what was asked: messages as JSON, as the conventions want them; and plainly, for OpenInference."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    return {conventions.INPUT_MESSAGES: _dumps(messages), conventions.INPUT: text}


def output_attributes(text: str, finish: str = "stop") -> Attributes:
    """Return an answer, in the same forms."""
    parts = [{"type": "text", "content": text}]
    messages = [{"role": "assistant", "parts": parts, "finish_reason": finish}]
    return {conventions.OUTPUT_MESSAGES: _dumps(messages), conventions.OUTPUT: text}


_dumps = json.JSONEncoder(ensure_ascii=False).encode
