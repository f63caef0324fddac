"""The search for advice: what it spends, when it ends, what it accepts, and what it does with a bad reflector."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from shikisha.config.prompt_tuner import JournaledTuner, items_from_runs
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card
from shikisha.evals.taskset import TaskItem
from shikisha.journal import open_journal
from shikisha.learned.prompt_search import PromptSearch, Reflection, SearchResult, TunedRun, read_edit
from shikisha.simulation.office.learning_week import planned_by_simulation
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_planner import SimulatedReflector

pytest.importorskip("gepa")
COST = 0.001


class World:
    """Tasks that are right more often with the good word in the advice; counts what it charges."""

    def __init__(self, good: float = 0.9, bad: float = 0.2, seed: int = 0, cost: float = COST) -> None:
        self.good, self.bad, self.seed, self.cost = good, bad, seed, cost
        self.charged, self.calls = 0.0, 0

    def perform(self, advice: str, place: int, left: float) -> TunedRun:
        assert left > 0
        self.calls += 1
        chance = self.good if "GOOD" in advice else self.bad
        right = random.Random(f"{self.seed} {place} {advice}").random() < chance
        self.charged += min(self.cost, left)
        return TunedRun(float(right), min(self.cost, left), f"run-{self.calls}", "| it went so")

    def reflect(self, prompt: str, number: int, left: float) -> Reflection:
        del prompt, left
        self.charged += COST
        return Reflection(json.dumps({"advice": f"{'GOOD' if number == 2 else 'idle'} {number}"}), COST)


def search(world: World, tasks: int = 80, dollars: float = 1.0, seed: int = 0) -> tuple[PromptSearch, SearchResult]:
    made = PromptSearch(tasks, world.perform, world.reflect, dollars, seed=seed)
    return made, made.run("", world.cost, COST)


def test_good_advice_is_found_and_accepted_on_tasks_that_the_search_has_not_seen() -> None:
    world = World()
    made, found = search(world)
    assert found.accepted
    assert "GOOD" in found.advice
    assert found.gain is not None
    assert found.gain.low > 0
    assert not set(made.gate) & set(made.search_tasks)
    assert len(found.evidence) == found.runs


def test_what_is_spent_is_counted_to_the_cent_and_never_above_the_cap() -> None:
    for dollars in (0.16, 0.2, 0.35):
        world = World()
        _, found = search(world, dollars=dollars)
        assert found.spent == pytest.approx(world.charged)
        assert found.spent <= dollars + 1e-12


def test_a_cap_that_cannot_pay_for_one_comparison_is_refused_with_its_price() -> None:
    world = World()
    with pytest.raises(ConfigError, match=r"one honest comparison costs about \$0\.1.* nothing was spent"):
        search(world, dollars=0.05)
    assert world.charged == 0
    with pytest.raises(ConfigError, match="expected at least"):
        search(world, tasks=10)


def test_runs_that_cost_more_than_thought_end_the_search_without_harm() -> None:
    world = World()
    made = PromptSearch(80, World(cost=0.01).perform, world.reflect, 0.3)
    found = made.run("", 0.001, COST)
    assert found.spent <= 0.3 + 1e-12
    assert not found.accepted


def test_advice_that_brings_nothing_is_not_accepted() -> None:
    shipped = [search(World(0.4, 0.4, seed), tasks=60, seed=seed)[1].accepted for seed in range(20)]
    assert sum(shipped) <= 2


def test_a_reflector_without_json_or_with_the_same_edit_ends_the_search() -> None:
    for text in ("Try harder.", '{"advice": 3}', '{"advice": ""}', "{" * 10_000, json.dumps({"advice": "x" * 9_000})):
        world = World()
        made = PromptSearch(60, world.perform, lambda *_, said=text: Reflection(said, COST), 1.0)
        found = made.run("", COST, COST)
        assert not found.accepted
        assert made.questions <= 16


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('Sure: {"advice": "do this"}', ""),
        ('{"advice": "old"}', "there before"),
        ('{"advice": "seen"}', "there before"),
        ("no", "expected one JSON object"),
        ('{"other": 1}', "expected one JSON object"),
        (json.dumps({"advice": "x" * 4_001}), "4,001 characters"),
    ],
)
def test_edits_are_read_strictly(text: str, problem: str) -> None:
    said, found = read_edit(text, "old", {"seen"})
    assert problem in found if problem else said == "do this"


async def tuned(
    folder: Path, traffic: RecurringTraffic, dollars: float
) -> tuple[SearchResult, SimulatedReflector, int]:
    """Tune the simulated planner on a journal."""
    items = traffic.tasks(0, 40)
    calls = 0

    class Grades:
        name = "office"

        def __init__(self, at: int) -> None:
            self.at = at

        async def grade(self, answer: str) -> object:
            from shikisha.evals.graders import grade_from_score

            return grade_from_score("office", float(items[self.at].grade(answer)), answer, "")

    reflector = SimulatedReflector(1)
    async with open_journal(f"sqlite:///{folder / 'runs.db'}") as journal:

        class Counts(Engine):
            async def run(self, *arguments: object, **options: object) -> Run:
                nonlocal calls
                calls += 1
                return await super().run(*arguments, **options)  # type: ignore[arg-type]

        rows = [TaskItem(item.task, Grades(at)) for at, item in enumerate(items)]  # type: ignore[arg-type]
        pools = [item.pool for item in items]
        card = Card("reflector", "simulated", "simulated", max_output_tokens=500)
        members = Pool([Member(card, reflector)])
        caps = Caps(steps=20, rounds=3, dollars=0.1)

        def tuner(at: int) -> JournaledTuner:
            planner = planned_by_simulation(items[at])
            return JournaledTuner(
                "t", Counts(journal), journal, pools[0], planner, rows, members, caps, OPERATOR, pools
            )

        loop = asyncio.get_running_loop()
        made = PromptSearch(
            len(items),
            lambda said, at, left: asyncio.run_coroutine_threadsafe(tuner(at).perform(said, at, left), loop).result(),
            lambda text, at, left: asyncio.run_coroutine_threadsafe(tuner(0).reflect(text, at, left), loop).result(),
            dollars,
        )
        found = await asyncio.to_thread(made.run, "", 0.006, 0.002)
        assert items_from_runs([Run.fold(await journal.read(one.id)) for one in await journal.runs(limit=5)]) == []
    return found, reflector, calls


async def test_a_search_that_is_repeated_pays_for_nothing_twice(tmp_path: Path) -> None:
    traffic = RecurringTraffic(1)
    first, reflector, calls = await tuned(tmp_path, traffic, 0.8)
    assert first.runs > 50
    assert calls == first.runs + reflector.calls
    again, reflector, calls = await tuned(tmp_path, traffic, 0.8)
    assert (again.advice, again.runs) == (first.advice, first.runs)
    assert again.spent == pytest.approx(first.spent)
    assert (reflector.calls, calls) == (0, 0)
    assert first.spent <= 0.8
