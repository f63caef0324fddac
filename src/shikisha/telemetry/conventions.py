"""Every name that telemetry uses: OpenTelemetry's for generative AI, OpenInference's, and ours (`shikisha.*`).

Invariant: a span, event, attribute or metric is called by a name from here and from nowhere else, so that following a
new version of the conventions is a change of this file. All of OpenTelemetry's GenAI conventions are in the status
"Development": names may change under us. Deliberately absent: `gen_ai.conversation.id`; we know of no conversation
that a run belongs to, and the conventions forbid inventing one.
"""

from enum import StrEnum

CONVENTIONS = "OpenTelemetry GenAI semantic conventions, Development, after 1.42 (their repository, November 2026)"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.42.0"
SCOPE = "shikisha"

# what is done: `gen_ai.operation.name`, and the first word of a span's name
INVOKE_WORKFLOW = "invoke_workflow"
PLAN = "plan"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

# ours, first words of span names that no convention has
ATTEMPT = "attempt"
EVALUATE = "evaluate"
ROLLBACK = "rollback"
UNDO = "undo"

# attributes of the conventions
OPERATION = "gen_ai.operation.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
WORKFLOW_NESTED = "gen_ai.workflow.nested"
AGENT_NAME = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
AGENT_VERSION = "gen_ai.agent.version"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

# content: only where it is asked for
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# the event of a check or a grade
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_VALUE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_WHY = "gen_ai.evaluation.explanation"

# metrics of the conventions
OPERATION_DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
WORKFLOW_DURATION = "gen_ai.workflow.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"

# not of the conventions, but read by Langfuse as the cost of a call
USAGE_COST = "gen_ai.usage.cost"

# OpenInference
KIND = "openinference.span.kind"
INPUT = "input.value"  # content, as the conventions' messages are: what Phoenix shows of a span in its lists
OUTPUT = "output.value"


class OpenInferenceKind(StrEnum):
    """What a span is to OpenInference; Phoenix shows no icon unless it is in capitals."""

    CHAIN = "CHAIN"  # a run, and whatever has no kind of its own
    AGENT = "AGENT"  # a step: a worker does its part
    LLM = "LLM"  # a call to a model, whoever wants it: Phoenix counts tokens of this kind only
    TOOL = "TOOL"  # a call to a tool
    EVALUATOR = "EVALUATOR"  # a check that asks a worker other than a model, a grade


# ours
RUN = "shikisha.run.id"
RUN_PARENT = "shikisha.run.parent"
RUN_STATUS = "shikisha.run.status"
RUN_PART = "shikisha.run.part"
RUN_CUT_OFF = "shikisha.run.cut_off"
RUN_CAP = "shikisha.run.cap"
RUN_WHY = "shikisha.run.why"
DEPTH = "shikisha.depth"
DOMAIN = "shikisha.task.domain"
TASK = "shikisha.task.id"
LABELS = "shikisha.task.labels"
POOL = "shikisha.pool"
ROUND = "shikisha.round"
STEP = "shikisha.step"
STEP_ID = "shikisha.step.id"
ACCESS = "shikisha.access"
PLAN_HASH = "shikisha.plan.hash"
PLAN_STEPS = "shikisha.plan.steps"
PLAN_REJECTED = "shikisha.plan.rejected"
PLAN_PROPENSITY = "shikisha.plan.propensity"
PLAN_TEXT = "shikisha.plan.text"
POLICY_VERSION = "shikisha.policy.version"
SUBSTITUTED = "shikisha.conductor.substituted"
WORKER = "shikisha.worker"
CHILD_RUN = "shikisha.child_run"
ATTEMPT_NUMBER = "shikisha.attempt"
ATTEMPTS = "shikisha.attempts"
ROLE = "shikisha.role"
REASON = "shikisha.attempt.reason"
ESCALATED_FROM = "shikisha.escalated_from"
INSTEAD_OF = "shikisha.instead_of"
ARGUMENTS_HASH = "shikisha.arguments.hash"
FAULT = "shikisha.fault"
TOOLS_OFFERED = "shikisha.tools.offered"
TOOLS_WITHHELD = "shikisha.tools.withheld"
GUARD = "shikisha.guard"
GUARD_MOMENT = "shikisha.guard.moment"
GUARD_PASSED = "shikisha.guard.passed"
CALLS_CUT = "shikisha.calls.cut"
TOKENS_CUT = "shikisha.tokens.cut"
COST = "shikisha.cost.dollars"
CHARGED_TOKENS = "shikisha.charged.tokens"
UNCERTAIN_COST = "shikisha.uncertain.dollars"
UNCERTAIN_TOKENS = "shikisha.uncertain.tokens"
USAGE_UNDERSTATED = "shikisha.usage.understated"
BUDGET_DOLLARS = "shikisha.budget.dollars_left"
BUDGET_TOKENS = "shikisha.budget.tokens_left"
QUESTION = "shikisha.question"
QUESTION_HASH = "shikisha.question.hash"
QUESTION_ASKS = "shikisha.question.asks"
APPROVAL = "shikisha.approval"
DECISION = "shikisha.approval.decision"
ACTOR = "shikisha.approval.actor"
VIA = "shikisha.approval.via"
LEADS_TO = "shikisha.check.leads_to"
GRADE_BASIS = "shikisha.grade.basis"
ROLLBACK_NUMBER = "shikisha.rollback"
EFFECT = "shikisha.effect"
EFFECT_STATUS = "shikisha.effect.status"
LINK = "shikisha.link"
STATUS = "shikisha.status"

# metrics of ours
RUNS = "shikisha.runs"
DOLLARS = "shikisha.cost"
REFUSALS = "shikisha.budget.refusals"
RUNS_ACTIVE = "shikisha.runs.active"
RUNS_WAITING = "shikisha.runs.waiting"
JOURNAL_LAG = "shikisha.journal.lag"
LEASE_LEFT = "shikisha.lease.left"
FIGURES = (RUNS_ACTIVE, RUNS_WAITING, JOURNAL_LAG, LEASE_LEFT)

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
