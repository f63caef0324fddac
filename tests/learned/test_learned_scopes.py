"""Nothing of one tenant's runs, or of labeled ones, is learned for another's tasks, or shown to them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from shelves import asking
from sqlalchemy import insert

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.learned_policy import PolicyConductor
from shikisha.core.budget import Caps
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.events import RunFinished, RunStarted, RunStatus
from shikisha.core.plan import ANSWER_ALONE, Plan, Step
from shikisha.core.run import Run, runs_in_scope
from shikisha.core.task import EVERYBODY, OPERATOR, Scope, Task
from shikisha.engine.autonomy import AutonomyClass
from shikisha.engine.conductor import Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal import Journal, open_journal
from shikisha.journal.schema import SERVED
from shikisha.outcomes.importers.importer_registry import import_outcomes
from shikisha.outcomes.importers.source_files import Sources
from shikisha.outcomes.log_reader import SCOPES_FILE, log_scope
from shikisha.routing.policy_file import parse_policy, serialize_policy
from shikisha.routing.trade_off import OperatingTarget
from shikisha.workers.conductor import child_task

SERVED_RUN = "20261128-120000-abcdefgh"


async def perform(journal: Journal | MemoryRecorder, tenant: str | None, *labels: str, adds: str = "") -> Run:
    class Says:
        async def perform(self, request: Request) -> Reply:
            return Reply(f"it is {request.task.prompt}")

    pool = Pool([Member(Card("w", adds=(adds,) if adds else ()), Says())])
    task = Task(f"What of {tenant}?", labels=labels, tenant=tenant)
    return await Engine(journal).run(task, pool, ScriptedConductor([Plan((Step(ANSWER_ALONE, 0),))]), Caps())


async def test_a_runs_scope_is_its_tenant_and_all_labels_that_its_steps_brought() -> None:
    run = await perform(MemoryRecorder(), "a", "green", adds="confidential")
    assert run.scope == Scope("a", frozenset({"green", "confidential"}))
    assert run.task.tenant == "a"
    assert runs_in_scope([run], "a", {"green"})[1] == []
    assert runs_in_scope([run], "a", {"green", "confidential", "other"})[1] == [run]
    assert runs_in_scope([run], None, None) == (run.scope, [run])


async def test_learning_from_several_tenants_asks_which() -> None:
    runs = [await perform(MemoryRecorder(), tenant) for tenant in ("a", "", "a")]
    with pytest.raises(ConfigError, match=r"name one with --tenant \('', 'a'"):
        runs_in_scope(runs, None)
    assert runs_in_scope(runs, "") == (OPERATOR, [runs[1]])


def test_a_task_keeps_its_tenant_in_child_runs_and_when_it_is_scrubbed() -> None:
    task = Task("sk-1 what?", tenant="a")
    assert task.scrubbed(lambda text: text.replace("sk-1", "***")).tenant == "a"
    assert child_task(Request(task, "a part")).tenant == "a"


async def test_runs_of_earlier_versions_are_those_of_the_tenant_in_the_servers_table(tmp_path: Path) -> None:
    async with open_journal(str(tmp_path / "j.db")) as journal:
        for name in (SERVED_RUN, f"{SERVED_RUN}-0-0", "own"):
            parent = SERVED_RUN if name.endswith("-0-0") else None
            begun = RunStarted(run=name, at=1.0, conductor="c", pool=("w",), caps=Caps(), prompt="?", parent=parent)
            journal.add(begun)
            journal.add(RunFinished(run=name, at=2.0, status=RunStatus.DONE, answer="x"))
        await journal.flush()
        texts = ("api", "model", "conductor", "wire", "request_hash", "metadata", "excerpt", "domain", "labels")
        row = dict.fromkeys(texts, "") | {
            "run": SERVED_RUN,
            "state": "ended",
            "tenant": "a",
            "key": "k",
            "created": 1.0,
        }
        row |= {"updated": 1.0, "detached": False, "status": "", "tokens": 0, "stopping": False}
        lacking = {column.name: 0 for column in SERVED.c if not column.nullable and column.name not in row}
        await journal.write(lambda connection: connection.execute(insert(SERVED).values(**row, **lacking)))
        assert Run.fold(await journal.read(SERVED_RUN)).scope.tenant is None
        owners = {run.id: run.scope.tenant for run in await journal.all_runs()}
    assert owners == {SERVED_RUN: "a", f"{SERVED_RUN}-0-0": "a", "own": ""}


async def test_a_policy_of_one_tenants_runs_plans_nothing_for_another() -> None:
    made = replace(asking("ann"), about=replace(asking("ann").about, scope=Scope("a", frozenset({"x"}))))
    held = parse_policy(serialize_policy(made), "it")
    assert held.about.scope == made.about.scope
    conductor = PolicyConductor("p", held, "1", held.mix(OperatingTarget()))
    cards = tuple(Card(name) for name in held.names)
    plan = (await conductor.propose(Situation(Task("?", tenant="a", labels=("x",)), cards))).plan
    assert len(plan) == 1
    for task in (Task("?", tenant="a"), Task("?", tenant="b", labels=("x",)), Task("?", labels=("x",))):
        with pytest.raises(PlanError, match="learned from runs"):
            await conductor.propose(Situation(task, cards))
    old = parse_policy(serialize_policy(asking("ann")), "it")  # an earlier version's file has no scope
    assert old.about.scope == OPERATOR


async def test_a_log_of_a_journal_knows_whose_runs_it_is_made_of(tmp_path: Path) -> None:
    async with open_journal(str(tmp_path / "j.db")) as journal:
        for tenant, labels in (("a", ()), ("a", ("x",)), ("b", ())):
            await perform(journal, tenant, *labels)
        await journal.flush()

    def scope_of(tenant: str | None, labels: set[str] | None) -> Scope:
        sources = Sources([str(tmp_path / "j.db")], tenant=tenant, labels=labels)
        import_outcomes("journal", sources, tmp_path / "log", as_lines=True, replace=True)
        return log_scope(tmp_path / "log")

    assert await asyncio.to_thread(scope_of, "a", set()) == Scope("a", frozenset())
    assert await asyncio.to_thread(scope_of, "a", {"x"}) == Scope("a", frozenset({"x"}))
    with pytest.raises(ConfigError, match="--tenant"):
        await asyncio.to_thread(scope_of, None, set())
    with pytest.raises(ConfigError, match="another's"):  # imported whole, it is nothing to learn from
        await asyncio.to_thread(scope_of, None, None)
    (tmp_path / "log" / SCOPES_FILE).unlink()
    assert log_scope(tmp_path / "log") == OPERATOR  # a log of runs by an earlier version
    (tmp_path / "log" / "conducted.jsonl").unlink()
    assert log_scope(tmp_path / "log") == EVERYBODY  # a log that a person brought


def test_classes_of_one_tenants_runs_fit_its_tasks_alone() -> None:
    learned = AutonomyClass("class", tenant="a")
    fits = [learned.fits(Task("?", tenant=tenant), "c") for tenant in ("a", "b", "", None)]
    assert fits == [True, False, False, False]
    assert AutonomyClass("by hand").fits(Task("?", tenant="b"), "c")
