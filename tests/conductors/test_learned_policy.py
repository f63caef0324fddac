"""A policy conducts in the engine as it was measured offline: the same workers asked, the same answer and bill."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import POOL, Made, panel, replay_mix
from paths import ROOT
from policies import write

from recorded_pools import MP13
from shikisha.conductors.learned_policy import PolicyConductor, policy_conductor
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.plan import ANSWER, ANSWER_ALONE
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.text import with_confidence
from shikisha.core.visibility import request_messages, view_hash
from shikisha.engine.conductor import Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, Reply, Request
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer, LoggedTask
from shikisha.routing.fit.log_replay import ReplayResult
from shikisha.routing.fit.model_selection import POLICY, TABLE, LearningOptions, fit_candidates, select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import Candidate, Policy, PolicyOrigin
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.trade_off import OperatingTarget, TargetMetric
from shikisha.workers.replay import ReplayContent, ReplayWorker, replay_card
from support import pool_of

RECORDED = ROOT.parent / "shared" / "recorded"
TASKS = 150
MADE = panel({**POOL, "other": Made(0.7, 0.1, silent=0.1)}, tasks=TASKS, alike=0.2)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> OutcomeLog:
    folder = tmp_path_factory.mktemp("log")
    write(MADE, folder)
    return OutcomeLog.read(folder)


@pytest.fixture(scope="module")
def file(log: OutcomeLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "our.policy"
    save_policy(fitted(build_outcome_matrix(log)), path)
    return path


def fitted(held: OutcomeMatrix) -> Policy:
    """A policy of all rungs, whatever can be defended."""
    made, known = (
        fit_candidates(held, LearningOptions(), (TABLE, POLICY)),
        select_policy(held.at(np.arange(20))).policy.workers,
    )
    rungs = tuple(Candidate(name, dial) for name, dial in made.dials.items())
    return Policy(PolicyOrigin("log", "hash", len(held)), known, held.types, made.parts, rungs, POLICY)


async def performed(
    conductor: PolicyConductor, log: OutcomeLog, ids: tuple[str, ...], says: ReplayContent = "answer"
) -> list[Run]:
    """The runs of these tasks, replayed."""
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name, says)) for name in log.workers])
    engine = Engine(MemoryRecorder())
    return [await engine.run(log.task(task_id), pool, conductor) for task_id in ids]


def differing(runs: list[Run], played: ReplayResult, log: OutcomeLog, names: tuple[str, ...]) -> list[str]:
    """The tasks on which runs and what was played offline are not the same in every respect."""
    found = []
    for row, run in enumerate(runs):
        asked = {step.finished.worker for turn in run.rounds for step in turn.steps.values() if step.finished}
        score = 0.0 if run.answer is None else (log.recorded_score(run.task.id, run.answer) or 0.0)
        same = asked == {name for name, was in zip(names, played.asked[row], strict=True) if was}
        paid = run.charged.dollars
        if not same or score != played.won[row] or paid != pytest.approx(played.paid[row], abs=1e-9):
            found.append(run.task.id)
    return found


@pytest.mark.parametrize("rung", [TABLE, POLICY])
@pytest.mark.parametrize("cost", [0.2, 0.7])
async def test_what_is_performed_is_what_was_measured(rung: str, cost: float, log: OutcomeLog, file: Path) -> None:
    conductor = policy_conductor(f"{file}?max_cost={cost}&rung={rung}")
    policy, _ = load_policy(file)
    played = replay_mix(
        policy.parts,
        policy.mix(OperatingTarget(TargetMetric.COST, cost), rung),
        build_outcome_matrix(log, types=policy.types),
    )
    assert not differing(await performed(conductor, log, log.task_ids), played, log, log.workers)


@pytest.mark.recorded
@pytest.mark.slow
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded answers in {RECORDED}")
async def test_recorded_tasks_that_were_held_back_are_performed_as_measured(tmp_path: Path) -> None:
    log = OutcomeLog.read(RECORDED / "mmlu-pro", MP13[:5])
    whole = build_outcome_matrix(log, MP13[:5], whole=True)
    held = np.arange(len(whole)) % 5 == 0
    save_policy(fitted(whole.at(np.flatnonzero(~held))), tmp_path / "our.policy")
    policy, _ = load_policy(tmp_path / "our.policy")
    rest = whole.at(np.flatnonzero(held))
    played = replay_mix(policy.parts, policy.mix(OperatingTarget(TargetMetric.COST, 0.2)), rest)
    conductor = policy_conductor(f"{tmp_path / 'our.policy'}?max_cost=20%")
    assert not differing(await performed(conductor, log, rest.ids, "both"), played, log, MP13[:5])


async def test_every_act_is_journaled_with_the_policy_that_decided_it(log: OutcomeLog, file: Path) -> None:
    conductor = policy_conductor(str(file))
    (run,) = await performed(conductor, log, log.task_ids[:1])
    proposed = [turn.proposed for turn in run.rounds if turn.proposed is not None]
    assert {each.version for each in proposed} == {load_policy(file)[1]}
    assert "asks" in proposed[0].note
    assert "ships the answer of" in proposed[-1].note


@pytest.mark.parametrize("gone", ["dear", "cheap"])
async def test_a_worker_that_is_gone_is_not_asked_and_the_task_is_answered(
    gone: str, log: OutcomeLog, file: Path
) -> None:
    names = [name for name in log.workers if name != gone]
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in names])
    engine = Engine(MemoryRecorder())
    runs = [await engine.run(log.task(one), pool, policy_conductor(str(file))) for one in log.task_ids[:40]]
    assert sum(run.answer is not None for run in runs) > 35


async def test_without_any_worker_that_it_knows_there_is_no_plan(file: Path) -> None:
    run = await Engine(MemoryRecorder()).run(Task("What?"), pool_of(stranger="x"), policy_conductor(str(file)))
    assert run.finished is not None
    assert "none of the workers that the policy knows" in run.finished.why


async def test_in_the_last_round_that_is_left_it_ships_what_it_has(log: OutcomeLog, file: Path) -> None:
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in log.workers])
    engine, conductor = Engine(MemoryRecorder()), policy_conductor(str(file))
    runs = [await engine.run(log.task(one), pool, conductor, Caps(rounds=2)) for one in log.task_ids[:40]]
    assert all(len(run.rounds) <= 2 for run in runs)
    assert sum(run.answer is not None for run in runs) > 35


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("nothing=1", ConfigError, "unknown option 'nothing'"),
        ("max_cost=much", ConfigError, "expected a number from 0"),
        ("rung=top", UnknownName, "rung"),
        ("quality=9", ConfigError, "was not reached"),
    ],
)
def test_a_dial_that_cannot_be_turned_so_is_refused(query: str, error: type[Exception], says: str, file: Path) -> None:
    with pytest.raises(error, match=says):
        policy_conductor(f"{file}?{query}")


async def test_an_unknown_domain_is_conducted_too(file: Path) -> None:
    conductor = policy_conductor(str(file))
    cards = tuple(Card(name) for name in MADE.workers)
    proposal = await conductor.propose(Situation(Task("What?", domain="never heard of"), cards, left=Caps()))
    assert len(proposal.plan) == 1


def test_a_policy_of_other_workers_keeps_their_order(file: Path) -> None:
    policy, _ = load_policy(file)
    assert policy.may_ask(("dear",)).tolist() == [name == "dear" for name in policy.names]
    assert replace(policy, kept=TABLE).rung().name == TABLE


class Busy:
    """Replays with a wait, and counts its calls in flight."""

    def __init__(self, log: OutcomeLog, name: str) -> None:
        self.inner, self.inside, self.most = ReplayWorker(log, name), 0, 0

    async def perform(self, request: Request) -> Reply:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(0.002)
            return await self.inner.perform(request)
        finally:
            self.inside -= 1


@pytest.mark.parametrize("rung", [TABLE, POLICY])
async def test_balance_passes_over_full_workers_in_every_rung(rung: str, log: OutcomeLog, file: Path) -> None:
    async def crowd(query: str) -> tuple[list[Run], dict[str, Busy]]:
        workers = {name: Busy(log, name) for name in log.workers}
        pool = Pool([Member(replace(replay_card(log, name), concurrency=2), each) for name, each in workers.items()])
        conductor, one = policy_conductor(f"{file}?rung={rung}{query}"), Engine(MemoryRecorder())
        ids = log.task_ids[:30]
        return list(await asyncio.gather(*(one.run(log.task(task), pool, conductor) for task in ids))), workers

    balanced, workers = await crowd("&balance=0.02")
    assert all(each.most <= 2 for each in workers.values())
    assert any("at capacity: " in turn.proposed.note for run in balanced for turn in run.rounds if turn.proposed)
    waiting, _ = await crowd("")
    assert not any("at capacity" in turn.proposed.note for run in waiting for turn in run.rounds if turn.proposed)

    def asked(runs: list[Run]) -> set[str]:
        return {
            run.started.pool[step.worker]
            for run in runs
            for turn in run.rounds
            if turn.plan
            for step in turn.plan.steps
        }

    assert asked(balanced) > asked(waiting) or asked(waiting) == set(log.workers)


async def test_balance_changes_nothing_where_there_is_room(log: OutcomeLog, file: Path) -> None:
    ids = log.task_ids[:10]
    free, balanced = policy_conductor(str(file)), policy_conductor(f"{file}?balance=0")
    assert [run.answer for run in await performed(free, log, ids)] == [
        run.answer for run in await performed(balanced, log, ids)
    ]


@pytest.mark.parametrize("query", ["balance=-1", "balance=much", "balance=nan", "balance=0.1&explore=5%"])
def test_a_balance_that_means_nothing_is_refused(query: str, file: Path) -> None:
    with pytest.raises(ConfigError, match="balance"):
        policy_conductor(f"{file}?{query}")


async def test_a_worker_s_own_confidence_is_journaled_and_an_absurd_one_is_not(log: OutcomeLog, file: Path) -> None:
    class Sure:
        def __init__(self, sure: object) -> None:
            self.sure = sure

        async def perform(self, _: Request) -> Reply:
            return Reply("(A)", dollars=0.0, confidence=self.sure)  # type: ignore[arg-type]

    def pool(sure: object) -> Pool:
        return Pool([Member(replace(replay_card(log, name), concurrency=None), Sure(sure)) for name in log.workers])

    engine, conductor = Engine(MemoryRecorder()), policy_conductor(f"{file}?rung={POLICY}")
    run = await engine.run(log.task(log.task_ids[0]), pool(0.87), conductor)
    given = run.rounds[0].results[0]
    assert given is not None
    assert given.confidence == 0.87
    assert with_confidence("(A)", 0.87) == "(A)\n90 % sure"
    for absurd in (7.0, float("nan"), "very", -1.0):
        run = await engine.run(log.task(log.task_ids[0]), pool(absurd), conductor)
        given = run.rounds[0].results[0]
        assert given is not None
        assert given.confidence is None


@pytest.mark.parametrize("wording", ["", ANSWER_ALONE])
async def test_a_policy_sends_the_words_that_it_was_learned_from(wording: str, log: OutcomeLog, file: Path) -> None:
    policy, _ = load_policy(file)
    path = file.with_name("worded.policy")
    save_policy(replace(policy, about=replace(policy.about, wording=wording)), path)
    run = (await performed(policy_conductor(str(path)), log, log.task_ids[:1]))[0]
    plan = run.rounds[0].plan
    assert plan is not None
    assert plan.steps[0].subtask == (wording or ANSWER)
    shown = request_messages(Request(run.task, plan.steps[0].subtask))
    assert run.rounds[0].steps[0].attempts[0].started.view == view_hash(shown)
    assert (shown[0].text == run.task.prompt) is not bool(wording)


def test_a_policy_is_learned_from_the_words_of_most_outcomes(log: OutcomeLog, tmp_path: Path) -> None:
    answers = [(task, log.find(task, name)) for task in log.task_ids for name in log.workers]
    kept = LogBuilder("log")
    for place, (task, outcome) in enumerate(answers):
        assert outcome is not None
        worded = LoggedAnswer(
            outcome.worker, task, outcome.score, outcome.answer, wording="" if place % 3 else ANSWER_ALONE
        )
        kept.add(LoggedTask(log.task(task), log.gold(task)), worded)
    kept.write(tmp_path / "log")
    mixed = OutcomeLog.read(tmp_path / "log")
    panel = build_outcome_matrix(mixed)
    assert int(panel.there.sum()) == mixed.wordings()[""] == sum(1 for place in range(len(answers)) if place % 3)
