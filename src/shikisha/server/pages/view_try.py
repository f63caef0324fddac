"""A plan before it is performed, as it is shown; and the form of a task, read.

Invariant: what is shown is what is performed: the plan goes to the browser and back word by word. Deliberately absent:
what its steps will cost (nobody knows what workers will answer; the caps bound it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shikisha.clean import one_line
from shikisha.conductor import Proposal
from shikisha.plan import Plan
from shikisha.server.narrowing import Narrowing
from shikisha.server.ordering import Wish
from shikisha.server.orders import Api
from shikisha.server.pages import graph
from shikisha.server.pages.view_run import State
from shikisha.server.problems import Problem
from shikisha.task import Task

_FIELDS = ("model", "prompt", "context", "domain", "labels", "dollars")


@dataclass(frozen=True, slots=True)
class Planned:
    """A step to be performed."""

    index: int
    worker: str
    subtask: str
    sees: tuple[int, ...]
    withheld: tuple[int, ...]
    state: State = State.PLANNED


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as it is shown. `dollars` is what planning cost; None: nobody can say."""

    steps: tuple[Planned, ...]
    shape: str
    conductor: str
    note: str
    substituted: str | None
    rejected: tuple[str, ...]
    plan: str
    tokens: int
    dollars: float | None
    wide: graph.Graph
    narrow: graph.Graph
    round: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    """Who planned, and what planning used."""

    conductor: str
    tokens: int
    dollars: float | None


def view(proposal: Proposal, pool: Sequence[str], used: Used) -> PlanView:
    """Return a proposal as it is shown."""
    plan = proposal.plan
    access = [step.access for step in plan.steps]
    return PlanView(
        steps=tuple(_planned(plan, index, pool) for index in range(len(plan))),
        shape=plan.topology(),
        conductor=used.conductor,
        note=proposal.note,
        substituted=proposal.substituted,
        rejected=tuple(f"{each.where}: {each.what}" for each in proposal.rejected),
        plan=plan.dumps(),
        tokens=used.tokens,
        dollars=used.dollars,
        wide=graph.wide(access),
        narrow=graph.narrow(access),
    )


def _planned(plan: Plan, index: int, pool: Sequence[str]) -> Planned:
    step = plan.steps[index]
    withheld = tuple(earlier for earlier in range(index) if earlier not in step.access)
    return Planned(index, pool[step.worker], step.subtask, step.access, withheld)


def given(form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form, all of them, as texts."""
    return {name: form.get(name, "").replace("\r\n", "\n") for name in _FIELDS}


def wish(told: Mapping[str, str], wire: str = "{}") -> Wish:
    """Read the form; Problem or TaskError for what cannot be asked for."""
    caps: dict[str, float] = {}
    if text := told["dollars"].strip():
        caps["dollars"] = _dollars(text)
    labels = tuple(dict.fromkeys(part for label in told["labels"].split(",") if (part := label.strip())))
    task = Task(told["prompt"], told["context"])
    narrowing = Narrowing(caps, labels=labels, domain=told["domain"].strip())
    return Wish(told["model"], task, Api.PAGE, narrowing, wire, detached=True)


def _dollars(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise Problem(400, f"dollars: expected a number from 0, not {one_line(text, 40)!r}", "invalid_request")
    return found
