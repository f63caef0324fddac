"""What `shikisha.toml` may say, as pydantic models: every key has a default, and an unknown key is an error.

Invariant 8: no key is ever written here; a worker names the environment variable that holds it. Workers' and checks'
own keys are the adapters' (see `kinds`); here is what all of them share. Deliberately absent: anything about who
conducts how well. A knob is here because two users would set it differently.

What all tables of `shikisha.toml` have in common: closed to unknown keys, and names that are names.

Invariant 8: a key is never written in the file; a table names the environment variable that holds it. Deliberately
absent: the tables themselves (`settings`, `serving`, and the adapters' own).

[server]: how `shikisha serve` is reached, and what one server takes on.

Invariant: every default is safe on a laptop: loopback only, no key accepted that was not issued. Deliberately absent:
TLS (a reverse proxy's business) and anything about a single key (keys carry their own limits).

[autonomy]: how much runs may do on their own, by class of task.

Invariant: a class that cannot be kept as it is written is an error, never a class that asks less: `escalate` has a
rule, rules belong to `escalate`, and a class that fits every task is the last one. Deliberately absent: what the modes
come to (`oversight`, `closing`), and who may answer (the server's keys, or whoever has the terminal).

[telemetry]: where runs are told of, besides the journal; and what telemetry knows of the configured workers.

Invariants: without an endpoint, here or in OpenTelemetry's environment variables, nothing is exported; headers, which
hold keys, come from the environment by name (8). Deliberately absent: everything that OTEL_* variables say already
(samplers, limits, time-outs, intervals); they hold, and go before this table.

[[webhooks]]: who is told, by a signed POST, when a person is asked, when a run ends, or when a budget is used up.

Invariant 8: the secret, and a URL that is one, are named by environment variables; an address comes from here and from
nowhere else, so no request and no model can have us call anything. Deliberately absent: retries' settings.
"""

import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from shikisha.core.budget import Caps, Price
from shikisha.core.call import ApprovalMode
from shikisha.core.events import OnCheckFailure
from shikisha.core.plan import MAX_STEPS
from shikisha.core.prompts import MAX_UNKNOWN_SHARE, PlanFormat
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, AutonomyPolicy, EscalationRules, OnFailure
from shikisha.evals.reward import RewardWeights
from shikisha.telemetry import conventions, observer
from shikisha.telemetry.export_settings import ExportSettings, export_settings
from shikisha.telemetry.worker_facts import WorkerFacts, describe_worker

_NAME = re.compile(r"\w[\w.@:+/ -]*")
_ENV_VAR_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LOGIN = re.compile(r"://[^/@]*:[^/@]*@")


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


ConfigName = Annotated[str, AfterValidator(_checked_name)]
EnvVarName = Annotated[str, AfterValidator(_checked_variable)]
NoneAsText = BeforeValidator(lambda value: None if value == "none" else value)


class ConfigTable(BaseModel):
    """A table of the file: frozen, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_MIN_STALL = 5.0  # seconds: a busy machine must not look like a server that hangs
_HOST = re.compile(r"\*|(\*\.)?[\w.-]+(:\d+)?|\[?[0-9a-fA-F:.]+\]?|\[[0-9a-fA-F:.]+\]:\d+")


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://ai.example.com")
    return url


def _checked_host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError("expected a name such as ai.example.com or *.example.com, without scheme and path")
    return name


class ServerTable(ConfigTable):
    """[server]."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    port: int = Field(default=8100, ge=0, le=65535, description="0: any free one")
    url: Annotated[str, AfterValidator(_checked_url)] | None = Field(
        default=None, description="where others reach it, for links and as a name in the Host header"
    )
    hosts: tuple[Annotated[str, AfterValidator(_checked_host)], ...] = Field(
        default=(),
        description="names under which requests may come (Host header), beside IP addresses, localhost and url; "
        '"*" for all; by default all, unless `host` is a loopback address',
    )
    admin_key_env: EnvVarName | None = Field(default=None, description="the environment variable with an admin key")
    most_runs: int = Field(default=1000, ge=1, description="runs performed at once; beyond it requests get a 429")
    most_connections: int | None = Field(
        default=None, ge=8, description="connections at once; by default as many as the limit on open files allows"
    )
    most_bytes: int = Field(default=20 * 2**20, ge=1024, description="the largest request body")
    most_bytes_at_once: int = Field(
        default=100 * 2**20, ge=1024, description="of all larger bodies together, until they are answered; else a 503"
    )
    patience: float = Field(default=60.0, gt=0, description="seconds that a request waits for a person")
    lease: float = Field(default=10.0, gt=0, description="seconds after which a silent server's runs are taken over")
    stall: float | None = Field(
        default=None,
        gt=0,
        description="seconds that the event loop may stand still before the watchdog ends the process; inf: for ever; "
        "by default half the lease, and no less than 5",
    )
    drain: float = Field(default=10.0, ge=0, description="seconds that runs get to end when the server is stopped")
    keep_days: float | None = Field(default=None, gt=0, description="days after which texts of runs are erased")
    deepest: int = Field(default=3, ge=0, description="servers of ours that may call one another, this one last")
    waiting: float = Field(default=86400.0, gt=0, description="seconds after which a question to a person expires")

    @property
    def longest_stall(self) -> float:
        """Seconds after which the watchdog ends this server: before others take its runs over."""
        return max(_MIN_STALL, self.lease / 2) if self.stall is None else self.stall


class AutonomyClassTable(ConfigTable):
    """[[autonomy.classes]]: a class of tasks and its mode; the first class that fits a task decides."""

    name: str = Field(default="", max_length=100, description="what the people who are asked are told")
    domain: str | tuple[str, ...] = Field(default=(), description="task domains, any of them; by default all")
    labels: tuple[str, ...] = Field(default=(), description="labels that are all on the task (a key adds its own)")
    conductor: str | tuple[str, ...] = Field(default=(), description="conductors, any of them; by default all")
    mode: AutonomyMode
    workers: tuple[str, ...] = Field(default=(), description="workers whose every call a person approves")
    check: bool = Field(default=False, description="escalate: a check on the answer did not pass, or a step failed")
    substitution: bool = Field(default=False, description="escalate: another worker or conductor stood in")
    disagreement: bool = Field(default=False, description="escalate: workers asked the same answered differently")
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="escalate: it cost more")
    confidence: float | None = Field(default=None, gt=0, le=1, description="escalate: a plan was drawn with less")
    expires: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="seconds that a question waits")
    on_failure: OnFailure = Field(default=OnFailure.KEEP, description="rollback: a run without an answer is undone")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        rules = [name for name in _RULES if name in self.model_fields_set]
        if self.mode is AutonomyMode.ESCALATE and not (rules or self.workers):
            raise ValueError(f'mode "escalate" needs a rule: one of {", ".join(_RULES)} or workers')
        if self.mode is not AutonomyMode.ESCALATE and rules:
            raise ValueError(f'{", ".join(rules)}: a rule is for mode "escalate"; this class is {self.mode}')
        if self.mode is AutonomyMode.AUTONOMOUS and self.workers:
            raise ValueError('workers: nobody is asked in mode "autonomous"; choose "escalate"')
        return self

    @property
    def conductors(self) -> tuple[str, ...]:
        """The conductors."""
        return _as_tuple(self.conductor)

    def autonomy_class(self, expires: float | None) -> AutonomyClass:
        """Return it as the engine's value; `expires` is for classes that do not say it."""
        return AutonomyClass(
            name=self.name,
            mode=self.mode,
            domains=_as_tuple(self.domain),
            labels=self.labels,
            conductors=self.conductors,
            rules=EscalationRules(
                self.check, self.substitution, self.disagreement, self.dollars, self.confidence, self.workers
            ),
            expires=expires if self.expires is None else self.expires,
            on_failure=self.on_failure,
        )

    @property
    def fits_all(self) -> bool:
        """Whether every task is of this class."""
        return not (self.domain or self.labels or self.conductor)


_RULES = ("check", "substitution", "disagreement", "dollars", "confidence")


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


class AutonomyTable(ConfigTable):
    """[autonomy]: `approval` for workers that do not say themselves whether a person approves their calls; classes."""

    approval: ApprovalMode = ApprovalMode.NEVER
    expires: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="seconds that questions wait")
    classes: tuple[AutonomyClassTable, ...] = Field(default=(), description="the first class that fits a task decides")

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        for place, table in enumerate(self.classes[:-1]):
            if table.fits_all:
                raise ValueError(f"classes[{place}] fits every task, so that none after it is ever looked at")
        return self

    def autonomy_policy(self, expires: float | None = None) -> AutonomyPolicy:
        """Return it as the engine's value; `expires` holds where neither table says how long questions wait."""
        general = expires if self.expires is None else self.expires
        return AutonomyPolicy(
            tuple([table.autonomy_class(general) for table in self.classes]), AutonomyClass(expires=general)
        )


if TYPE_CHECKING:
    from shikisha.config.container import Container
    from shikisha.core.secrets import SecretStore
    from shikisha.telemetry.observer import TelemetryObserver

_REQUEST_ATTRIBUTES = {
    "temperature": conventions.REQUEST_TEMPERATURE,
    "top_p": conventions.REQUEST_TOP_P,
    "seed": conventions.REQUEST_SEED,
}


def _checked_endpoint(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("expected the URL of an OTLP/HTTP receiver: http://... or https://...")
    return checked_url(url)


def _checked_network(network: str) -> str:
    ip_network(network)
    return network


class TelemetryTable(ConfigTable):
    """[telemetry]."""

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = Field(
        default=None,
        description="base URL of an OTLP/HTTP receiver; traces go to its /v1/traces, metrics to /v1/metrics",
    )
    headers_env: EnvVarName | None = Field(
        default=None, description="the environment variable with headers for it: name=value, separated by commas"
    )
    service: str = Field(default="shikisha", min_length=1, description="service.name, unless OTEL_SERVICE_NAME says it")
    scrape: tuple[Annotated[str, AfterValidator(_checked_network)], ...] = Field(
        default=(), description="addresses and networks that may read /metrics without a key"
    )
    log: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is logged")

    def wanted(self, vault: "SecretStore", environment: Mapping[str, str]) -> ExportSettings | None:
        """Return what is to be exported, and where to; None for nothing."""
        headers = vault.read(self.headers_env) if self.headers_env is not None and self.endpoint is not None else ""
        return export_settings(environment, self.endpoint, headers, self.service)


def build_observer(
    composition: "Container",
    table: TelemetryTable,
    figures: Callable[[], Mapping[str, float]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> "TelemetryObserver | None":
    """Return what watches the runs of a composition, if anything is to be exported; shut it down in a thread."""
    settings = table.wanted(composition.vault, os.environ if environment is None else environment)
    return None if settings is None else observer(settings, composition.vault, known_worker_facts(composition), figures)


def known_worker_facts(composition: "Container") -> dict[str, WorkerFacts]:
    """Return what telemetry may say of each worker."""
    if composition.simulated_pool is not None:
        cards = [member.card for member in composition.simulated_pool]
        return {card.name: describe_worker(card.name, card.kind, card.description) for card in cards}
    return {name: _facts_of_table(name, table) for name, table in composition.workers.items()}


def _facts_of_table(name: str, table: "WorkerTable") -> WorkerFacts:
    url = str(getattr(table, "base_url", "") or getattr(table, "url", "") or "")
    said = {ours: getattr(table, theirs, None) for theirs, ours in _REQUEST_ATTRIBUTES.items()}
    if table.max_output_tokens is not None:
        said[conventions.REQUEST_MAX_TOKENS] = table.max_output_tokens
    return describe_worker(
        name,
        table.kind,
        table.description,
        model=str(getattr(table, "model", "")),
        url=url,
        request={key: value for key, value in said.items() if value is not None},
    )


class WebhookEvent(StrEnum):
    """What a webhook may be told of."""

    QUESTION_ASKED = "question.asked"  # a run waits for a person
    RUN_FINISHED = "run.finished"  # a run has ended, in whatever way
    BUDGET_REFUSED = "budget.refused"  # a cap on dollars, tokens or requests ended a run


def _checked_address(url: str) -> str:
    parts = urlsplit(checked_url(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected the whole URL, beginning with https:// or http://")
    return url


WebhookUrl = Annotated[str, AfterValidator(_checked_address)]


class WebhookTable(ConfigTable):
    """[[webhooks]]: one receiver."""

    url: WebhookUrl | None = Field(default=None, description="where to POST; redirects are not followed")
    url_env: EnvVarName | None = Field(default=None, description="the environment variable that holds the URL")
    secret_env: EnvVarName = Field(description="the environment variable with the secret that signs (whsec_...)")
    events: tuple[WebhookEvent, ...] = Field(default=tuple(WebhookEvent), min_length=1)
    tenant: str | None = Field(default=None, description="runs of this tenant only")
    content: bool = Field(default=False, description="send texts too: what is asked, what was answered")
    timeout: float = Field(default=10.0, gt=0, le=60, allow_inf_nan=False, description="seconds for one attempt")

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("expected url or url_env, one of them")
        return self


_DEFAULT_CAPS = Caps()


class PriceTable(ConfigTable):
    """Dollars per million input, output and cached input tokens, and per call."""

    input: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    def price(self) -> Price:
        """Return it as the ledger's value."""
        return Price(self.input, self.output, self.cached, self.call)


class HandoffTable(ConfigTable):
    """A check on a worker's answers: its name in [checks], what its failure leads to, how many redos it gets."""

    check: str
    on_fail: OnCheckFailure = OnCheckFailure.REDO
    redo: int = Field(default=1, ge=0, le=10)


HandoffEntry = Annotated[
    HandoffTable,
    BeforeValidator(
        lambda given: {"check": given} if isinstance(given, str) else given,
        json_schema_input_type=str | HandoffTable,
    ),
]


class WorkerTable(ConfigTable):
    """What every kind of worker takes: [workers.NAME]."""

    kind: str = Field(description="which adapter answers")
    description: str = Field(default="", description="what the worker is good at, as conductors read it")
    price: PriceTable | None = Field(default=None, description="dollars; without it a chat worker's cost is unknown")
    max_output_tokens: int | None = Field(default=None, ge=1, description="the most one answer may have")
    context_tokens: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1, description="calls at the same time")
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="calls per second")
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False, description="seconds for one attempt")
    attempts: int = Field(default=3, ge=1, le=20, description="attempts for one step before the fallback is asked")
    fallback: str | None = Field(default=None, description="the worker that stands in after a fault")
    escalate: str | None = Field(default=None, description="the dearer worker for faults and failed checks")
    approval: ApprovalMode | None = Field(default=None, description="whether a person must approve each call")
    compensate: str | None = Field(default=None, description="the worker that undoes what a call to this one did")
    skills: tuple[str, ...] = ()
    sees: tuple[str, ...] = Field(default=(), description="guarded data labels that it is cleared for")
    adds: tuple[str, ...] = Field(default=(), description="data labels that all it says bears")
    checks: tuple[HandoffEntry, ...] = Field(default=(), description="handoff checks, by name in [checks]")


class CheckTable(ConfigTable):
    """What every kind of check takes: [checks.NAME]."""

    kind: str = Field(description="which check judges")


class LmTable(ConfigTable):
    """[conductors.NAME] kind = "lm": a chat endpoint writes the plans."""

    kind: Literal["lm"]
    endpoint: str = Field(description="a worker of [workers]; it need not be in the pool")
    fallback: str | None = Field(default=None, description="the conductor that stands in when it writes no plan")
    form: PlanFormat | None = Field(
        default=None, description="by default json where the endpoint has structured_output"
    )
    described: bool = Field(default=True, description="show descriptions and prices, or bare ordinals")
    examples: bool = True
    rounds: int = Field(default=3, ge=1, description="the most rounds it plans: the first, and revisions")


class FixedTable(ConfigTable):
    """[conductors.NAME] kind = "fixed": a topology with its cast."""

    kind: Literal["fixed"]
    topology: str
    workers: tuple[str, ...] = ()
    n: int | None = Field(default=None, ge=1)
    roles: dict[str, str] = Field(default={})


class RulesTable(ConfigTable):
    """[conductors.NAME] kind = "rules": a TOML file of rules, its path relative to this file."""

    kind: Literal["rules"]
    file: str


class PolicyTable(ConfigTable):
    """[conductors.NAME] kind = "policy": a learned policy, or a shelf of them, and where its dial stands."""

    kind: Literal["policy"]
    file: Path = Field(description="a policy file, or a shelf's folder; relative paths begin at this file's folder")
    quality: float | None = Field(default=None, ge=0, description="accuracy, as a share of the best single worker's")
    max_cost: float | None = Field(default=None, ge=0, description="mean cost, as a share of the best single worker's")
    budget_per_1k: float | None = Field(default=None, ge=0, description="dollars for a thousand tasks")
    price: float | None = Field(default=None, ge=0, description="lambda: the accuracy that one unit of cost must bring")
    rung: str = Field(default="", description="a simpler rung than the one that is kept")
    explore: float | None = Field(default=None, ge=0, le=1, description="share of the cost for hardly known workers")

    def query(self) -> str:
        """Return the options as they stand in a conductor's name."""
        given = {
            "quality": self.quality,
            "max_cost": self.max_cost,
            "budget_per_1k": self.budget_per_1k,
            "lambda": self.price,
            "rung": self.rung or None,
            "explore": self.explore,
        }
        return "&".join(f"{name}={value}" for name, value in given.items() if value is not None)


class TrainedTable(ConfigTable):
    """[conductors.NAME] kind = "trained": a checkpoint writes the plans in this process."""

    kind: Literal["trained"]
    path: str = Field(min_length=1, description='a checkpoint\'s folder, or "shipped"; relative to this file')
    fallback: str | None = Field(default=None, description="the conductor that stands in when it writes no plan")
    rounds: int | None = Field(default=None, ge=1, description="the most rounds it plans; by default as trained")
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="0: always the likeliest plan")
    seed: int = Field(default=0, description="of the lot, where the temperature is above 0")
    constrained: bool = Field(default=True, description="whether nothing but plans can be written")
    unknown: float = Field(
        default=MAX_UNKNOWN_SHARE,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="share of unknown words above which a task is refused",
    )


ConductorTable = Annotated[LmTable | FixedTable | RulesTable | PolicyTable | TrainedTable, Field(discriminator="kind")]


class BudgetTable(ConfigTable):
    """[budgets]: hard caps of one run, its child runs included; "none" for no cap."""

    steps: int = Field(default=_DEFAULT_CAPS.steps, ge=1)
    rounds: int = Field(default=_DEFAULT_CAPS.rounds, ge=1)
    depth: int = Field(default=_DEFAULT_CAPS.depth, ge=0)
    tokens: Annotated[int | None, NoneAsText] = Field(default=None, ge=1)
    dollars: Annotated[float | None, NoneAsText] = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: Annotated[float | None, NoneAsText] = Field(default=_DEFAULT_CAPS.seconds, gt=0, allow_inf_nan=False)
    plan_steps: int = Field(default=_DEFAULT_CAPS.plan_steps, ge=1, le=MAX_STEPS)

    def caps(self) -> Caps:
        """Return them as the ledger's value."""
        return Caps(**dict(self))


class LabelsTable(ConfigTable):
    """[labels]: which data labels are guarded; a worker sees what bears one only if its `sees` has it."""

    guarded: tuple[str, ...] = ()


class JournalTable(ConfigTable):
    """[journal]: where runs are written: a file (relative to this one), or a database by URL."""

    file: str = "shikisha.db"
    url: Annotated[str, AfterValidator(checked_url)] | None = None
    url_env: EnvVarName | None = Field(default=None, description="the environment variable that holds the URL")


class RewardTable(ConfigTable):
    """[reward]: how much each part of a run's reward counts; `cost` is per dollar, `latency` per second."""

    format: float = Field(default=1.0, allow_inf_nan=False, description="0 no plan, 0.5 a plan, 1 and a right answer")
    correct: float = Field(default=0.0, allow_inf_nan=False, description="the answer's score")
    cost: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="taken away for each dollar")
    latency: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="taken away for each second")
    critical_path: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="taken away for each step on the longest way through a plan"
    )
    preference: dict[str, float] = Field(default={}, description="for each step of a worker that you like (or not)")
    always: bool = Field(default=False, description="cost, latency and critical path: of wrong answers, too")

    def weights(self) -> RewardWeights:
        """Return it as the value that rewards are reckoned with."""
        return RewardWeights(**dict(self))


class ShikishaSettings(ConfigTable):
    """The whole file."""

    conductor: str = Field(default="fixed:single", description="who conducts when the command line does not say")
    pool: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="workers in order; by default all, but for those that compensate others"
    )
    workers: dict[ConfigName, dict[str, object]] = Field(default={}, description="workers by name")
    conductors: dict[ConfigName, ConductorTable] = Field(default={}, description="conductors with options, by name")
    checks: dict[ConfigName, dict[str, object]] = Field(default={}, description="handoff checks by name")
    budgets: BudgetTable = BudgetTable()
    autonomy: AutonomyTable = AutonomyTable()
    journal: JournalTable = JournalTable()
    labels: LabelsTable = LabelsTable()
    server: ServerTable = ServerTable()
    telemetry: TelemetryTable = TelemetryTable()
    webhooks: tuple[WebhookTable, ...] = Field(default=(), description="who is told of questions, ends and budgets")
    reward: RewardTable = RewardTable()
