"""What `shikisha.toml` may say, as pydantic models: every key has a default, and an unknown key is an error.

Invariant 8: no key is ever written here; a worker names the environment variable that holds it. Workers' and checks'
own keys are the adapters' (see `kinds`); here is what all of them share. Deliberately absent: anything about who
conducts how well. A knob is here because two users would set it differently.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from shikisha.brief import UNKNOWN
from shikisha.budget import Caps, Price
from shikisha.call import Ask
from shikisha.config.serving import ServerTable
from shikisha.config.serving_autonomy import AutonomyTable
from shikisha.config.serving_telemetry import TelemetryTable
from shikisha.config.serving_webhooks import WebhookTable
from shikisha.config.table import Name, Table, Uncapped, Variable, checked_url
from shikisha.events import OnFail
from shikisha.plan import MAX_STEPS
from shikisha.prompt import Form
from shikisha.reward import Weights

_DEFAULT = Caps()


class PriceTable(Table):
    """Dollars per million input, output and cached input tokens, and per call."""

    input: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    def price(self) -> Price:
        """Return it as the ledger's value."""
        return Price(self.input, self.output, self.cached, self.call)


class HandoffTable(Table):
    """A check on a worker's answers: its name in [checks], what its failure leads to, how many redos it gets."""

    check: str
    on_fail: OnFail = OnFail.REDO
    redo: int = Field(default=1, ge=0, le=10)


HandoffEntry = Annotated[
    HandoffTable,
    BeforeValidator(
        lambda given: {"check": given} if isinstance(given, str) else given,
        json_schema_input_type=str | HandoffTable,
    ),
]


class WorkerTable(Table):
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
    approval: Ask | None = Field(default=None, description="whether a person must approve each call")
    compensate: str | None = Field(default=None, description="the worker that undoes what a call to this one did")
    skills: tuple[str, ...] = ()
    sees: tuple[str, ...] = Field(default=(), description="guarded data labels that it is cleared for")
    adds: tuple[str, ...] = Field(default=(), description="data labels that all it says bears")
    checks: tuple[HandoffEntry, ...] = Field(default=(), description="handoff checks, by name in [checks]")


class CheckTable(Table):
    """What every kind of check takes: [checks.NAME]."""

    kind: str = Field(description="which check judges")


class LmTable(Table):
    """[conductors.NAME] kind = "lm": a chat endpoint writes the plans."""

    kind: Literal["lm"]
    endpoint: str = Field(description="a worker of [workers]; it need not be in the pool")
    fallback: str | None = Field(default=None, description="the conductor that stands in when it writes no plan")
    form: Form | None = Field(default=None, description="by default json where the endpoint has structured_output")
    described: bool = Field(default=True, description="show descriptions and prices, or bare ordinals")
    examples: bool = True
    rounds: int = Field(default=3, ge=1, description="the most rounds it plans: the first, and revisions")


class FixedTable(Table):
    """[conductors.NAME] kind = "fixed": a topology with its cast."""

    kind: Literal["fixed"]
    topology: str
    workers: tuple[str, ...] = ()
    n: int | None = Field(default=None, ge=1)
    roles: dict[str, str] = Field(default={})


class RulesTable(Table):
    """[conductors.NAME] kind = "rules": a TOML file of rules, its path relative to this file."""

    kind: Literal["rules"]
    file: str


class PolicyTable(Table):
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


class TrainedTable(Table):
    """[conductors.NAME] kind = "trained": a checkpoint writes the plans in this process."""

    kind: Literal["trained"]
    path: str = Field(min_length=1, description='a checkpoint\'s folder, or "shipped"; relative to this file')
    fallback: str | None = Field(default=None, description="the conductor that stands in when it writes no plan")
    rounds: int | None = Field(default=None, ge=1, description="the most rounds it plans; by default as trained")
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="0: always the likeliest plan")
    seed: int = Field(default=0, description="of the lot, where the temperature is above 0")
    constrained: bool = Field(default=True, description="whether nothing but plans can be written")
    unknown: float = Field(
        default=UNKNOWN,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="share of unknown words above which a task is refused",
    )


ConductorTable = Annotated[LmTable | FixedTable | RulesTable | PolicyTable | TrainedTable, Field(discriminator="kind")]


class BudgetTable(Table):
    """[budgets]: hard caps of one run, its child runs included; "none" for no cap."""

    steps: int = Field(default=_DEFAULT.steps, ge=1)
    rounds: int = Field(default=_DEFAULT.rounds, ge=1)
    depth: int = Field(default=_DEFAULT.depth, ge=0)
    tokens: Annotated[int | None, Uncapped] = Field(default=None, ge=1)
    dollars: Annotated[float | None, Uncapped] = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: Annotated[float | None, Uncapped] = Field(default=_DEFAULT.seconds, gt=0, allow_inf_nan=False)
    plan_steps: int = Field(default=_DEFAULT.plan_steps, ge=1, le=MAX_STEPS)

    def caps(self) -> Caps:
        """Return them as the ledger's value."""
        return Caps(**dict(self))


class LabelsTable(Table):
    """[labels]: which data labels are guarded; a worker sees what bears one only if its `sees` has it."""

    guarded: tuple[str, ...] = ()


class JournalTable(Table):
    """[journal]: where runs are written: a file (relative to this one), or a database by URL."""

    file: str = "shikisha.db"
    url: Annotated[str, AfterValidator(checked_url)] | None = None
    url_env: Variable | None = Field(default=None, description="the environment variable that holds the URL")


class RewardTable(Table):
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

    def weights(self) -> Weights:
        """Return it as the value that rewards are reckoned with."""
        return Weights(**dict(self))


class Settings(Table):
    """The whole file."""

    conductor: str = Field(default="fixed:single", description="who conducts when the command line does not say")
    pool: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="workers in order; by default all, but for those that compensate others"
    )
    workers: dict[Name, dict[str, object]] = Field(default={}, description="workers by name")
    conductors: dict[Name, ConductorTable] = Field(default={}, description="conductors with options, by name")
    checks: dict[Name, dict[str, object]] = Field(default={}, description="handoff checks by name")
    budgets: BudgetTable = BudgetTable()
    autonomy: AutonomyTable = AutonomyTable()
    journal: JournalTable = JournalTable()
    labels: LabelsTable = LabelsTable()
    server: ServerTable = ServerTable()
    telemetry: TelemetryTable = TelemetryTable()
    webhooks: tuple[WebhookTable, ...] = Field(default=(), description="who is told of questions, ends and budgets")
    reward: RewardTable = RewardTable()
