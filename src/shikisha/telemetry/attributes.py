"""What spans say: events, as attributes.

Invariant: nothing here is content (what people, models or tools wrote) except what `content` makes, and that is used
only where whoever runs this asked for it. Deliberately absent: when spans begin and end (`spans`).
"""

import json
from hashlib import sha256

from shikisha.budget import NOTHING, Amount
from shikisha.errors import FaultKind
from shikisha.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    CheckDecided,
    CheckStatus,
    EffectKept,
    EffectUndone,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    Reason,
    Role,
    RollbackBegun,
    RunFinished,
    RunStarted,
)
from shikisha.telemetry import names
from shikisha.telemetry.facts import Facts, Via
from shikisha.telemetry.names import Kind
from shikisha.telemetry.span import Value

Attributes = dict[str, Value]
_FINISH = {FaultKind.TRUNCATED: "length", FaultKind.REFUSED: "content_filter"}
NO_ERRORS = frozenset({FaultKind.WAITING})  # the call is not over: a person has yet to answer


def run_begun(event: RunStarted) -> Attributes:
    """Return what is said of a run from its start on."""
    said: Attributes = {
        names.KIND: Kind.CHAIN.value,
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW_NAME: event.conductor,
        names.RUN: event.run,
        names.DEPTH: event.depth,
        names.POOL: event.pool,
    }
    if event.parent is not None:
        said[names.WORKFLOW_NESTED] = True
        said[names.RUN_PARENT] = event.parent
    for name, value in ((names.TASK, event.task_id), (names.DOMAIN, event.domain), (names.LABELS, event.labels)):
        if value:
            said[name] = value
    return said


def run_ended(event: RunFinished) -> Attributes:
    """Return how a run ended."""
    said: Attributes = {names.RUN_STATUS: event.status.value}
    if event.cap is not None:
        said[names.RUN_CAP] = event.cap
    return said


def run_error(event: RunFinished) -> str:
    """Return what went wrong with a run, in a word; an answer that was kept is no error."""
    if event.answer is not None:
        return ""
    if event.fault is not None:
        return event.fault.value
    return "cap" if event.cap is not None else event.status.value


def planned(event: PlanProposed, hashed: str, steps: int) -> Attributes:
    """Return what is said of a plan with this hash and this many steps."""
    said: Attributes = {names.PLAN_HASH: hashed, names.PLAN_STEPS: steps}
    if event.version:
        said[names.POLICY_VERSION] = said[names.AGENT_VERSION] = event.version
    if event.substituted is not None:
        said[names.SUBSTITUTED] = event.substituted
    if event.propensity is not None:
        said[names.PLAN_PROPENSITY] = event.propensity
    return said


def plan_hash(event: PlanProposed) -> str:
    """Return the plan's hash, the one under which the journal keeps it."""
    return sha256(event.plan.encode("utf-8", "surrogatepass")).hexdigest()


def called(event: AttemptStarted, worker: Facts) -> Attributes:
    """Return what is said of an attempt from its start on."""
    judged = event.role is Role.CHECK
    said: Attributes = {
        names.KIND: _EVALUATOR if judged and worker.via is not Via.CHAT else _KINDS[worker.via],
        names.WORKER: event.worker,
        names.RUN: event.run,
        names.ROUND: event.round,
        names.ATTEMPT_NUMBER: event.attempt,
        names.ROLE: event.role.value,
        names.REASON: event.reason.value,
        names.ARGUMENTS_HASH: event.view,
    }
    if event.step is not None:
        said[names.STEP] = event.step
    if worker.kind == "conductor":
        said[names.CHILD_RUN] = True  # what it costs is what its child runs' calls cost
    if event.instead_of is not None:
        said[names.ESCALATED_FROM if event.reason is Reason.ESCALATION else names.INSTEAD_OF] = event.instead_of
    if worker.via is Via.CHAT:
        said[names.OPERATION] = names.CHAT
        said.update(model(worker))
        said.update(worker.request)
    elif worker.via is Via.TOOL:
        said[names.OPERATION] = names.EXECUTE_TOOL
        said[names.TOOL_NAME] = said[names.AGENT_NAME] = event.worker
        said[names.TOOL_TYPE] = worker.tool_type
        said[names.TOOL_CALL_ID] = event.key
    if worker.address:
        said[names.SERVER_ADDRESS] = worker.address
        if worker.port is not None:
            said[names.SERVER_PORT] = worker.port
    return said


_EVALUATOR = Kind.EVALUATOR.value
_KINDS = {Via.CHAT: Kind.LLM.value, Via.TOOL: Kind.TOOL.value, Via.OTHER: Kind.CHAIN.value}


def model(worker: Facts) -> Attributes:
    """Return which model a chat worker asks, and whose."""
    return {names.PROVIDER: worker.provider, names.REQUEST_MODEL: worker.model or worker.name}


def gave(event: AttemptFinished, chat: bool) -> Attributes:
    """Return what is said of a call that gave an answer."""
    said = cost(Amount(event.usage.total, event.dollars), event.uncertain)
    if event.stated is not None:
        said[names.USAGE_UNDERSTATED] = True
    if chat:
        usage = event.usage
        said[names.INPUT_TOKENS], said[names.OUTPUT_TOKENS] = usage.input_tokens, usage.output_tokens
        if usage.cached_tokens:
            said[names.CACHE_READ_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens:
            said[names.REASONING_TOKENS] = usage.reasoning_tokens
        said[names.RESPONSE_FINISH] = ("tool_calls" if event.calls else event.finish.value,)
        if event.model:
            said[names.RESPONSE_MODEL] = event.model
        if event.dollars is not None:
            said[names.USAGE_COST] = event.dollars
    return said


def failed(event: AttemptFailed, chat: bool) -> Attributes:
    """Return what is said of a call that gave none."""
    said = cost(event.charged, event.uncertain)
    said[names.FAULT] = event.fault.value
    if chat and event.fault in _FINISH:
        said[names.RESPONSE_FINISH] = (_FINISH[event.fault],)
    return said


def cost(amount: Amount, uncertain: Amount) -> Attributes:
    """Return what something used; no dollars where nobody can say. What it may have used besides stands apart."""
    said: Attributes = {names.CHARGED_TOKENS: amount.tokens}
    if amount.dollars is not None:
        said[names.COST] = amount.dollars
    if uncertain != NOTHING:
        said[names.UNCERTAIN_TOKENS] = uncertain.tokens
        if uncertain.dollars is not None:
            said[names.UNCERTAIN_COST] = uncertain.dollars
    return said


def checked(event: CheckDecided) -> Attributes:
    """Return a check's verdict: 1 where it holds, 0 where it does not, no number where there was nothing to judge."""
    said: Attributes = {
        names.EVALUATION_NAME: event.check,
        names.EVALUATION_LABEL: event.status.value,
        names.ATTEMPT_NUMBER: event.attempt,
    }
    if event.status is not CheckStatus.NO_ANSWER:
        said[names.EVALUATION_VALUE] = float(event.status is CheckStatus.PASS)
    if event.leads_to is not None:
        said[names.LEADS_TO] = event.leads_to.value
    return said


def graded(event: AnswerGraded) -> Attributes:
    """Return a grade."""
    said: Attributes = {
        names.EVALUATION_NAME: event.checker,
        names.EVALUATION_LABEL: event.mark.value,
        names.GRADE_BASIS: event.basis.value,
    }
    if event.score is not None:
        said[names.EVALUATION_VALUE] = event.score
    if event.actor:
        said[names.ACTOR] = event.actor
    return said


def asked(event: QuestionAsked) -> Attributes:
    """Return what a person is asked for."""
    return {names.QUESTION_HASH: event.question, names.QUESTION_ASKS: event.asks.value, names.WORKER: event.worker}


def answered(event: QuestionAnswered) -> Attributes:
    """Return who decided what; the hash is that of the exact call which was asked for."""
    return {
        names.QUESTION_HASH: event.question,
        names.DECISION: "approved" if event.approved else "denied",
        names.ACTOR: event.actor,
        names.VIA: event.via,
    }


def undone(event: RollbackBegun | EffectUndone | EffectKept) -> Attributes:
    """Return what is said of a rollback, or of what became of an effect."""
    if isinstance(event, RollbackBegun):
        return {names.ROLLBACK_NUMBER: event.rollback, names.ACTOR: event.actor}
    kept = isinstance(event, EffectKept)
    return {
        names.ROLLBACK_NUMBER: event.rollback,
        names.EFFECT: event.effect,
        names.EFFECT_STATUS: "kept" if kept else "undone",
        names.WORKER: event.by,
    }


def said_to(text: str) -> Attributes:
    """Return what was asked: messages as JSON, as the conventions want them; and plainly, for OpenInference."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    return {names.INPUT_MESSAGES: _dumps(messages), names.INPUT: text}


def said_by(text: str, finish: str = "stop") -> Attributes:
    """Return an answer, in the same forms."""
    parts = [{"type": "text", "content": text}]
    messages = [{"role": "assistant", "parts": parts, "finish_reason": finish}]
    return {names.OUTPUT_MESSAGES: _dumps(messages), names.OUTPUT: text}


_dumps = json.JSONEncoder(ensure_ascii=False).encode
