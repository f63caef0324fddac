"""Two simulated worlds to learn in: an office of fresh authors, and a boat yard's endpoints over HTTP."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Request
from shikisha.core.events import CheckStatus, OnCheckFailure
from shikisha.core.plan import Plan
from shikisha.core.prompts import CHECK_OPENING, PlanFormat, PromptStyle
from shikisha.core.run import CheckVerdict
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.pool import Inspection, Member, OutputCheck, Pool
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms
from shikisha.testing.chat_script import ReceivedChatRequest, ScriptedAnswer
from shikisha_train.office.best_plan import best_plan, best_single
from shikisha_train.office.company import OfficeValue
from shikisha_train.office.office_tasks import OFFICE, VOTE_NAME, OfficeTask, office_task
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.office.seeded_random import hash_fraction
from shikisha_train.office.simulated_staff import LACKS, LOST, SimulatedStaff
from shikisha_train.office.staff import WordingFeature
from simulated_planner import planner_member

CAPS = Caps(steps=30, rounds=5, plan_steps=10)
WORTH = 0.05  # dollars of a right answer


class World(Protocol):
    """Tasks with a grade and what the best plan is worth (dollars), and what performs them."""

    files: LearningFiles
    terms: LearningTerms

    def task(self, at: int) -> Task:
        """Return task `at`."""
        ...

    def pool(self, at: int, luck: int) -> Pool:
        """Return who works at task `at`."""
        ...

    def planner(self, at: int) -> Conductor:
        """Return the conductor in force."""
        ...

    def grade(self, at: int, answer: str | None) -> float:
        """Return what an answer to task `at` is worth, 0 where it is wrong."""
        ...

    def best(self, at: int) -> float:
        """Return the value of the best plan of task `at`."""
        ...


class MeasuredWorld(World, Protocol):
    """A world that knows what controls come to."""

    def single(self, at: int) -> float:
        """Return the value of the best single worker, told the truth."""
        ...

    def true_kind(self, at: int) -> str:
        """Return the kind of work, told the truth; empty where a task has several."""
        ...


@dataclass
class KnownPlanner:
    """A planner that is asked once for each task, since it says the same again."""

    planner: Conductor
    known: dict[str, Proposal] = field(default_factory=dict)
    name: str = "lm:known"
    rounds: int = 1

    async def propose(self, situation: Situation) -> Proposal:
        """Return its plan; after that the answer is kept."""
        if situation.rounds:
            return Proposal(Plan())
        key = situation.task.content_hash
        if key not in self.known:
            self.known[key] = await self.planner.propose(situation)
        return self.known[key]


class SoundStaff(SimulatedStaff):
    """Staff that notes whether an answer is right for what it was given."""

    sound = True

    def answer(self, request: Request) -> tuple[str, float]:
        """Answer."""
        self.sound = True
        return super().answer(request)

    def _err(
        self, value: OfficeValue, part: int, count: int, features: frozenset[WordingFeature], irrelevant: int, key: str
    ) -> OfficeValue:
        result = super()._err(value, part, count, features, irrelevant, key)
        self.sound &= result == value
        return result


@dataclass(frozen=True)
class StepVerdicts:
    """A check that speaks on a share of the steps, and is wrong now and then."""

    staff: SoundStaff
    share: float
    name: str = "verdicts"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Return the verdict; nothing is told where it does not speak."""
        drawn = ("verdict", inspection.task.id, inspection.subtask, inspection.text)
        if hash_fraction("speaks", *drawn) >= self.share or inspection.subtask.startswith(CHECK_OPENING):
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER)
        sound = self.staff.sound and inspection.text not in (LACKS, LOST)
        fails = hash_fraction("fails", *drawn) < (0.03 if sound else 0.6)
        return CheckVerdict(self.name, CheckStatus.FAIL if fails else CheckStatus.PASS)


@dataclass
class Office:
    """Fresh authors' questions for one crew."""

    seed: int
    count: int
    files: LearningFiles
    terms: LearningTerms
    verdicts: float = 0.0
    items: list[OfficeTask] = field(init=False)
    plans: dict[str, Proposal] = field(default_factory=dict)
    worths: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        drawn = replace(OFFICE, conditional=0.0)
        crew = office_task(AuthorSplit.FRESH, self.seed, 0, OFFICE).crew
        self.items = [
            office_task(AuthorSplit.FRESH, self.seed * 1000 + 7, 100 + at, drawn).with_crew(crew)
            for at in range(self.count)
        ]

    def task(self, at: int) -> Task:
        """Return task `at`."""
        return replace(self.items[at].task, tenant="")

    def pool(self, at: int, luck: int) -> Pool:
        """Return the crew at work."""
        item = self.items[at]
        pool = item.with_crew(item.crew, luck).pool
        if not self.verdicts:
            return pool
        staff = [SoundStaff(member, item.question, item.task.id, luck) for member in item.crew.members]
        checks = [(OutputCheck(StepVerdicts(one, self.verdicts), OnCheckFailure.PASS),) for one in staff]
        members = [Member(card, one, check) for card, one, check in zip(pool.cards, staff, checks, strict=False)]
        return Pool([*members, pool.named(VOTE_NAME)])

    def planner(self, at: int) -> Conductor:
        """Return the simulated planner."""
        member = planner_member(self.items[at].question, most=CAPS.plan_steps)
        planner = LanguageModelConductor("lm:simulated", member, style=PromptStyle(PlanFormat.JSON), rounds=1)
        return KnownPlanner(planner, self.plans)

    def grade(self, at: int, answer: str | None) -> float:
        """Return the answer's worth."""
        return WORTH * self.items[at].value * self.items[at].grade(answer)

    def best(self, at: int) -> float:
        """Return the optimum's value."""
        if at not in self.worths:
            self.worths[at] = WORTH * best_plan(self.items[at]).value(self.items[at].value)
        return self.worths[at]

    def single(self, at: int) -> float:
        """Return the value of the one worker that is best for a task, told the truth."""
        return WORTH * best_single(self.items[at]).value(self.items[at].value)

    def true_kind(self, at: int) -> str:
        """Return nothing: a task has several kinds."""
        del at
        return ""


KINDS: Mapping[str, tuple[str, ...]] = {
    "hull survey": ("Survey the hull of {} for damp.", "How sound is the hull of {}?", "Report on {}'s planking."),
    "engine fault": ("Why does the engine of {} stall?", "Diagnose {}'s diesel.", "What ails the motor of {}?"),
    "sail cut": ("Lay out a new mainsail for {}.", "What cut suits the jib of {}?", "Plan {}'s spinnaker panels."),
    "berth fee": ("What does berth {} owe this month?", "Work out the mooring bill of {}.", "Total {}'s harbor dues."),
    "tide window": ("When can {} cross the bar?", "Find a tide for launching {}.", "Which tides let {} leave?"),
    "paint order": ("Order antifouling for {}.", "How many tins of paint does {} need?", "List coatings for {}."),
    "insurance letter": ("Write to the insurer of {}.", "Draft a damage claim for {}.", "Answer {}'s underwriter."),
    "crew contract": ("Check the contract of {}'s skipper.", "May {} dismiss its cook?", "Review {}'s crew papers."),
    "customs form": ("Fill in the customs form for {}.", "Which duty is due on {}?", "Declare {}'s spare parts."),
    "winter plan": ("Plan the winter lay-up of {}.", "What must {} have done by spring?", "Schedule {}'s refit."),
    "radio license": ("Renew the radio license of {}.", "Which call sign has {}?", "Register {}'s transponder."),
    "race entry": ("Enter {} for the regatta.", "What handicap does {} race under?", "Rate {} for the cup."),
}
BOATS = ("Alma", "Brise", "Corvus", "Dorade", "Elsa", "Freya", "Gannet", "Heron", "Iris", "Juno", "Kittiwake", "Loon")
PRICES = {"ash": 0.002, "birch": 0.002, "cedar": 0.002, "oak": 0.006, "pine": 0.001, "rowan": 0.002}
CONFIG = """
conductor = "lm:planner"
pool = [{pool}]
[journal]
file = "runs.db"
[learning]
on = true
[workers.planner]
kind = "chat"
base_url = "{url}"
model = "planner"
price = {{ call = 0.0001 }}
structured_output = true
"""
WORKER = """
[workers.{name}]
kind = "chat"
description = "{card}"
base_url = "{url}"
model = "{name}"
price = {{ call = {price} }}
attempts = 1
"""


def skill(name: str, kind: int, phase: str) -> float:
    """Return how often a worker is right at a kind; `fall`: ash is no specialist any more."""
    if name == "oak":
        return 0.85
    if name == "rowan":
        return 0.97
    if name == "pine":
        return 0.3
    own = ("ash", "birch", "cedar").index(name)
    return 0.93 if kind // 4 == own and (phase != "fall" or name != "ash") else 0.25


@dataclass
class Yard:
    """The boat yard; `phase` is what has changed by now."""

    seed: int
    names: Sequence[str]
    phase: str = ""
    best_alone: str = ""
    files: LearningFiles = field(init=False)
    terms: LearningTerms = field(init=False)
    conductor: Conductor = field(init=False)
    plain: Conductor = field(init=False)
    members: Pool = field(init=False)

    def kind(self, at: int) -> int:
        """Return the kind of task `at`."""
        return int(hash_fraction("kind", self.seed, at) * len(KINDS))

    def task(self, at: int) -> Task:
        """Return task `at`."""
        texts = list(KINDS.values())[self.kind(at)]
        text = texts[int(hash_fraction("text", self.seed, at) * len(texts))]
        boat = BOATS[int(hash_fraction("boat", self.seed, at) * len(BOATS))]
        return Task(f"{text.format(boat)} (file {at})", id=f"{self.seed}/{at}", tenant="")

    def answer(self, asked: ReceivedChatRequest) -> ScriptedAnswer:
        """Answer as the endpoint's model: the planner's plan, or the right word as often as the model is right."""
        said = "\n".join(text for _, text in asked.messages)
        at = int(said.rpartition("(file ")[2].partition(")")[0])
        kind = self.kind(at)
        if asked.model == "planner":
            cards = [line for line in said.rpartition("\nModels:\n")[2].split("\n") if line.startswith("| ")]
            claims = [place for place, card in enumerate(cards) if list(KINDS)[kind] in card or "everything" in card]
            worker = claims[int(hash_fraction("pick", at) * len(claims))]
            misnamed = hash_fraction("misnamed", at) < 0.1
            name = list(KINDS)[int(hash_fraction("name", at) * len(KINDS)) if misnamed else kind]
            text = said.rpartition("Question:\n| ")[2].partition("\n")[0]
            step = {"worker": worker, "subtask": text, "access": [], "kind": name}
            steps = [step] if said.endswith("Your reasoning and plan:") else []  # later it keeps the answer
            return ScriptedAnswer(text=json.dumps({"reasoning": "", "steps": steps}))
        right = hash_fraction(self.seed, asked.model, at) < skill(asked.model, kind, self.phase)
        return ScriptedAnswer(text=f"{'right' if right else 'wrong'} {at}")

    def config(self, url: str) -> str:
        """Return the configuration file."""
        kinds = list(KINDS)
        cards = {"oak": "Steady.", "pine": "An expert in everything.", "rowan": "New here."}
        for place, name in enumerate(("ash", "birch", "cedar")):  # each card claims the next one's kinds
            claimed = kinds[(place + 1) % 3 * 4 :][:4]
            cards[name] = f"Good at {', '.join(claimed)}."
        workers = [WORKER.format(name=name, card=cards[name], url=url, price=PRICES[name]) for name in self.names]
        return CONFIG.format(url=url, pool=", ".join(f'"{name}"' for name in self.names)) + "".join(workers)

    def pool(self, at: int, luck: int) -> Pool:
        """Return the endpoints."""
        del at, luck
        return self.members

    def planner(self, at: int) -> Conductor:
        """Return the planner."""
        del at
        return self.plain

    def grade(self, at: int, answer: str | None) -> float:
        """Return the answer's worth."""
        del at
        return WORTH * (answer is not None and answer.startswith("right"))

    def best(self, at: int) -> float:
        """Return the value of the best single call."""
        kind = self.kind(at)
        return max(WORTH * skill(name, kind, self.phase) - PRICES[name] for name in self.names)

    def value(self, name: str, at: int) -> float:
        """Return the expected value of a worker's answer."""
        return WORTH * skill(name, self.kind(at), self.phase) - PRICES[name]

    def single(self, at: int) -> float:
        """Return the value of the worker that is best over the first 400 tasks."""
        if not self.best_alone:
            self.best_alone = max(self.names, key=lambda name: sum(self.value(name, one) for one in range(400)))
        return self.value(self.best_alone, at)

    def true_kind(self, at: int) -> str:
        """Return the kind."""
        return list(KINDS)[self.kind(at)]
