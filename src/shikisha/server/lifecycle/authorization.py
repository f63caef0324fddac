"""Authorization: from a request in any API to a run with its workers, caps and labels.

Invariant: a run may use what all of these allow: the configuration, the key, the request's headers, the data labels,
and what the task needs of a worker (attachments, tools). Each can only take away. When nothing is left, the error
says who took it away, and nothing is started or charged. Schemas that are invalid or too large are refused here too.
A plan that a person confirmed on a page is parsed as strictly as any text (`ConfirmedPlanConductor`). Budgets of keys
are checked later, at each call.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from shikisha.config.container import TEAM, Container
from shikisha.core.budget import Caps
from shikisha.core.call import DEPTH_HEADER, TOO_DEEP_CODE, Card
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.json_schema import SchemaCheck, check_bounds, check_size
from shikisha.core.messages import Json, MediaKind
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.task import Task
from shikisha.core.visibility import is_cleared, join_labels
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.server.chat.models import ModelCatalog, ServedModel
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestOptions, refuse_session
from shikisha.server.keys.key import Principal


class Api(StrEnum):
    """By which API a run was ordered."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    MCP = "mcp"
    A2A = "a2a"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RUNS = "runs"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class AuthorizedRun:
    """A run to be performed. `model` is the name that the client used, `conductor` and `pool` what it stands for.

    `detached`: the run goes on when the client has gone (background). `wire` is the request as the API needs it again
    later (JSON; it is kept with the run and erased with it). `idempotency` is the client's key for this very request,
    and `request_hash` tells whether another request under it is the same.
    `depth` is how many servers of ours the request has come through.
    """

    task: Task
    by: Principal
    model: str
    conductor: str
    pool: tuple[str, ...]
    caps: Caps
    api: Api = Api.CHAT
    detached: bool = False
    wire: str = "{}"
    idempotency: str | None = None
    request_hash: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0

    def scrubbed(self, scrub: Callable[[str], str]) -> "AuthorizedRun":
        """Return the order without keys in it; TaskError when that makes something else of its task."""
        metadata = {scrub(name): scrub(value) for name, value in self.metadata.items()}
        task, wire = self.task.scrubbed(scrub), scrub(self.wire)
        same = task is self.task and wire == self.wire and metadata == self.metadata
        return self if same else replace(self, task=task, wire=wire, metadata=metadata)


_MAX_KNOWN_CASTS = 1000
_MAX_HOPS = 3  # servers of ours in a chain, this one included: with more, one of them probably asks itself


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """What a request asks for, in no API's own shape."""

    model: str
    task: Task
    api: Api
    options: RequestOptions
    wire: str = "{}"
    detached: bool = False
    idempotency: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class RunAuthorizer:
    """Authorizes requested runs against one configuration."""

    def __init__(self, container: Container, catalogue: ModelCatalog) -> None:
        self.container = container
        self.catalogue = catalogue
        self._configured = container.cards()
        self._caps, self._guarded = container.caps, container.guarded_labels
        self._cast: set[tuple[str, tuple[str, ...]]] = set()  # combinations that were checked before

    def authorize(self, requested: RequestedRun, by: Principal) -> AuthorizedRun:
        """Return the authorized run; ApiError when the model, the workers or the caps are not available."""
        refuse_session(requested.options, "expected in requests for chat completions, messages and runs alone")
        depth = requested.options.depth
        if depth > _MAX_HOPS:
            said = f"the request has come through {depth} servers, and at most {_MAX_HOPS} may"
            raise ApiError(400, said, TOO_DEEP_CODE, param=DEPTH_HEADER)
        model = self.catalogue.find(requested.model, by)
        labels = tuple(sorted(join_labels(requested.task.labels, requested.options.labels, by.labels)))
        domain = requested.options.domain or requested.task.domain
        task = replace(requested.task, labels=labels, domain=domain, tenant=by.tenant)
        cards = _allowed_by_key(self._configured, by)
        cards = _chosen_by_request(cards, requested.options.workers, self.container)
        left = [card for card in cards if is_cleared(card, task.labels, self._guarded)]
        if not left:
            needed = ", ".join(sorted(self._guarded.intersection(task.labels)))
            raise _no_worker(403, f"no worker that may be used is cleared for data labelled {needed}", "not_cleared")
        cards = _able_to_perform(left, task)
        caps = requested.options.narrow_caps(self._caps)
        spec = model.spec(cards)
        team = self._team_pool(model, spec, cards)
        if not team:
            self._castable(
                model, spec, cards, lambda card: _why_excluded(card, task, requested.options, by, self._guarded)
            )
        return AuthorizedRun(
            task=task,
            by=by,
            model=model.name,
            conductor=spec,
            pool=team or tuple(card.name for card in cards),
            caps=caps,
            api=requested.api,
            detached=requested.detached,
            wire=requested.wire,
            idempotency=requested.idempotency,
            metadata=requested.metadata,
            depth=requested.options.depth,
        )

    def _team_pool(self, model: ServedModel, spec: str, cards: Sequence[Card]) -> tuple[str, ...]:
        """Return the pool of a team, whose workers must all be available here; none for other conductors."""
        if spec and not spec.startswith(f"{TEAM}:"):
            return ()
        team = self.container.team_pool(spec)
        names = {card.name for card in cards}
        if lacking := [name for name in self.container.team_workers(team) if name not in names]:
            raise _no_worker(
                403, f"the model {model.name!r} needs the worker {lacking[0]!r}, which this request may not use"
            )
        return team

    def _castable(
        self, model: ServedModel, spec: str, cards: Sequence[Card], lacking: Callable[[Card], tuple[str, str]]
    ) -> None:
        """Refuse a conductor that needs a worker which is not available here, and say why it is not."""
        if len(cards) == len(self._configured):
            return
        names = tuple(card.name for card in cards)
        if (spec, names) in self._cast:
            return
        try:
            self.container.conductor(spec, self.container.pool(names))
        except ConfigError as error:
            for card in self._configured:
                if card.name not in names and repr(card.name) in str(error):
                    why, code = lacking(card)
                    raise _no_worker(
                        400, f"the model {model.name!r} needs the worker {card.name!r}, {why}", code
                    ) from None
            said = f"the model {model.name!r} does not work with the allowed workers ({', '.join(names)}): {error}"
            raise _no_worker(400, said) from None
        if len(self._cast) < _MAX_KNOWN_CASTS:
            self._cast.add((spec, names))


def _allowed_by_key(cards: Sequence[Card], by: Principal) -> Sequence[Card]:
    if by.workers is None:
        return cards
    left = [card for card in cards if card.name in by.workers]
    if not left:
        raise _no_worker(403, "this key may use none of the workers that are configured here")
    return left


def _chosen_by_request(cards: Sequence[Card], wanted: Sequence[str] | None, container: Container) -> Sequence[Card]:
    if wanted is None:
        return cards
    known = [card.name for card in cards]
    for name in wanted:
        if name not in known:
            status, why = (403, "may not be used") if name in container.names else (400, "does not exist")
            said = f"X-Shikisha-Workers: the worker {name!r} {why}; those that may be used are {', '.join(known)}"
            raise ApiError(status, said, "no_worker", param="X-Shikisha-Workers")
    return [card for card in cards if card.name in wanted]


def _why_excluded(
    card: Card, task: Task, options: RequestOptions, by: Principal, guarded: frozenset[str]
) -> tuple[str, str]:
    """Return why a worker may not be used or cannot be, and the code of that."""
    if by.workers is not None and card.name not in by.workers:
        return "which this key may not use", "no_worker"
    if options.workers is not None and card.name not in options.workers:
        return "which X-Shikisha-Workers leaves out", "no_worker"
    if not is_cleared(card, task.labels, guarded):
        needed = ", ".join(sorted(guarded.intersection(task.labels)))
        return f"which is not cleared for data labelled {needed}", "not_cleared"
    if missing := _attachment_kinds(task) - set(card.takes):
        return f"which takes no attachments of the kind {' and '.join(sorted(missing))}", "unsupported_content"
    return "which cannot call a client's tools", "unsupported_tools"


def _attachment_kinds(task: Task) -> set[MediaKind]:
    """Return the kinds of all that is attached to the task and its history."""
    return {each.kind for turn in task.history for each in turn.attachments} | {each.kind for each in task.attachments}


def _able_to_perform(cards: Sequence[Card], task: Task) -> Sequence[Card]:
    """Return the workers that can do what the task needs of them."""
    needed = _attachment_kinds(task)
    left = [card for card in cards if needed <= set(card.takes)]
    if not left:
        kinds = " and ".join(sorted(needed))
        raise _no_worker(
            400, f"no worker that may be used takes attachments of the kind {kinds}", "unsupported_content"
        )
    if not task.tools:
        return left
    left = [card for card in left if card.can_call(task.tools, task.tool_choice)]
    if not left:
        raise _no_worker(400, "no worker that may be used can call a client's tools", "unsupported_tools")
    return left


def _no_worker(status: int, why: str, code: str = "no_worker") -> ApiError:
    return ApiError(status, why, code)


_PLAN_FIELD = "shown_plan"


@dataclass(frozen=True, slots=True)
class ConfirmedPlanConductor:
    """Proposes the plan that was shown, under the name of the conductor that made it."""

    plan: Plan
    name: str

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan in the first round; there is no other."""
        plan = Plan() if situation.rounds else self.plan
        return Proposal(plan, note="as it was shown and confirmed", final=True)


def confirmed_plan_request(plan: Plan) -> str:
    """Return the request that is kept with a run of this plan."""
    return json.dumps({_PLAN_FIELD: plan.dumps()})


def conductor_of_request(conductor: Conductor, api: str, wire: str, pool_size: int) -> Conductor:
    """Return the conductor of a request: the confirmed plan if it holds one, else the given conductor."""
    if api != Api.PAGE:
        return conductor
    told = json.loads(wire)
    plan = told.get(_PLAN_FIELD) if isinstance(told, dict) else None
    return ConfirmedPlanConductor(parse_plan(plan, pool_size), conductor.name) if isinstance(plan, str) else conductor


_ANSWER_SCHEMA_FIELDS = {
    Api.CHAT: "response_format.json_schema.schema",
    Api.RESPONSES: "text.format.schema",
    Api.MESSAGES: "output_config.format.schema",
    Api.RUNS: "answer_schema",
}
TOOLS_SIZE_FACTOR = 4  # all tools together, in schemas of the largest size
_TOOL_SCHEMA_FIELDS = {
    Api.CHAT: "tools[{}].function.parameters",
    Api.RESPONSES: "tools[{}].parameters",
    Api.MESSAGES: "tools[{}].input_schema",
}


def check_schema_sizes(raw: Mapping[str, object], api: Api) -> None:
    """Refuse a body with a schema that is too large, before it is read as a request: that alone would take long."""
    for path, times in ((_ANSWER_SCHEMA_FIELDS[api], 1), ("tools", TOOLS_SIZE_FACTOR)):
        found: object = raw
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict | list):
            try:
                check_size(found, path, times)
            except ConfigError as error:
                raise ApiError(400, str(error), "invalid_value", param=path) from None


async def check_schemas(task: Task, api: Api) -> None:
    """Refuse a task with a schema that cannot be worked with; ApiError (400) says which, and where."""
    where = _ANSWER_SCHEMA_FIELDS[api]
    try:
        if task.answer_schema is not None:
            await SchemaCheck.create(task.answer_schema, where)
        if task.tools:
            where = "tools"
            await check_bounds(
                {
                    _TOOL_SCHEMA_FIELDS[api].format(place): _tool_parameters(tool)
                    for place, tool in enumerate(task.tools)
                }
            )
    except ConfigError as error:
        raise ApiError(400, str(error), "invalid_value", param=where) from None


def _tool_parameters(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    function = tool.get("function")
    given = function.get("parameters") if isinstance(function, Mapping) else None
    return given if isinstance(given, Mapping) else {}
