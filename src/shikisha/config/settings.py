"""The keys of `shikisha.toml` as pydantic models: keys have safe defaults, and an unknown key is an error.

Invariant: no secret is ever written in the file. A table names the environment variable that holds it (`*_env`). The
keys of each kind of worker and check stand beside its adapter (see `config.adapters`); this module holds what they
share. A key exists only because two users would set it differently.

The keys of [push]: notifications to the phones of people who may approve.

Tables of the configuration for what runs teach: [learning], the learner's switch, and [memory].
"""

import re
from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from shikisha.config.autonomy_settings import AutonomyTable
from shikisha.config.conductor_settings import REMOVED_KINDS, ConductorTable
from shikisha.config.config_table import ConfigTable
from shikisha.config.context_settings import AnswerTable, ContextTable
from shikisha.config.environment import JOURNAL_FILE
from shikisha.core.budget import Caps, Price
from shikisha.core.call import ApprovalMode
from shikisha.core.events import OnCheckFailure
from shikisha.core.plan import MOST_ITEMS, MOST_STEPS
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.core.tools import ToolEffect
from shikisha.evals.reward import RewardWeights
from shikisha.telemetry.export_settings import ExportSettings, export_settings
from shikisha.tools.catalogue_settings import CatalogueTable

T = TypeVar("T", bound=ConfigTable)


def _checked_phrase(phrase: str) -> str:
    if sum(map(str.isalnum, phrase)) < 4 or len(phrase) > 300:
        raise ValueError(f"expected a sentence of at most 300 characters, not {phrase!r:.60}")
    return phrase


class LearningTable(ConfigTable):
    """[learning]: one switch. The learner then chooses workers, wordings, joins and checks of the plans it is given."""

    on: bool = Field(default=False, description="whether runs teach who does what, and later runs use it")
    dollars_share: float = Field(
        default=0.1, ge=0, le=1, description="the share of dollars for trying what is not known well; more at first"
    )
    worth: float = Field(
        default=0.05, gt=0, allow_inf_nan=False, description="US dollars that a right answer is worth: the dial of cost"
    )
    phrases: tuple[Annotated[str, AfterValidator(_checked_phrase)], ...] = Field(
        default=("Reply with the result only.", "Go over your result twice."),
        max_length=8,
        description="sentences of yours that may be added to a subtask, for the workers that they are seen to help",
    )
    folder: Path = Field(default=Path("learning"), description="where models are kept; relative to this file")


class TurnsTable(ConfigTable):
    """[turns]: which worker makes each turn of an agent whose tools the client calls."""

    mode: Literal["off", "shadow", "on"] = Field(
        default="off",
        description="shadow: turns stay where they are, and a share is made by another worker too, for a judge; on: "
        "turns go where finishing is expected to cost least, refused until shadow turns show that this does no harm",
    )
    judge: str | None = Field(default=None, description="the worker that compares live and shadow turns, blind")
    dollars: float = Field(
        default=1.0, ge=0, le=1e6, allow_inf_nan=False, description="US dollars a day for shadow turns and their judge"
    )
    share: float = Field(default=0.05, ge=0, le=1, description="the share of live turns with a shadow")

    @model_validator(mode="after")
    def _is_judged(self) -> Self:
        if self.mode != "off" and self.judge is None:
            raise ValueError("expected judge, the worker that compares shadow turns with live ones")
        return self


class MemoryTable(ConfigTable):
    """[memory]: notes of finished runs, found again by `shikisha memory` and `GET /memory`."""

    file: Path | None = Field(
        default=None, description="the index over the journal, made and kept by searches; relative to this file"
    )
    half_life_days: float | None = Field(
        default=None, gt=0, description="the age in days at which a note counts half; by default age does not count"
    )
    share: Literal["tenant", "all"] = Field(
        default="tenant",
        description="whose notes a key finds: those of its tenant, or all without data labels it lacks",
    )


BROWSER_PUSH_SERVICES = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "web.push.apple.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)


class PushTable(Table):
    """[push]: web push. Only the push services that are named here are ever called."""

    key_env: str = Field(
        default="SHIKISHA_VAPID_KEY",
        pattern="^[A-Za-z_][A-Za-z0-9_]*$",
        description="the environment variable that holds the VAPID key; `shikisha init --vapid` makes one",
    )
    contact: str = Field(
        pattern="^(mailto:.+@.+|https://.+)$",
        description="how push services reach the operator: mailto:you@example.com or an https:// URL",
    )
    services: tuple[Annotated[str, Field(pattern=r"^[a-z0-9.*:-]+$")], ...] = Field(
        default=BROWSER_PUSH_SERVICES,
        min_length=1,
        description="hosts of push services, with * for any text; by default those of the common browsers",
    )
    content: bool = Field(default=False, description="whether the question's text is in the message; it is sealed")


_NAME = re.compile(r"\w[\w.@:+/ -]*")
_ENV_VAR_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LOGIN = re.compile(r"://[^/@]*:[^/@]*@")
_HOST = re.compile(r"\*|(\*\.)?[\w.-]+(:\d+)?|\[?[0-9a-fA-F:.]+\]?|\[[0-9a-fA-F:.]+\]:\d+")
_MIN_STALL = 5.0  # seconds: a busy machine must not look like a server that hangs
_DEFAULT_CAPS = Caps()


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is letters, digits and . @ : + / - _, beginning with a letter or digit")
    return name


def _checked_variable(name: str) -> str:
    if not _ENV_VAR_NAME.fullmatch(name):
        raise ValueError("expected the name of an environment variable, never the key itself")
    return name


def checked_url(url: str) -> str:
    """Return the URL; ValueError for one that holds a password."""
    if _LOGIN.search(url):
        raise ValueError(
            "a URL holds no password: put the whole URL into an environment variable and name it in url_env"
        )
    return url


def _checked_server_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://ai.example.com")
    return url


def _checked_host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError("expected a name such as ai.example.com or *.example.com, without scheme and path")
    return name


def _checked_origin(origin: str) -> str:
    parts = urlsplit(origin)
    if origin != "*" and (
        parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc.lower()}"
    ):
        raise ValueError(
            'expected an origin such as https://chat.example.com, in lower case and without a path, or "*"'
        )
    return origin


def _checked_endpoint(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("expected the URL of an OTLP/HTTP receiver: http://... or https://...")
    return checked_url(url)


def _checked_network(network: str) -> str:
    ip_network(network)
    return network


def _checked_webhook_url(url: str) -> str:
    parts = urlsplit(checked_url(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected the whole URL, beginning with https:// or http://")
    return url


ConfigName = Annotated[str, AfterValidator(_checked_name)]
EnvVarName = Annotated[str, AfterValidator(_checked_variable)]
NoneAsText = BeforeValidator(lambda value: None if value == "none" else value)
WebhookUrl = Annotated[str, AfterValidator(_checked_webhook_url)]


_Dollars = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class PriceTable(ConfigTable):
    """Dollars per million tokens, and per call."""

    input: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="US dollars per million input tokens")
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="US dollars per million output tokens")
    cached: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="US dollars per million cached input tokens; by default the price of input tokens",
    )
    cache_write: _Dollars = Field(default=None, description="per million tokens written to a cache; by default input's")
    cache_write_1h: _Dollars = Field(default=None, description="the same for an hour's cache; by default cache_write's")
    reasoning: _Dollars = Field(default=None, description="per million reasoning tokens; by default output's")
    image: _Dollars = Field(default=None, description="per million image input tokens; by default input's")
    audio: _Dollars = Field(default=None, description="per million audio input tokens; by default input's")
    image_output: _Dollars = Field(default=None, description="per million image output tokens; by default output's")
    audio_output: _Dollars = Field(default=None, description="per million audio output tokens; by default output's")
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="US dollars per call, besides its tokens")
    as_of: date | None = Field(
        default=None, description="the day on which the price was looked up; `doctor` says when that is long ago"
    )

    def price(self) -> Price:
        """Return the price as the engine's value."""
        return Price(**self.model_dump(exclude={"as_of"}))


class HandoffTable(ConfigTable):
    """A check on a worker's answers, and what its failure leads to."""

    check: str = Field(description="the name of the check in [checks]")
    on_fail: OnCheckFailure = Field(
        default=OnCheckFailure.REDO,
        description="when the check fails: redo the step, escalate to another worker, stop the run, or pass the answer",
    )
    redo: int = Field(default=1, ge=0, le=10, description="how many times the worker may redo the step")


HandoffEntry = Annotated[
    HandoffTable,
    BeforeValidator(
        lambda given: {"check": given} if isinstance(given, str) else given,
        json_schema_input_type=str | HandoffTable,
    ),
]


class WorkerTable(ConfigTable):
    """[workers.NAME]: the keys of every kind of worker."""

    kind: str = Field(description="the adapter that performs the calls")
    description: str = Field(default="", description="what the worker is good at; conductors read it")
    price: PriceTable | None = Field(
        default=None, description="prices in US dollars; without them the cost of a chat worker is unknown"
    )
    max_output_tokens: int | None = Field(default=None, ge=1, description="the most tokens of one answer")
    context_tokens: int | None = Field(
        default=None, ge=1, description="the context window in tokens; it bounds what a call may cost"
    )
    concurrency: int | None = Field(default=None, ge=1, description="the most calls in flight at once")
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="the most calls per second")
    timeout: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds allowed for one attempt; for a streamed reply, seconds without a sign of life (and ten "
        "times as many for the whole)",
    )
    attempts: int = Field(default=3, ge=1, le=20, description="attempts at one step before the fallback is asked")
    fallback: str | None = Field(default=None, description="the worker that is asked when all attempts failed")
    escalate: str | None = Field(
        default=None, description="the stronger worker that is asked after a failed check, or when all attempts failed"
    )
    approval: ApprovalMode | None = Field(
        default=None, description="whether a person must approve each call; by default as [autonomy] says"
    )
    compensate: str | None = Field(
        default=None, description="the worker that undoes the effect of a call to this one on rollback"
    )
    skills: tuple[str, ...] = Field(
        default=(), description="what the worker can do, as tags that `shikisha doctor workers` lists"
    )
    sees: tuple[str, ...] = Field(default=(), description="guarded data labels that the worker is cleared for")
    adds: tuple[str, ...] = Field(default=(), description="data labels that every answer of the worker carries")
    checks: tuple[HandoffEntry, ...] = Field(
        default=(), description="checks that an answer must pass before later steps see it, by name in [checks]"
    )
    effect: ToolEffect | None = Field(
        default=None,
        description="what a call by an agent may do: read, write or unknown; by default read where the kind only reads",
    )
    idempotent: bool = Field(
        default=False, description="whether a repeated call under its idempotency key has one effect"
    )
    guards: tuple[dict[str, object], ...] = Field(
        default=(),
        description="guards that decide on each call an agent makes of this tool, as tables [[workers.NAME.guards]]",
    )


class GuardTable(ConfigTable):
    """[[workers.NAME.guards]]: the keys of every kind of guard."""

    kind: str = Field(description="what the guard looks at: grounded, expects, unchanged, reaches or once")
    name: str = Field(default="", description="the guard's name in journals and refusals; by default its kind")
    tools: tuple[str, ...] = Field(
        default=(), description="the tools of a catalogue that it guards, as in `delete_*`; by default all of them"
    )
    enabled: bool = Field(default=True, description="false switches the guard off, the default `grounded` too")


class CheckTable(ConfigTable):
    """[checks.NAME]: the keys of every kind of check."""

    kind: str = Field(description="the adapter that checks answers")


class BudgetTable(ConfigTable):
    """[budgets]: hard caps of one run, its child runs included; "none" for no cap."""

    steps: int = Field(default=_DEFAULT_CAPS.steps, ge=1, description="the most steps of a run")
    rounds: int = Field(default=_DEFAULT_CAPS.rounds, ge=1, description="the most rounds of planning")
    depth: int = Field(default=_DEFAULT_CAPS.depth, ge=0, description="how deep child runs may nest; 0: none")
    tokens: Annotated[int | None, NoneAsText] = Field(
        default=None, ge=1, description="the most tokens, input and output together"
    )
    dollars: Annotated[float | None, NoneAsText] = Field(
        default=None, ge=0, allow_inf_nan=False, description="the most US dollars; a worker without a price is refused"
    )
    seconds: Annotated[float | None, NoneAsText] = Field(
        default=_DEFAULT_CAPS.seconds,
        gt=0,
        allow_inf_nan=False,
        description="the most seconds of activity; waiting for a person does not count",
    )
    plan_steps: int = Field(
        default=_DEFAULT_CAPS.plan_steps, ge=1, le=MOST_STEPS, description="the most steps of one plan"
    )
    tool_calls: Annotated[int | None, NoneAsText] = Field(
        default=_DEFAULT_CAPS.tool_calls, ge=0, description="the most calls of tools that agents make"
    )
    map_items: int = Field(
        default=_DEFAULT_CAPS.map_items,
        ge=0,
        le=MOST_ITEMS,
        description="the most items of a map step, which calls its worker once for each; 0 allows no map step",
    )

    def caps(self) -> Caps:
        """Return the caps as the engine's value."""
        return Caps(**dict(self))


class LabelsTable(ConfigTable):
    """[labels]: which data labels are guarded."""

    guarded: tuple[str, ...] = Field(
        default=(), description="labels of data that only workers see which are cleared for them by `sees`"
    )


class JournalTable(ConfigTable):
    """[journal]: where runs are recorded: a SQLite file, or a database by URL."""

    file: str = Field(default=JOURNAL_FILE, description="the SQLite file, relative to this file")
    url: Annotated[str, AfterValidator(checked_url)] | None = Field(
        default=None, description="the URL of a PostgreSQL database, without a password; it replaces `file`"
    )
    url_env: EnvVarName | None = Field(
        default=None, description="the environment variable that holds the URL; it replaces `file` and `url`"
    )


class OutcomeSourceTable(ConfigTable):
    """[[server.outcomes]]: a sender of outcomes that signs as GitHub or GitLab does, and the tenant it speaks for."""

    secret_env: EnvVarName = Field(description="the environment variable that holds the webhook's secret")
    tenant: str = Field(default="default", description="the tenant whose runs it may grade")


class ServerTable(ConfigTable):
    """[server]: how `shikisha serve` is reached, and how much it takes on. Every default is safe on a laptop."""

    renamed_keys: ClassVar[Mapping[str, str]] = {
        "most_runs": "max_runs",
        "most_connections": "max_connections",
        "most_bytes_at_once": "max_pending_bytes",
        "most_bytes": "max_body_bytes",
        "patience": "approval_wait",
        "waiting": "approval_timeout",
        "stall": "watchdog_timeout",
    }

    removed_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("deepest", "max_hops"), "a request comes through three servers at most; leave it out"
    )

    host: str = Field(default="127.0.0.1", description="the address to listen on; 0.0.0.0: all addresses")
    port: int = Field(default=8100, ge=0, le=65535, description="the port to listen on; 0: any free port")
    processes: int = Field(
        default=1,
        ge=1,
        le=64,
        description="how many server processes share the port, one for each core to use; limits hold for each of them",
    )
    url: Annotated[str, AfterValidator(_checked_server_url)] | None = Field(
        default=None, description="the URL under which clients reach the server, for links and the Host header"
    )
    hosts: tuple[Annotated[str, AfterValidator(_checked_host)], ...] = Field(
        default=(),
        description="names that a request may have in its Host header, besides IP addresses, localhost and `url`; "
        '"*" for all; by default all, unless `host` is a loopback address',
    )
    origins: tuple[Annotated[str, AfterValidator(_checked_origin)], ...] = Field(
        default=(),
        description='origins of web pages that may call /v1 from a browser (CORS), each with a key; "*" for all; by '
        "default none",
    )
    proxies: tuple[Annotated[str, AfterValidator(_checked_network)], ...] = Field(
        default=("127.0.0.0/8", "::1"),
        description="networks of the proxies in front, whose X-Forwarded-For says from where a request comes",
    )
    admin_key_env: EnvVarName | None = Field(
        default=None, description="the environment variable that holds an admin key"
    )
    max_runs: int = Field(
        default=1000, ge=1, description="the most runs in progress at once; further requests get status 429"
    )
    max_connections: int | None = Field(
        default=None,
        ge=8,
        description="the most connections at once; by default what the limit on open files allows",
    )
    max_body_bytes: int = Field(default=20 * 2**20, ge=1024, description="the largest request body, in bytes")
    max_pending_bytes: int = Field(
        default=100 * 2**20,
        ge=1024,
        description="the most bytes of large request bodies in progress together; further requests get status 503",
    )
    approval_wait: float = Field(
        default=60.0, gt=0, description="seconds that a request stays open to wait for a person"
    )
    lease: float = Field(
        default=10.0, gt=0, description="seconds without a sign of life after which other servers take over a run"
    )
    watchdog_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds that the event loop may block before the watchdog ends the process; inf: forever; "
        "by default half the lease, and at least 5",
    )
    drain: float = Field(default=10.0, ge=0, description="seconds that runs may continue when the server is stopped")
    keep_days: float | None = Field(
        default=None, gt=0, description="days after which the texts of a run are erased; by default never"
    )
    unknown: Literal["ignore", "refuse"] = Field(
        default="ignore",
        description="what becomes of parameters and tools of a request that are unknown here: ignore leaves them out "
        "and names them in the header X-Shikisha-Ignored; refuse answers 400",
    )
    outcomes: tuple[OutcomeSourceTable, ...] = Field(
        default=(), description="webhooks of GitHub and GitLab that may grade runs at POST /v1/outcomes"
    )
    passkeys: Literal["enrolled", "always"] = Field(
        default="enrolled",
        description="who says yes to calls that cost money or change something with a passkey: enrolled: everyone "
        "whose key has one; always: everyone",
    )
    approval_timeout: float = Field(
        default=86400.0, gt=0, description="seconds after which a question to a person expires"
    )

    @property
    def longest_stall(self) -> float:
        """Seconds after which the watchdog ends this server: before others take over its runs."""
        return max(_MIN_STALL, self.lease / 2) if self.watchdog_timeout is None else self.watchdog_timeout


class TelemetryTable(ConfigTable):
    """[telemetry]: where traces and metrics are exported.

    OpenTelemetry's own environment variables (OTEL_*) take precedence. Without an endpoint nothing is exported.
    """

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = Field(
        default=None,
        description="the base URL of an OTLP/HTTP receiver: traces go to /v1/traces, metrics to /v1/metrics",
    )
    headers_env: EnvVarName | None = Field(
        default=None,
        description="the environment variable that holds headers for the receiver, as name=value,name=value",
    )
    service: str = Field(default="shikisha", min_length=1, description="service.name, unless OTEL_SERVICE_NAME sets it")
    scrape: tuple[Annotated[str, AfterValidator(_checked_network)], ...] = Field(
        default=(), description="addresses and networks that may read /metrics without a key"
    )
    log: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the lowest level that is logged"
    )

    def wanted(self, secret_store: SecretStore, environment: Mapping[str, str]) -> ExportSettings | None:
        """Return what is exported, and where to; None for nothing."""
        headers = (
            secret_store.read(self.headers_env) if self.headers_env is not None and self.endpoint is not None else ""
        )
        return export_settings(environment, self.endpoint, headers, self.service)


class WebhookEvent(StrEnum):
    """What a webhook reports."""

    QUESTION_ASKED = "question.asked"  # a run waits for a person
    RUN_FINISHED = "run.finished"  # a run has ended, in whatever way
    BUDGET_REFUSED = "budget.refused"  # a cap on dollars, tokens or requests ended a run


class WebhookTable(ConfigTable):
    """[[webhooks]]: one receiver of signed POST requests. Addresses come from this table only, never from a request."""

    url: WebhookUrl | None = Field(default=None, description="where to POST; redirects are not followed")
    url_env: EnvVarName | None = Field(default=None, description="the environment variable that holds the URL")
    secret_env: EnvVarName = Field(description="the environment variable that holds the signing secret (whsec_...)")
    events: tuple[WebhookEvent, ...] = Field(
        default=tuple(WebhookEvent), min_length=1, description="the events that are sent; by default all"
    )
    tenant: str | None = Field(default=None, description="send events of this tenant's runs only")
    content: bool = Field(default=False, description="whether questions and answers are sent too")
    timeout: float = Field(
        default=10.0, gt=0, le=60, allow_inf_nan=False, description="seconds allowed for one attempt"
    )

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("expected url or url_env, one of them")
        return self


class RewardTable(ConfigTable):
    """[reward]: the weight of each part of a run's reward."""

    format: float = Field(
        default=1.0, allow_inf_nan=False, description="weight of: 0 for no plan, 0.5 for a plan, 1 with a right answer"
    )
    correct: float = Field(default=0.0, allow_inf_nan=False, description="weight of the answer's score")
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="subtracted for each US dollar")
    latency: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="subtracted for each second")
    critical_path: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="subtracted for each step on the longest path of a plan"
    )
    preference: dict[str, float] = Field(
        default={}, description="added for each step of a worker, by its name; negative values discourage it"
    )
    always: bool = Field(
        default=False, description="whether wrong answers are charged cost, latency and critical path too"
    )

    def weights(self) -> RewardWeights:
        """Return the weights as the evaluation's value."""
        return RewardWeights(**dict(self))


def _section(table: type[T], description: str) -> T:
    """Return the field of a table that may be missing: its default is made without compiling the table's schema."""
    default: T = Field(default=table.model_construct(), description=description)
    return default


class ShikishaSettings(ConfigTable):
    """The whole file."""

    removed_keys = dict.fromkeys(("notes", "learned"), "write [learning] on = true, and nothing else")

    @field_validator("conductors", mode="before")
    @classmethod
    def _refuse_removed(cls, tables: object) -> object:
        for name, table in tables.items() if isinstance(tables, Mapping) else ():
            if isinstance(table, Mapping) and (instead := REMOVED_KINDS.get(str(table.get("kind")))):
                raise ValueError(f"{name}: {instead}")
        return tables

    conductor: str = Field(
        default="fixed:single", description="the conductor of runs for which the command line names none"
    )
    pool: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the workers of a run, in order; by default all that do not merely compensate others",
    )
    workers: dict[ConfigName, dict[str, object]] = Field(default={}, description="the workers, by name")
    conductors: dict[ConfigName, ConductorTable] = Field(default={}, description="conductors with options, by name")
    teams: dict[ConfigName, dict[str, object]] = Field(
        default={}, description="teams of roles, by name; a team conducts as team:NAME, with its roles as workers"
    )
    catalogues: dict[ConfigName, CatalogueTable] = Field(
        default={}, description="catalogues of tools for agents, by name; `shikisha tools pin` pins them"
    )
    checks: dict[ConfigName, dict[str, object]] = Field(
        default={}, description="checks on the answers of workers, by name"
    )
    budgets: BudgetTable = _section(BudgetTable, "hard caps of one run")
    plans: dict[ConfigName, dict[str, object]] = Field(
        default={}, description="rate plans: what requests of keys bring, and the margin that the server keeps, by name"
    )
    autonomy: AutonomyTable = _section(AutonomyTable, "how much runs may do on their own, by class of task")
    journal: JournalTable = _section(JournalTable, "where runs are recorded")
    learning: LearningTable = _section(LearningTable, "whether runs teach later runs who does what")
    turns: TurnsTable = _section(TurnsTable, "which worker makes each turn of an agent")
    memory: MemoryTable = _section(MemoryTable, "notes of finished runs, found again by a search")
    context: ContextTable = _section(ContextTable, "what workers see besides the task")
    answer: AnswerTable = _section(AnswerTable, "what happens to an answer before it ships")
    labels: LabelsTable = _section(LabelsTable, "which data labels are guarded")
    server: ServerTable = _section(ServerTable, "the server that `shikisha serve` starts")
    telemetry: TelemetryTable = _section(TelemetryTable, "export of traces and metrics")
    push: PushTable | None = Field(default=None, description="notifications to phones; by default none")
    webhooks: tuple[WebhookTable, ...] = Field(
        default=(), description="receivers of signed POST requests about questions, finished runs and budgets"
    )
    reward: RewardTable = _section(RewardTable, "the weights of a run's reward")
