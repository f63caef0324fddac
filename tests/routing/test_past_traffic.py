"""A policy that did not act, asked again on past runs: what it would have done, and what is known of that."""

from pathlib import Path

import pytest
from shelves import ME, asking, shelf_of

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.learned_policy import policy_conductor, registry_conductor
from shikisha.core.call import Card
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.recorder import MemoryRecorder
from shikisha.routing.fit.online_evaluation import PastTraffic, replay_traffic
from shikisha.routing.policy_file import save_policy
from shikisha.routing.policy_registry import update_registry
from support import engine, pool_of

POOL = pool_of(ann="A", bob="B", cyd="C")


async def performed(number: int, conductor: Conductor, judged: bool = False) -> Run:
    """A run whose answer is right where ann gave it."""
    recorder = MemoryRecorder()
    run = await engine(recorder).run(Task(f"Question {number}?"), POOL, conductor)
    score = float(run.answer == "A")
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    grade = AnswerGraded(run=run.id, at=9.0, checker="text", mark=mark, score=score, judged=judged)
    return Run.fold([*await recorder.read(run.id), grade])


async def asked_again(folder: Path, runs: list[Run], *workers: str) -> PastTraffic:
    file = folder / "-".join(workers)
    save_policy(asking(*workers), file)
    return await replay(runs, policy_conductor(str(file)))


async def replay(runs: list[Run], conductor: Conductor) -> PastTraffic:
    def setting(run: Run) -> tuple[Conductor, tuple[Card, ...]]:
        return conductor, tuple(card for card in POOL.cards if card.name in run.started.pool)

    return await replay_traffic(runs, setting, "other")


async def test_where_chance_drew_between_both_the_outcome_is_weighed_and_elsewhere_it_is_not_known(
    tmp_path: Path,
) -> None:
    _, canary = shelf_of(tmp_path / "shelf", asking("ann"), asking("bob"))
    update_registry(tmp_path / "shelf", lambda shelf: shelf.with_canary(canary, 0.5, ME))
    shelf = registry_conductor(str(tmp_path / "shelf"))
    runs = [await performed(number, shelf) for number in range(60)]
    by_ann = sum(run.answer == "A" for run in runs)
    found = await asked_again(tmp_path, runs, "ann")
    assert found.decided.same is not None
    assert found.decided.same.mean == pytest.approx(by_ann / 60)
    assert [(each.worker, each.tasks, each.known) for each in found.choices] == [("ann", 60, by_ann)]
    assert found.right is not None
    assert found.right.mean == pytest.approx(by_ann / 60 / 0.5)
    assert found.acted is not None
    assert found.acted.mean == pytest.approx(by_ann / 60)
    assert found.decided.high == pytest.approx(1 - by_ann / 60, abs=0.2)
    other = await asked_again(tmp_path, runs, "cyd")  # whom nothing ever asked
    assert other.reach is not None
    assert (other.reach.mean, other.right, other.dollars) == (0.0, None, None)
    assert (other.choices[0].worker, other.choices[0].known) == ("cyd", 0)
    assert other.decided.low < 0 < other.decided.high


async def test_all_rounds_must_be_the_same_and_which_answer_ships(tmp_path: Path) -> None:
    both = tmp_path / "both"
    save_policy(asking("ann", "bob"), both)
    runs = [await performed(1, policy_conductor(str(both)))]
    for workers, same in ((("ann", "bob"), 1.0), (("ann",), 0.0), (("ann", "cyd"), 0.0), (("ann", "bob", "cyd"), 0.0)):
        found = await asked_again(tmp_path, runs, *workers)
        assert found.decided.same is not None
        assert (found.decided.same.mean, found.choices[0].worker) == (same, "ann"), workers


async def test_a_single_call_and_a_policy_that_asks_the_same_worker_are_the_same(tmp_path: Path) -> None:
    single = fixed_conductor("single?worker=bob")
    runs = [await performed(1, single)]
    found = await asked_again(tmp_path, runs, "bob")
    assert found.decided.same is not None
    assert (found.decided.same.mean, found.reach) == (1.0, None)  # a person chose that conductor, by no known chance
    back = await replay([await performed(2, policy_conductor(str(tmp_path / "bob")))], single)
    assert back.decided.same is not None
    assert back.decided.same.mean == 1.0


async def test_a_models_grades_do_not_count_and_what_makes_no_plan_is_named(tmp_path: Path) -> None:
    runs = [await performed(1, fixed_conductor("single?worker=ann"), judged=True)]
    found = await asked_again(tmp_path, runs, "ann")
    assert (found.acted, found.decided.known, found.decided.low, found.decided.high) == (None, None, -1.0, 1.0)
    refused = await replay(runs, fixed_conductor("single?worker=nobody"))
    assert (sum(refused.refused.values()), refused.decided.runs) == (1, 0)
