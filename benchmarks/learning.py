"""What the learner brings, from nothing, by its own runs: through a journal and files, against controls.

    python benchmarks/learning.py office --seeds 901,902,903 [--runs 1000] [--graded 1] [--verdicts 0]
    python benchmarks/learning.py endpoints --seeds 1,2,3 [--runs 1000] [--graded 1] [--change fall|new|removed]
    python benchmarks/learning.py recorded --set mmlu-pro --data ../shared/recorded [--runs 3000] [--graded 1]
    python benchmarks/learning.py speed

`office` is the simulated office with fresh authors and one crew: tasks of 1 to 6 parts, cut by the simulated planner.
`endpoints` is a boat yard's 12 kinds of work over HTTP, configured by a file with `[learning] on = true`: three
specialists whose cards are swapped, an all-rounder at three times their price, a boaster, a planner that believes
cards. `recorded` replays a folder's real answers as traffic of whole questions, with a random worker planned, by the
product's fit and search without an engine. Shares are of the optimum's value on tasks that were not met: worth of right
answers less dollars of steps. The planner's own dollars are left out everywhere alike. `windows` are 50 runs each,
learner less planner alone.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.learned_conductor import LearnedConductor
from shikisha.conductors.plan_search import StepTable
from shikisha.config.container import load_config
from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.core.run import Run
from shikisha.core.subtasks import WORDINGS
from shikisha.core.task import OPERATOR, Scope, Task
from shikisha.engine.conductor import Conductor, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import Journal, open_journal
from shikisha.learned.journal_learner import JournalLearner
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import EncodeTexts, OutcomeModel, prior_model
from shikisha.learned.step_evidence import RunEvidence, StepAnswer, StepUnit, core_wording
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.testing.chat_script import ReceivedChatRequest, ScriptedAnswer
from shikisha.testing.chat_server import chat_server
from shikisha_train.office.best_plan import best_plan, best_single
from shikisha_train.office.office_tasks import OFFICE, OfficeTask, office_task
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.office.seeded_random import hash_fraction
from simulated_planner import planner_member

CAPS = Caps(steps=30, rounds=5, plan_steps=10)
AT = (50, 100, 200, 300, 600, 1000)
TEST = 80
WORTH = 0.05


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


@dataclass
class Office:
    """Fresh authors' questions for one crew."""

    seed: int
    count: int
    files: LearningFiles
    terms: LearningTerms
    items: list[OfficeTask] = field(init=False)

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
        return self.items[at].with_crew(self.items[at].crew, luck).pool

    def planner(self, at: int) -> Conductor:
        """Return the simulated planner."""
        member = planner_member(self.items[at].question, most=CAPS.plan_steps)
        return LanguageModelConductor("lm:simulated", member, style=PromptStyle(PlanFormat.JSON), rounds=1)

    def grade(self, at: int, answer: str | None) -> float:
        """Return the answer's worth."""
        return WORTH * self.items[at].value * self.items[at].grade(answer)

    def best(self, at: int) -> float:
        """Return the optimum's value."""
        return WORTH * best_plan(self.items[at]).value(self.items[at].value)

    def controls(self, first: int) -> dict[str, float]:
        """Return the best single worker's share, told the truth."""
        items = self.items[first:]
        best = sum(self.best(at) for at in range(first, self.count))
        return {"best single": WORTH * sum(best_single(one).value(one.value) for one in items) / best}


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
    """Return how often a worker is right at a kind; `fall`: oak is right at nothing, `new`: rowan is at everything."""
    if name == "oak":
        return 0.1 if phase == "fall" else 0.85
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
            return ScriptedAnswer(text=json.dumps({"reasoning": "", "steps": [step]}))
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

    def controls(self, first: int) -> dict[str, float]:
        """Return the share of the best single worker in hindsight, and of tables after 200, 300 and 1,000 runs."""
        at = range(first, first + 400)
        best = sum(self.best(one) for one in at)
        single = max(
            sum(WORTH * skill(name, self.kind(one), "") - PRICES[name] for one in at) / best for name in self.names
        )
        found = {"best single": single}
        for label, key in (("table by kind", self.kind), ("first two words", lambda one: self.task(one).prompt[:9])):
            for count in (200, 300, 1000):
                found[f"{label} {count}"] = self._table(count, key, at) / best
        return found

    def _table(self, count: int, key: Callable[[int], object], test: range) -> float:
        """Return the value of a table of Beta counts by key and worker that explores as the learner does."""
        rng = np.random.default_rng(self.seed)
        counts: dict[object, np.ndarray] = defaultdict(lambda: np.ones((2, len(self.names))))
        prices = np.array([PRICES[name] for name in self.names])
        for at in range(count):
            a, b = counts[key(at)]
            draw = rng.beta(a, b) if at < 150 or rng.random() < 0.1 else a / (a + b)
            worker = int(np.argmax(WORTH * draw - prices))
            right = rng.random() < skill(self.names[worker], self.kind(at), "")
            counts[key(at)][0 if right else 1, worker] += 1
        value = 0.0
        for at in test:
            a, b = counts[key(at)]
            worker = int(np.argmax(WORTH * a / (a + b) - prices))
            value += WORTH * skill(self.names[worker], self.kind(at), "") - prices[worker]
        return value


def steps_paid(run: Run) -> float:
    """Return the dollars of a run's steps."""
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    return sum(each.charged.dollars or 0.0 for step in steps for each in step.attempts)


def quiet(world: World, at: int) -> Conductor:
    """Return the learner over the planner, on every task and without exploring."""

    def source(scope: Scope, version: str) -> OutcomeModel | None:
        model = world.files.model(scope, version)
        return None if model is None else replace(model, learning=replace(model.learning, acts=1.0))

    return LearnedConductor("learned:planner", world.planner(at), source, replace(world.terms, share=0.0))


async def share(world: World, tests: range, conductor_of: Callable[[int], Conductor], lucks: int) -> float:
    """Return the share of the optimum on tasks."""
    recorder, got = MemoryRecorder(), 0.0
    engine = Engine(recorder)
    for at in tests:
        for luck in range(lucks):
            run = await engine.run(world.task(at), world.pool(at, 10_000 + luck), conductor_of(at), CAPS)
            recorder.forget(run.id)
            got += world.grade(at, run.answer) - steps_paid(run)
    return got / lucks / sum(map(world.best, tests))


@dataclass
class Traffic:
    """Runs of a world, one after the other, learned from as a server would."""

    world: World
    journal: Journal
    runs: int
    graded: float
    lucks: int
    conductor_of: Callable[[int], Conductor]
    values: list[float] = field(default_factory=list)
    fits: list[float] = field(default_factory=list)
    curve: dict[str, float] = field(default_factory=dict)

    async def run(self, first: int = 0, changes: Callable[[int], None] | None = None) -> None:
        """Perform the runs; measure at the usual places."""
        learner, engine = JournalLearner(self.world.files, self.journal, self.world.terms), Engine(self.journal)
        for at in range(first, first + self.runs):
            if changes is not None:
                changes(at)
            run = await engine.run(self.world.task(at), self.world.pool(at, 0), self.conductor_of(at), CAPS)
            worth = self.world.grade(at, run.answer)
            self.values.append(worth - steps_paid(run))
            if hash_fraction("graded", at) < self.graded:
                mark, score = (GradeMark.RIGHT, 1.0) if worth else (GradeMark.WRONG, 0.0)
                self.journal.add(
                    AnswerGraded(run=run.id, at=time.time(), checker="bench", mark=mark, score=score, actor="b")
                )
                await self.journal.flush()
            began = time.process_time()
            if await learner.look():
                self.fits.append(time.process_time() - began)
            if at + 1 in AT and changes is None:
                tests = range(self.runs, self.runs + TEST)
                self.curve[str(at + 1)] = await share(self.world, tests, lambda one: quiet(self.world, one), self.lucks)
                log(f"  {at + 1}: {self.curve[str(at + 1)]:.3f}")


async def windows(world: World, values: Sequence[float]) -> list[float]:
    """Return for each 50 runs how far they were above the planner alone, as a share of the optimum."""
    recorder, bases = MemoryRecorder(), list[float]()
    engine = Engine(recorder)
    for at in range(len(values)):
        run = await engine.run(world.task(at), world.pool(at, 0), world.planner(at), CAPS)
        recorder.forget(run.id)
        bases.append(world.grade(at, run.answer) - steps_paid(run))
    count = len(values) // 50 * 50
    gap = (np.array(values) - np.array(bases))[:count].reshape(-1, 50).sum(1)
    best = np.array([world.best(at) for at in range(count)]).reshape(-1, 50).sum(1)
    return [round(float(one), 3) for one in gap / best]


async def office(seed: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return what the learner comes to in one office."""
    with tempfile.TemporaryDirectory() as made:
        terms = LearningTerms(WORTH, 0.1, tuple(WORDINGS.values()))
        files = LearningFiles(Path(made) / "learning", terms.phrases, remembered(shipped_encoder().encode))
        world = Office(seed, asked.runs + TEST, files, terms)

        def learned(at: int) -> Conductor:
            return LearnedConductor("learned:lm", world.planner(at), files.model, terms)

        planner = await share(world, range(asked.runs, asked.runs + TEST), world.planner, 2)
        log(f"office {seed}: planner {planner:.3f}")
        async with open_journal(str(Path(made) / "runs.db")) as journal:
            traffic = Traffic(world, journal, asked.runs, asked.graded, 2, learned)
            await traffic.run()
        gaps = await windows(world, traffic.values)
        controls = {"planner": planner, **world.controls(asked.runs)}
        return {"seed": seed, **traffic.curve, **controls, "windows": gaps, "fit": max(traffic.fits)}


async def endpoints(seed: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return what the learner comes to with endpoints of one's own."""
    names = ["ash", "birch", "cedar", "oak", "pine"]
    with tempfile.TemporaryDirectory() as made:
        yard = Yard(seed, names)
        async with chat_server(yard.answer) as url:
            (Path(made) / "shikisha.toml").write_text(yard.config(url))
            async with aclosing(load_config(Path(made) / "shikisha.toml", {})) as container:
                yard.files, yard.terms = container.learning_files(), container.learning_terms()
                yard.members = container.pool()
                yard.conductor, yard.plain = container.conductor("", yard.members, learns=True), container.conductor()
                async with open_journal(container.journal_url()) as journal:
                    traffic = Traffic(yard, journal, asked.runs, asked.graded, 1, lambda _: yard.conductor)
                    await traffic.run()
                    found: dict[str, object] = {"seed": seed, **traffic.curve}
                    found["planner"] = await share(yard, range(asked.runs, asked.runs + TEST), yard.planner, 1)
                    found |= yard.controls(asked.runs)
                    found["windows"] = await windows(yard, traffic.values)
                    found["fit"] = max(traffic.fits)
                    if asked.change:
                        found[asked.change] = await changed(yard, journal, asked)
                    return found


async def changed(yard: Yard, journal: Journal, asked: argparse.Namespace) -> int:
    """Return how many runs a fall of the specialist ash costs until half is regained, by means over 20 runs."""
    before = traffic_value(yard, asked.runs)
    yard.phase = asked.change
    after = Traffic(yard, journal, 150, asked.graded, 1, lambda _: yard.conductor)
    await after.run(asked.runs + TEST, lambda _: None)
    first = asked.runs + TEST
    shares = [value / yard.best(first + at) for at, value in enumerate(after.values)]
    low = float(np.mean(shares[:10]))
    goal = (low + before) / 2
    for at in range(20, len(shares)):
        if float(np.mean(shares[at - 20 : at])) >= goal:
            return at - 20
    return len(shares)


def traffic_value(yard: Yard, runs: int) -> float:
    """Return the share that is aimed at."""
    del yard, runs
    return 0.95


POOLS = {
    "mmlu-pro": "gpt4o@hist gemini-1.5-pro-002 gemini-1.5-flash-002 Meta-Llama-3_1-70B-Instruct jamba-1.5-large "
    "Qwen1.5-72B-Chat Meta-Llama-3_1-8B-Instruct Phi-3-mini-4k-instruct Mixtral-8x7B-Instruct-v0.1 mathstral-7B "
    "c4ai-command-r-v01 gemma-7b Mistral-7B-Instruct-v0.2",
    "zeroeval": "",
}
LEFT_OUT = {"o1-mini-2024-09-12", "Athene-70B", "reka-core-20240501", "Yi-1.5-34B-Chat", "gpt-4o-2024-05-13",
            "claude-3-5-sonnet-20240620", "Meta-Llama-3-70B-Instruct", "Meta-Llama-3-8B-Instruct"}  # fmt: skip


def recorded(asked: argparse.Namespace) -> dict[str, object]:
    """Return what recorded traffic comes to: values a question in dollars, with right answers and dollars."""
    import pyarrow.parquet as pq

    folder = Path(asked.data) / asked.set
    tasks = {row["task_id"]: row for row in pq.read_table(folder / "tasks.parquet").to_pylist()}
    rows = pq.read_table(folder / "outcomes.parquet").to_pylist()
    names = POOLS[asked.set].split() or sorted({row["worker"] for row in rows} - LEFT_OUT)
    table: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        if row["worker"] in names and row["score"] is not None:
            table[row["task_id"]][row["worker"]] = (float(row["score"]), float(row["cost_usd"] or 0.0))
    whole = [one for one in table if len(table[one]) == len(names)]
    scores = {one: np.array([table[one][name][0] for name in names]) for one in whole}
    costs = {one: np.array([table[one][name][1] for name in names]) for one in whole}
    cards = tuple(Card(name, "", "chat", Price(call=float(np.mean([costs[one][at] for one in whole[:50]]))))
                  for at, name in enumerate(names))  # fmt: skip
    encode, found = remembered(shipped_encoder().encode), dict[str, object]()
    for seed in map(int, asked.seeds.split(",")):
        rng = np.random.default_rng(seed)
        order = [whole[at] for at in rng.permutation(len(whole))[: asked.runs]]
        terms, runs, got = LearningTerms(WORTH), list[RunEvidence](), list[float]()
        model = prior_model((), OPERATOR)
        for at, one in enumerate(order):
            row = tasks[one]
            kind = str(row["domain"]) if rng.random() < 0.9 else ""
            planned = int(rng.integers(len(names)))
            step = Plan((Step(str(row["prompt"]), planned, kind=kind),))
            plan = StepTable(model, Situation(Task(str(row["prompt"])), cards, left=CAPS), step)
            chosen = plan.best(WORTH, forms=False)
            best = chosen.blocks[0].worker
            plan.sample(np.random.default_rng([seed, at]))
            drawn = plan.best(WORTH, forms=False).blocks[0].worker
            price = plan.prices[drawn]
            share = terms.explored_share(model.learning.runs)
            explores = drawn != best and (share >= 1 or rng.random() < model.learning.credit / max(price, 1e-12))
            worker = drawn if explores else best
            score, paid = float(scores[one][worker]), float(costs[one][worker])
            got.append(WORTH * score - paid)
            answer = StepAnswer(names[worker], (), planned=worker == planned, dollars=paid)
            unit = StepUnit(core_wording(str(row["prompt"]), "", ()), kind, (answer,), 0)
            right = score >= 0.999 if rng.random() < asked.graded else None
            runs.append(RunEvidence(one, at, (unit,), right, None, OPERATOR, True, price * explores, paid, paid))
            if (at + 1) % (25 if at < 300 else 100) == 0:
                model = replace(fit_outcomes(runs, terms, OPERATOR, encode), version=str(at))
        each = WORTH * np.array([scores[one] for one in order]) - np.array([costs[one] for one in order])
        single = int(each.mean(0).argmax())
        kinds = [str(tasks[one]["domain"]) for one in order]
        told = sum(max(each[[k == kind for k in kinds]].sum(0)) for kind in set(kinds)) / len(order)
        last = slice(-1000, None)
        found[str(seed)] = {
            "learner": np.mean(got), "best single in hindsight": each[:, single].mean(),
            "table by domain in hindsight": told,
            "oracle": each.max(1).mean(), "last 1,000: learner": np.mean(got[last]),
            "last 1,000: best single": each[last, single].mean(), "single": names[single],
        }  # fmt: skip
        log(json.dumps(found))
    return found


def speed() -> dict[str, float]:
    """Return CPU seconds of a fit at 1,000 and 20,000 runs, and of a decision."""
    rng, found = np.random.default_rng(0), {}
    texts = [text.format("Name") for kind in KINDS.values() for text in kind]
    encode = remembered(shipped_encoder().encode)
    encode(texts)
    for count in (1_000, 20_000):
        runs = []
        for at in range(count):
            units = []
            for _ in range(3):
                worker, text = int(rng.integers(8)), int(rng.integers(len(texts)))
                told = tuple(bool(one) for one in rng.random(2) < 0.5)
                answer = StepAnswer(f"w{worker}", told, planned=bool(rng.random() < 0.3), dollars=0.001)
                units.append(StepUnit(texts[text], list(KINDS)[text // 3], (answer,), 0))
            runs.append(RunEvidence(f"r{at}", at, tuple(units), bool(rng.random() < 0.4), None, OPERATOR))
        began = time.process_time()
        fit_outcomes(runs, LearningTerms(phrases=("a", "b")), OPERATOR, encode)
        found[f"fit {count}"] = round(time.process_time() - began, 2)
    return found


def remembered(encode: EncodeTexts) -> EncodeTexts:
    """Return an encoder that remembers."""
    known: dict[str, np.ndarray] = {}

    def of(texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, encode(new), strict=True))
        return np.array([known[text] for text in texts])

    return of


def log(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Print what is asked for as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["office", "endpoints", "recorded", "speed"])
    parser.add_argument("--seeds", default="901,902,903")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--graded", type=float, default=1.0)
    parser.add_argument("--change", choices=["fall"])
    parser.add_argument("--set", choices=list(POOLS), default="mmlu-pro")
    parser.add_argument("--data", default="../shared/recorded")
    asked = parser.parse_args()
    if asked.world == "recorded":
        print(json.dumps(recorded(asked)))
        return
    if asked.world == "speed":
        print(json.dumps(speed()))
        return
    play = office if asked.world == "office" else endpoints
    print(json.dumps([asyncio.run(play(int(seed), asked)) for seed in asked.seeds.split(",")]))


if __name__ == "__main__":
    main()
