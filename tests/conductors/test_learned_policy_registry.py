"""Acting by a shelf: who acts, who decides beside, by which chance, and what a changing shelf does to runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from shelves import ME, asking, shelf_of

from shikisha.conductors.learned_policy import PolicyConductor, RegistryConductor, registry_conductor
from shikisha.config.conductors import ConductorFactory, PlannerEndpoint
from shikisha.core.budget import Caps, Price
from shikisha.core.errors import ConfigError, FaultKind, PlanError
from shikisha.core.events import Event, PlanProposed, RunStatus
from shikisha.core.plan import Plan
from shikisha.core.run import Result, RoundResult, Run
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.routing.policy_file import save_policy
from shikisha.routing.policy_registry import REGISTRY_FILE, PolicyRegistry, policy_path, read_registry, update_registry
from support import engine, member, pool_of


def pool() -> Pool:
    return pool_of(ann="A", bob="B", cyd="C")


def task_of(shelf: PolicyRegistry, version: str) -> Task:
    """A task for which this version is drawn."""
    tasks = (Task(f"Question {number}?") for number in range(1000))
    return next(task for task in tasks if shelf.assign(task.content_hash) == version)


async def performed(folder: Path, task: Task, query: str = "") -> tuple[Run, tuple[Event, ...]]:
    recorder = MemoryRecorder()
    run = await engine(recorder).run(task, pool(), registry_conductor(f"{folder}{query}"))
    return run, await recorder.read(run.id)


def proposed(run: Run) -> list[PlanProposed]:
    return [turn.proposed for turn in run.rounds if turn.proposed is not None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shelf"


async def test_the_live_policy_acts_and_shadows_decide_beside_it(folder: Path) -> None:
    live, shadow = shelf_of(folder, asking("ann", "bob"), asking("ann", "cyd"))
    update_registry(folder, lambda shelf: shelf.with_shadow(shadow, ME))
    run, _ = await performed(folder, Task("What is it?"))
    assert (run.status, run.answer, run.started.conductor) == (RunStatus.DONE, "B", f"policy:{folder}")
    assert [(made.version, made.propensity) for made in proposed(run)] == [(live, None)] * 3
    assert [made.beside for made in proposed(run)] == [
        {shadow: "asks 'ann'"},
        {shadow: "asks 'cyd'"},
        {shadow: "asks 'cyd'"},
    ]
    assert proposed(run)[0].note.startswith("live: cascade at setting 0")


async def test_shadows_call_nothing(folder: Path) -> None:
    _, shadow = shelf_of(folder, asking("ann"), asking("bob", "cyd"))
    update_registry(folder, lambda shelf: shelf.with_shadow(shadow, ME))
    run, _ = await performed(folder, Task("What is it?"))
    assert [attempt.started.worker for attempt in run.attempts] == ["ann"]


@pytest.mark.parametrize(("role", "answer", "chance"), [("canary", "B", 0.3), ("live", "A", 0.7)])
async def test_a_canary_acts_for_its_share_and_the_chance_of_it_is_written_down(
    folder: Path, role: str, answer: str, chance: float
) -> None:
    live, canary = shelf_of(folder, asking("ann"), asking("bob"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.3, ME))
    acts, other = (canary, live) if role == "canary" else (live, canary)
    run, _ = await performed(folder, task_of(shelf, acts))
    first, last = proposed(run)
    assert (run.answer, first.version, last.version, last.note.partition(":")[0]) == (answer, acts, acts, role)
    assert first.propensity == pytest.approx(chance)
    assert last.propensity is None
    assert first.beside == {other: "asks 'ann'" if role == "canary" else "asks 'bob'"}


async def test_where_live_and_canary_would_do_the_same_nothing_is_left_to_chance(folder: Path) -> None:
    live, canary = shelf_of(folder, asking("ann", "bob"), asking("ann", "cyd"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.25, ME))
    for version, chance in ((live, 0.75), (canary, 0.25)):
        run, _ = await performed(folder, task_of(shelf, version))
        assert [made.propensity for made in proposed(run)] == [None, chance, None]


async def test_one_ships_where_the_other_asks_on(folder: Path) -> None:
    live, canary = shelf_of(folder, asking("ann"), asking("ann", "cyd"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.25, ME))
    run, _ = await performed(folder, task_of(shelf, live))
    assert [(made.propensity, made.beside[canary]) for made in proposed(run)] == [
        (None, "asks 'ann'"),
        (0.75, "asks 'cyd'"),
    ]


async def test_a_run_keeps_to_the_version_that_began_it_while_the_shelf_changes(folder: Path) -> None:
    live, canary = shelf_of(folder, asking("ann", "bob"), asking("cyd", "bob", "ann"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.5, ME))
    task = task_of(shelf, canary)
    whole, events = await performed(folder, task)
    update_registry(folder, lambda shelf: shelf.without_canary(ME))
    assert (await performed(folder, task))[0].answer == "B"  # a new run gets the live policy
    for cut in range(1, len(events)):
        recorder = MemoryRecorder()
        for event in events[:cut]:
            recorder.add(event)
        run = await engine(recorder).resume(whole.id, pool(), registry_conductor(str(folder)))
        began = canary if any(event.kind == "plan.proposed" for event in events[:cut]) else live
        assert {made.version for made in proposed(run)} == {began}
        assert (run.status, run.answer) == (RunStatus.DONE, "A" if began == canary else "B")
    assert proposed(run)[-1].version == canary


async def test_a_run_that_was_begun_before_a_promotion_says_in_which_role_it_goes_on(folder: Path) -> None:
    live, other = shelf_of(folder, asking("ann", "bob"), asking("cyd"))
    conductor = registry_conductor(str(folder))
    first = await conductor.propose(situation())
    update_registry(folder, lambda shelf: shelf.with_live(other, ME))
    later = await conductor.propose(situation(first.plan, version=live))
    assert (later.version, later.propensity, later.beside) == (live, None, {other: "asks 'cyd'"})
    assert later.note.startswith("began this run: cascade")


def situation(*plans: Plan, version: str = "") -> Situation:
    """A situation in which these plans were performed."""
    rounds = tuple(RoundResult(plan, (Result("ann", "A"),), version) for plan in plans)
    return Situation(Task("What is it?"), pool().cards, rounds)


async def test_where_the_version_that_began_a_run_is_gone_the_live_one_goes_on_and_says_so(folder: Path) -> None:
    shelf_of(folder, asking("ann", "bob"))
    conductor = registry_conductor(str(folder))
    first = await conductor.propose(situation())
    later = await conductor.propose(situation(first.plan, version="0" * 12))
    assert later.version == read_registry(folder).live
    assert later.note.startswith("live, as 000000000000, which began this run, cannot act any more: ")


async def test_a_promotion_holds_from_the_next_run_on_without_a_new_conductor(folder: Path) -> None:
    _, other = shelf_of(folder, asking("ann"), asking("bob"))
    conductor, answers = registry_conductor(str(folder)), []
    for step in (lambda shelf: shelf, lambda shelf: shelf.with_live(other, ME), lambda shelf: shelf.with_rollback(ME)):
        update_registry(folder, step)
        run = await engine().run(Task("What is it?"), pool(), conductor)
        answers.append(run.answer)
    assert answers == ["A", "B", "A"]


@pytest.mark.parametrize("harm", ["gone", "other", "broken", "option"])
async def test_what_is_wrong_with_a_canary_or_a_shadow_is_told_beside_and_hurts_no_run(folder: Path, harm: str) -> None:
    live, canary, shadow = shelf_of(folder, asking("ann"), asking("bob", cost=9), asking("cyd", cost=9))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.5, ME).with_shadow(shadow, ME))
    for version in (canary, shadow):
        damage(policy_path(folder, version), harm)
    run, _ = await performed(folder, task_of(shelf, canary), "?max_cost=5" if harm == "option" else "")
    first = proposed(run)[0]
    assert (run.answer, first.version, first.propensity) == ("A", live, None)
    assert {words.partition(":")[0] for words in first.beside.values()} == {"cannot act"}
    assert set(first.beside) == {canary, shadow}


def moved(folder: Path) -> Path:
    """The shelf where no policy has been read from yet."""
    return folder.rename(folder.parent / "elsewhere")


def damage(path: Path, harm: str) -> None:
    """Take the policy away, put another in its place, or spoil it."""
    match harm:
        case "gone":
            path.unlink()
        case "other":
            save_policy(asking("bob", "cyd"), path)
        case "broken":
            path.write_bytes(path.read_bytes()[:-100])


async def test_a_live_policy_that_is_damaged_makes_no_plan(folder: Path) -> None:
    (live,) = shelf_of(folder, asking("ann"))
    conductor = RegistryConductor("policy:made", folder)
    policy_path(folder, live).write_bytes(b"no policy")
    run = await engine().run(Task("What is it?"), pool(), conductor)
    assert run.status is RunStatus.FAILED
    assert run.finished is not None
    assert run.finished.fault is FaultKind.NO_PLAN
    assert "not a policy file" in run.finished.why
    with pytest.raises(ConfigError, match="not a policy file"):
        registry_conductor(str(folder))


async def test_a_pool_that_none_of_its_workers_is_in_is_told(folder: Path) -> None:
    shelf_of(folder, asking("ann"))
    with pytest.raises(PlanError, match="none of the workers that the policy knows"):
        await registry_conductor(str(folder)).propose(replace(situation(), cards=()))


async def test_a_run_goes_on_by_the_version_that_began_it_with_options_that_the_live_one_cannot_meet(
    folder: Path,
) -> None:
    cheap, dear = shelf_of(folder, asking("ann", "bob", cost=0.1), asking("cyd", cost=9))
    first = await registry_conductor(f"{folder}?max_cost=1").propose(situation())
    update_registry(folder, lambda shelf: shelf.with_live(dear, ME))
    conductor = registry_conductor(f"{folder}?max_cost=1")
    assert (await conductor.propose(situation(first.plan, version=cheap))).version == cheap
    with pytest.raises(PlanError, match="below the cheapest"):
        await conductor.propose(situation())


async def test_where_the_policy_that_began_a_run_is_damaged_the_live_one_goes_on(folder: Path) -> None:
    live, canary = shelf_of(folder, asking("ann", "bob"), asking("cyd", "bob"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.5, ME))
    task = task_of(shelf, canary)
    _, events = await performed(folder, task)
    recorder, cut = MemoryRecorder(), next(i for i, event in enumerate(events) if event.kind == "plan.proposed")
    for event in events[: cut + 1]:
        recorder.add(event)
    save_policy(asking("ann", note="in its place"), policy_path(folder, canary))
    conductor = registry_conductor(str(moved(folder)), f"policy:{folder}")
    run = await engine(recorder).resume(events[0].run, pool(), conductor)
    assert [made.version for made in proposed(run)] == [canary, live, live, live]
    assert proposed(run)[1].note.startswith(f"live, as {canary}, which began this run, cannot act any more: ")


@pytest.mark.parametrize(("query", "why"), [("?max_cost=10%", "below the cheapest"), ("?speed=1", "unknown option")])
def test_an_option_that_the_live_policy_cannot_meet_is_refused_at_once(folder: Path, query: str, why: str) -> None:
    shelf_of(folder, asking("ann"))
    with pytest.raises(ConfigError, match=why):
        registry_conductor(f"{folder}{query}")


def test_a_folder_names_a_shelf_and_a_file_a_policy(folder: Path, tmp_path: Path) -> None:
    def endpoint(name: str) -> PlannerEndpoint:
        raise ConfigError(name)

    shelf_of(folder, asking("ann"))
    known = ConductorFactory({}, "shikisha.toml", tmp_path, endpoint)
    assert isinstance(known.make(f"policy:{folder}"), RegistryConductor)
    assert isinstance(known.make(f"policy:{tmp_path}/policy-0?quality=1"), PolicyConductor)
    (folder / REGISTRY_FILE).unlink()
    with pytest.raises(ConfigError, match="no policy registry"):
        known.make(f"policy:{folder}")


async def test_the_caps_of_a_run_end_it_whoever_acts(folder: Path) -> None:
    live, canary = shelf_of(folder, asking("ann", "bob"), asking("ann", "cyd", "bob"))
    shelf = update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.25, ME))
    run = await engine().run(task_of(shelf, canary), pool(), registry_conductor(str(folder)), Caps(rounds=3))
    assert (run.status, run.answer) == (RunStatus.DONE, "C")
    assert [made.propensity for made in proposed(run)] == [None, 0.25, None]
    assert live in run.rounds[0].proposed.beside  # type: ignore[union-attr]  # there is a plan


async def test_the_chance_of_a_plan_takes_in_that_policies_explore(folder: Path) -> None:
    """Both would explore dan on the same tasks; elsewhere each asks its own."""
    live, canary = shelf_of(folder, asking("ann"), asking("bob"))
    update_registry(folder, lambda shelf: shelf.with_canary(canary, 0.3, ME))
    new = member("dan", "D", price=Price(1.0, 1.0), max_output_tokens=100)
    answers, chances = {}, {}
    for number in range(60):
        task = Task(f"Question {number}?")
        run = await engine().run(task, Pool([*pool(), new]), registry_conductor(f"{folder}?explore=10%"))
        first, who = proposed(run)[0], run.attempts[0].started.worker
        by = f"{who} by {'live' if first.version == live else 'canary'}"
        answers[by], chances[by] = run.answer, first.propensity or 1.0
    explored = 0.25  # the most that any task is explored with
    assert answers == {"ann by live": "A", "bob by canary": "B", "dan by live": "A", "dan by canary": "B"}
    assert chances == pytest.approx(
        {
            "ann by live": 0.7 * (1 - explored),
            "bob by canary": 0.3 * (1 - explored),
            "dan by live": explored,
            "dan by canary": explored,
        }
    )
