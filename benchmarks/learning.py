"""What the learner brings, from nothing, by its own runs: through a journal and files, against controls.

    python benchmarks/learning.py office --seeds 901,902,903 [--runs 1000] [--graded 1] [--verdicts 0]
    python benchmarks/learning.py endpoints --seeds 1,2,3 [--runs 1000] [--graded 1] [--change fall|new|removed]
    python benchmarks/learning.py speed
    python benchmarks/learning.py long [--runs 125000]
    python benchmarks/learning.py table FILE...

`office` is the simulated office with fresh authors and one crew: tasks of 1 to 6 parts, cut by the simulated planner;
`--verdicts` is the share of steps on which a check speaks (it sees .6 of what is wrong, and refuses .03 of what is
right). `endpoints` is a boat yard's 12 kinds of work over HTTP, configured by a file with `[learning] on = true`: three
specialists whose cards are swapped, an all-rounder at three times their price, a boaster, a planner that believes
cards. Each seed prints a line of JSON; `table` makes the table of such lines, with
paired bootstrap intervals over test tasks within seeds. Shares are of the optimum's value on tasks that were not met:
worth of right answers less dollars of steps. The planner's own dollars are left out everywhere alike. Controls are
performed on the same tasks and luck: tables of Beta counts by the planner's kind, by the first two words (the twenty
lines) or by the true kind, with credit by expectation maximization and the learner's schedule of exploring. `windows`
are 50 runs each, learner less planner alone. `long` learns from a journal of so many runs of 16 steps: copies of 1,000
performed ones, so that as many wordings are met as 16,000 steps have.
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sqlalchemy import Connection, insert, select, update

from learning_worlds import CAPS, KINDS, WORTH, KnownPlanner, MeasuredWorld, Office, World, Yard
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.learned_conductor import LearnedConductor, StepTable
from shikisha.config.container import load_config
from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR, Scope, Task
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import Journal, open_journal
from shikisha.journal.schema import EVENTS, HEAD
from shikisha.learned.journal_learner import JournalLearner
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import EncodeTexts, OutcomeModel
from shikisha.learned.step_evidence import RunEvidence, StepAnswer, StepUnit, run_evidence
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.testing.chat_server import chat_server
from shikisha_train.office.part_plans import WORDINGS
from shikisha_train.office.seeded_random import hash_fraction

AT = (50, 100, 200, 300, 600, 1000)
TABLES_AT = (200, 300, 1000)
TEST = 80
Values: TypeAlias = list[tuple[float, float]]  # dollars: value, and paid for steps, by task


class WordTable:
    """The twenty lines: Beta counts by key and worker, credit by expectation maximization, the learner's exploring."""

    def __init__(self, key: Callable[[int, Step], str], prices: Sequence[float], seed: int) -> None:
        self.key, self.prices, self.rng = key, np.array(prices), np.random.default_rng(seed)
        self.counts, self.runs = self._counts(), list[tuple[list[tuple[str, int]], bool]]()

    def _counts(self) -> dict[str, np.ndarray]:
        return defaultdict(lambda: np.ones((2, len(self.prices))))

    def choose(self, key: str, *, draws: bool) -> int:
        """Return the worker of highest worth, by the mean or a draw."""
        a, b = self.counts[key]
        return int(np.argmax(WORTH * (self.rng.beta(a, b) if draws else a / (a + b)) - self.prices))

    def learn(self) -> None:
        """Share the grades of runs among their steps."""
        for _ in range(5):
            new = self._counts()
            for parts, right in self.runs:
                p = np.array([self.counts[key][0, at] / self.counts[key][:, at].sum() for key, at in parts])
                each = np.ones(len(p)) if right else (p - p.prod()) / (1 - p.prod())
                for (key, at), one in zip(parts, each, strict=True):
                    new[key][:, at] += one, 1 - one
            self.counts = new


@dataclass
class TableConductor:
    """The planner's steps, done by whom a table names, and told all standing phrases."""

    proposer: Conductor
    table: WordTable
    at: int
    phrases: Sequence[str]
    draws: bool = False
    name: str = "bench:table"
    did: list[tuple[str, int]] = field(default_factory=list)

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan."""
        if situation.rounds:
            return Proposal(Plan())
        first = await self.proposer.propose(situation)
        keys = [self.table.key(self.at, step) for step in first.plan.steps]
        self.did = [(key, self.table.choose(key, draws=self.draws)) for key in keys]
        steps = [
            replace(step, worker=worker, subtask=" ".join([step.subtask, *self.phrases]))
            for step, (_, worker) in zip(first.plan.steps, self.did, strict=True)
        ]
        return replace(first, plan=Plan(tuple(steps)), final=True)


def table_keys(world: MeasuredWorld) -> dict[str, Callable[[int, Step], str]]:
    """Return the tables that are compared."""
    found = {
        "table by the planner's kinds": lambda _, step: step.kind,
        "first two words": lambda _, step: " ".join(step.subtask.split()[:2]),
    }
    return found | ({"table by true kinds": lambda at, _: world.true_kind(at)} if world.true_kind(0) else {})


def by_table(world: World, table: WordTable, at: int) -> Conductor:
    """Return the conductor of a table, without exploring."""
    return TableConductor(world.planner(at), table, at, world.terms.phrases)


async def tables(world: MeasuredWorld, asked: argparse.Namespace, seed: int, lucks: int) -> dict[str, Values]:
    """Return what the tables come to after so many runs."""
    found = dict[str, Values]()
    prices = [card.price.call for card in world.pool(0, 0).cards if card.kind != "vote" and card.price is not None]
    for label, key in table_keys(world).items():
        table, engine = WordTable(key, prices, seed), Engine(recorder := MemoryRecorder())
        for at in range(asked.runs):
            draws = table.rng.random() < (1 if at < 150 else 0.3 if at < 300 else 0.1)
            conductor = TableConductor(world.planner(at), table, at, world.terms.phrases, draws=draws)
            run = await engine.run(world.task(at), world.pool(at, 0), conductor, CAPS)
            recorder.forget(run.id)
            if hash_fraction("graded", at) < asked.graded:
                table.runs.append((conductor.did, world.grade(at, run.answer) > 0))
            if (at + 1) % 25 == 0:
                table.learn()
            if at + 1 in TABLES_AT:
                tests = range(asked.runs, asked.runs + TEST)
                found[f"{label}, {at + 1}"] = await values(world, tests, partial(by_table, world, table), lucks)
        log(f"  {label}: {[(name, total(world, asked, one)) for name, one in found.items() if label in name]}")
    return found


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


async def values(world: World, tests: range, conductor_of: Callable[[int], Conductor], lucks: int) -> Values:
    """Return for each task its value and its dollars of steps, means over lucks."""
    recorder = MemoryRecorder()
    engine, found = Engine(recorder), list[list[tuple[float, float]]]()
    for at in tests:
        found.append([])
        for luck in range(lucks):
            run = await engine.run(world.task(at), world.pool(at, 10_000 + luck), conductor_of(at), CAPS)
            recorder.forget(run.id)
            paid = steps_paid(run)
            found[-1].append((world.grade(at, run.answer) - paid, paid))
    return [
        (round(sum(one) / lucks, 6), round(sum(other) / lucks, 6))
        for one, other in (zip(*each, strict=True) for each in found)
    ]


def total(world: World, asked: argparse.Namespace, found: Values) -> float:
    """Return the share of the optimum."""
    return round(sum(one for one, _ in found) / sum(map(world.best, range(asked.runs, asked.runs + len(found)))), 3)


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
    curve: dict[str, Values] = field(default_factory=dict)
    workers: list[str] = field(default_factory=list)
    paid: list[float] = field(default_factory=list)

    async def run(self, first: int = 0, *, measures: bool = True) -> None:
        """Perform the runs; measure at the usual places."""
        learner, engine = JournalLearner(self.world.files, self.journal, self.world.terms), Engine(self.journal)
        for at in range(first, first + self.runs):
            run = await engine.run(self.world.task(at), self.world.pool(at, 0), self.conductor_of(at), CAPS)
            shipped = run_evidence(run, self.world.terms.phrases)
            used = [
                unit.answers[unit.used].worker for unit in (shipped.units if shipped else ()) if unit.used is not None
            ]
            self.workers.append(used[-1] if used else "")
            worth = self.world.grade(at, run.answer)
            self.paid.append(steps_paid(run))
            self.values.append(worth - self.paid[-1])
            if hash_fraction("graded", at) < self.graded:
                mark, score = (GradeMark.RIGHT, 1.0) if worth else (GradeMark.WRONG, 0.0)
                self.journal.add(
                    AnswerGraded(run=run.id, at=time.time(), checker="bench", mark=mark, score=score, actor="b")
                )
                await self.journal.flush()
            began = time.process_time()
            if await learner.look():
                self.fits.append(time.process_time() - began)
            if at + 1 in AT and measures:
                tests = range(self.runs, self.runs + TEST)
                found = await values(self.world, tests, lambda one: quiet(self.world, one), self.lucks)
                self.curve[f"learner, {at + 1}"] = found
                best = sum(map(self.world.best, tests))
                log(f"  {at + 1}: {sum(one for one, _ in found) / best:.3f}")


async def windows(world: World, traffic: Traffic, first: int = 0, curve: Path | None = None) -> list[float]:
    """Return for each 50 runs from `first` on how far they were above the planner alone, as a share of the optimum.

    Into `curve` goes a drawing of what both spent.
    """
    recorder, bases, paid = MemoryRecorder(), list[float](), list[float]()
    engine = Engine(recorder)
    for at in range(first, first + len(traffic.values)):
        run = await engine.run(world.task(at), world.pool(at, 0), world.planner(at), CAPS)
        recorder.forget(run.id)
        paid.append(steps_paid(run))
        bases.append(world.grade(at, run.answer) - paid[-1])
    if curve is not None:
        lines = [
            Spending(name, spent, f"{sum(got + one > 0 for got, one in zip(each, spent, strict=True))} right")
            for name, each, spent in (("learning", traffic.values, traffic.paid), ("the planner alone", bases, paid))
        ]
        days = [(at * len(paid) // 7, f"day {at + 1}") for at in range(7)]
        drawn = money_curve("A week of simulated traffic: the planner's plans, learned from and not", lines, days)
        await asyncio.to_thread(curve.write_text, drawn)
    count = len(bases) // 50 * 50
    gap = (np.array(traffic.values) - np.array(bases))[:count].reshape(-1, 50).sum(1)
    best = np.array([world.best(at) for at in range(first, first + count)]).reshape(-1, 50).sum(1)
    return [round(float(one), 3) for one in gap / best]


async def measured(world: MeasuredWorld, traffic: Traffic, seed: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return a seed's line: what the learner, the planner, and the controls come to on the same tasks."""
    tests = range(asked.runs, asked.runs + TEST)
    rows = {"planner": await values(world, tests, world.planner, traffic.lucks)}
    rows["best single in hindsight"] = [(world.single(at), 0.0) for at in tests]
    log(f"{asked.world} {seed}: {[(name, total(world, asked, one)) for name, one in rows.items()]}")
    await traffic.run()
    rows |= traffic.curve | (await tables(world, asked, seed, traffic.lucks) if asked.tables else {})
    gaps = await windows(world, traffic, curve=asked.curve)
    best = [world.best(at) for at in tests]
    named = {"world": asked.world, "seed": seed, "graded": asked.graded, "verdicts": asked.verdicts}
    return {**named, "best": best, "rows": rows, "windows": gaps, "fit": max(traffic.fits)}


async def office(seed: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return what the learner comes to in one office."""
    with tempfile.TemporaryDirectory() as made:
        terms = LearningTerms(WORTH, 0.1, tuple(WORDINGS.values()))
        files = LearningFiles(Path(made) / "learning", terms.phrases, remembered(shipped_encoder().encode))
        world = Office(seed, asked.runs + TEST, files, terms, asked.verdicts)

        def learned(at: int) -> Conductor:
            return LearnedConductor("learned:lm", world.planner(at), files.model, terms)

        async with open_journal(str(Path(made) / "runs.db")) as journal:
            return await measured(world, Traffic(world, journal, asked.runs, asked.graded, 2, learned), seed, asked)


async def endpoints(seed: int, asked: argparse.Namespace) -> dict[str, object]:
    """Return what the learner comes to with endpoints of one's own, or how soon it follows a change."""
    yard = Yard(seed, ["ash", "birch", "cedar", "oak", "pine"])
    with tempfile.TemporaryDirectory() as made:
        async with chat_server(yard.answer) as url, open_journal(str(Path(made) / "runs.db")) as journal:
            async with configured(yard, Path(made), url):
                traffic = Traffic(yard, journal, asked.runs, asked.graded, 1, lambda _: yard.conductor)
                if not asked.change:
                    return await measured(yard, traffic, seed, asked)
                await traffic.run(measures=False)
            did = [Counter[str]() for _ in KINDS]
            for at in range(asked.runs // 2, asked.runs):
                did[yard.kind(at)][traffic.workers[at]] += 1
            kept = {kind: max(found, key=found.__getitem__, default="") for kind, found in enumerate(did)}
            yard.phase, old = asked.change, list(yard.names)
            yard.names = {"fall": old, "new": [*old, "rowan"], "removed": old[1:]}[asked.change]
            async with configured(yard, Path(made), url):
                after = Traffic(yard, journal, 200, asked.graded, 1, lambda _: yard.conductor)
                await after.run(asked.runs, measures=False)
                gaps = await windows(yard, after, asked.runs)
            runs = followed(yard, asked.runs, kept, after.workers)
            return {"seed": seed, "change": asked.change, "runs": runs, "windows": gaps}


@asynccontextmanager
async def configured(yard: Yard, folder: Path, url: str) -> AsyncIterator[None]:
    """Give the yard the conductors and workers of its file, as a server that starts anew would."""
    (folder / "shikisha.toml").write_text(yard.config(url))
    async with aclosing(load_config(folder / "shikisha.toml", {})) as container:
        yard.files, yard.terms, yard.members = container.learning_files(), container.learning_terms(), container.pool()
        yard.conductor = container.conductor("", yard.members, learns=True)
        yard.plain = KnownPlanner(container.conductor())
        yield


def followed(yard: Yard, first: int, kept: Mapping[int, str], workers: Sequence[str]) -> int:
    """Return from which run after a change on 30 runs have half of what there is to gain over the old choices.

    Counted are the tasks of the fallen or removed worker's kinds, by the expected value of who answered. Where the old
    choice is gone, the alternative is a random one of the others. A new worker is used where it does half of the tasks.
    """
    gains = dict[int, float]()
    for at, worker in enumerate(workers):
        kind = yard.kind(first + at)
        if yard.phase == "new":
            gains[at] = (worker == "rowan") - 0.5
        elif kind < 4:
            left = [kept[kind]] if kept[kind] in yard.names else list(yard.names)
            low = float(np.mean([yard.value(name, first + at) for name in left]))
            got = yard.value(worker, first + at) if worker else 0.0
            gains[at] = got - (low + yard.best(first + at)) / 2 if low < yard.best(first + at) else 0.0
    gained = (sum(gains.get(one, 0.0) for one in range(at, at + 30)) for at in range(len(workers) - 30))
    return next((at for at, one in enumerate(gained) if one >= 0), len(workers))


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
        model = fit_outcomes(runs, LearningTerms(phrases=("a", "b")), OPERATOR, encode)
        found[f"fit {count}"] = round(time.process_time() - began, 2)
    cards = tuple(Card(f"w{at}", "", price=Price(call=0.001)) for at in range(3))
    steps = [Step(text, 0, (at - 1,) if at else (), kind=list(KINDS)[at]) for at, text in enumerate(texts[:4])]
    began = time.process_time()
    for _ in range(200):
        table = StepTable(model, Situation(Task("Do it."), cards, left=CAPS), Plan(tuple(steps)))
        table.best(WORTH)
        table.sample(rng)
        table.best(WORTH)
    found["decision, ms"] = round((time.process_time() - began) * 5, 2)
    return found


class Guess:
    """A worker that is right two times in three."""

    async def perform(self, request: Request) -> Reply:
        """Answer."""
        return Reply("right" if hash_fraction(request.subtask) < 0.67 else "wrong", dollars=0.001, model="m")


async def long_journal(runs: int) -> dict[str, float]:
    """Return what it takes to learn from a journal of so many runs of 16 steps: seconds, and MB of memory."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abdegiklmnoprstu"), 6)) for _ in range(400)]
    pool = Pool([Member(Card(f"w{at}", "", "chat", Price(call=0.001)), Guess()) for at in range(4)])
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(f"{folder}/long.db") as journal:
            for at in range(min(runs, 1_000)):
                asked = [" ".join(words[one] for one in rng.integers(len(words), size=8)) for _ in range(16)]
                steps = [Step(text, int(rng.integers(4)), (one - 1,) if one else ()) for one, text in enumerate(asked)]
                caps = Caps(steps=16, plan_steps=16)
                run = await Engine(journal).run(Task(f"Task {at}"), pool, ScriptedConductor([Plan(tuple(steps))]), caps)
                score = float(run.answer == "right")
                mark = GradeMark.RIGHT if score else GradeMark.WRONG
                journal.add(AnswerGraded(run=run.id, at=time.time(), checker="t", mark=mark, score=score, actor="t"))
                await journal.flush()
            await journal.write(partial(_copy_runs, runs=runs))
            events = await journal.count_events()
            files = LearningFiles(Path(folder) / "learning", (), shipped_encoder().encode)
            before, began, cpu = (
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                time.monotonic(),
                time.process_time(),
            )
            learner = JournalLearner(files, journal, LearningTerms())
            (model,) = await learner.look(force=True)
            found = {"rows": events, "runs learned from": model.learning.runs, "seconds": time.monotonic() - began}
            found |= {"seconds of CPU": time.process_time() - cpu, "MB before": before / 1024}
            found |= {"MB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
            began = time.monotonic()
            await learner.look()
            return {name: round(one, 1) for name, one in (found | {"seconds again": time.monotonic() - began}).items()}


def _copy_runs(connection: Connection, runs: int) -> None:
    """Copy the journal's runs until there are so many; hashes are no chain then, which learning does not read."""
    rows = connection.execute(select(EVENTS).order_by(EVENTS.c.seq)).mappings().all()
    names = {row["run"] for row in rows}
    for turn in range(1, runs // len(names)):
        more = [{**row, "seq": row["seq"] + turn * len(rows), "run": f"{row['run']}x{turn}"} for row in rows]
        connection.execute(insert(EVENTS), more)
    connection.execute(update(HEAD).values(count=len(rows) * (runs // len(names))))


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


def compared(files: Sequence[str]) -> str:
    """Return the table of lines that other calls printed: shares, dollars, and how far the learner is above each."""
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line.startswith("{")]
    rng, best = np.random.default_rng(0), [np.array(line["best"]) for line in lines]
    draws = [[rng.integers(len(one), size=len(one)) for one in best] for _ in range(2_000)]
    names = list(dict.fromkeys(name for line in lines for name in line["rows"]))
    rows = {name: [np.array(line["rows"][name]) for line in lines] for name in names}
    shown = ["| row | share of the optimum | by seed | $ a run | learner less this row |", "|---|---|---|---|---|"]
    for name, each in rows.items():
        shares = [float(one[:, 0].sum() / top.sum()) for one, top in zip(each, best, strict=True)]
        count = re.sub(r".*, ", "", name) if ", " in name else "1000"
        mine = rows.get(f"learner, {count}") or rows[[one for one in names if one.startswith("learner")][-1]]
        gaps = [
            np.mean(
                [
                    (a[at, 0] - b[at, 0]).sum() / top[at].sum()
                    for a, b, top, at in zip(mine, each, best, drawn, strict=True)
                ]
            )
            for drawn in draws
        ]
        gap = np.mean([(a[:, 0] - b[:, 0]).sum() / top.sum() for a, b, top in zip(mine, each, best, strict=True)])
        low, high = np.quantile(gaps, [0.025, 0.975])
        against = "" if name.startswith("learner") else f"{gap:+.2f} [{low:+.2f}, {high:+.2f}]"
        dollars = np.mean([one[:, 1].mean() for one in each])
        said = " / ".join(f"{one:.2f}" for one in shares)
        shown.append(f"| {name} | {np.mean(shares):.3f} | {said} | {dollars:.4f} | {against} |")
    gaps = [line["windows"] for line in lines]
    late = [one for each in gaps for one in each[3:]]
    below = sum(one < -0.05 for each in gaps for one in each)
    means = [round(float(np.mean(one)), 2) for one in zip(*gaps, strict=False)]
    shown.append(f"Windows of 50 runs against the planner: lowest {min(map(min, gaps))}, from run 150 on {min(late)}; "
                 f"below -.05: {below} of {sum(map(len, gaps))}; means {means}")  # fmt: skip
    return "\n".join(shown)


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["office", "endpoints", "speed", "long", "table"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seeds", default="901,902,903")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--graded", type=float, default=1.0)
    parser.add_argument("--verdicts", type=float, default=0.0)
    parser.add_argument("--change", choices=["fall", "new", "removed"])
    parser.add_argument("--curve", type=Path, metavar="SVG", help="draw the dollars of the runs as a week's")
    parser.add_argument("--no-tables", dest="tables", action="store_false")
    asked = parser.parse_args()
    if asked.world == "table":
        print(compared(asked.files))
    elif asked.world == "speed":
        print(json.dumps(speed()))
    elif asked.world == "long":
        print(json.dumps(asyncio.run(long_journal(asked.runs))))
    else:
        play = office if asked.world == "office" else endpoints
        for seed in asked.seeds.split(","):
            print(json.dumps(asyncio.run(play(int(seed), asked))), flush=True)


if __name__ == "__main__":
    main()
