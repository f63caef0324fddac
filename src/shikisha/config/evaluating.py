"""Performing an evaluation: the stage, who plays where, the course, and the report at the end.

Invariants: who is asked for is looked up before anything is played; a limit, Ctrl-C or a kill leaves a folder that the
same command goes on with. Deliberately absent: how a report is shown.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from shikisha.conductors.topologies import ALONE
from shikisha.config.expenses import Expense, expenses, paid_workers
from shikisha.config.gathering import overlap
from shikisha.config.judging import judge_of, sandbox_named
from shikisha.config.refusing import refuse_names
from shikisha.config.stage import Setup, Stage, set_stage, settled_heap
from shikisha.errors import ConfigError
from shikisha.evaluate.casting import Spec, asked
from shikisha.evaluate.counting import Who
from shikisha.evaluate.course import Controls, Course
from shikisha.evaluate.entries import Report
from shikisha.evaluate.evaluation import Evaluation, Executor, Local, Stop
from shikisha.evaluate.keeping import Keep, claimed
from shikisha.evaluate.report import About, report
from shikisha.evaluate.samples import Entrant
from shikisha.grade import Tools

if TYPE_CHECKING:
    from rich.console import Console

_MANY = 3_000  # runs from which more than one process pays, where nobody waits for a network
_WHY = {Stop.DOLLARS: "the limit of dollars was reached", Stop.SECONDS: "the limit of seconds was reached"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: the setup, the conductors asked for, where to play, and the limits besides the setup's dollars.

    `against` are tasksets in which the tasks are looked for, before anything is played.
    `controls` None: all where workers cost nothing, or nobody is asked for; else those that cost nothing.
    """

    setup: Setup
    conductors: tuple[str, ...] = ()
    at_once: int = 64
    processes: int | None = None
    ray: str | None = None
    seconds: float | None = None
    retry_failed: bool = False
    against: tuple[str, ...] = ()
    controls: Controls | None = None


@dataclass(slots=True)
class Casting:
    """Makes entrants, and remembers the specification of each for those who play elsewhere."""

    stage: Stage
    specs: dict[str, Spec] = field(default_factory=dict)

    def make(self, spec: Spec) -> Entrant:
        """Return the entrant."""
        known = self.specs.setdefault(spec.name, spec)
        if known != spec:
            raise ConfigError(f"two entrants are called {spec.name!r}")
        return self.stage.entrant(spec)


async def perform(plan: Plan, console: "Console") -> Report:
    """Evaluate, and return the report; `console` shows how it goes."""
    from shikisha.evaluate.live import progress

    begun = perf_counter()
    async with AsyncExitStack() as stack:
        stack.enter_context(claimed(Path(plan.setup.keep)))
        stage = await stack.enter_async_context(set_stage(plan.setup))
        casting = Casting(stage)
        wanted = [asked(name, {}) for name in plan.conductors]
        for spec in wanted:
            stage.entrant(spec)  # an unknown one is an error before anything is played
        paid = paid_workers(stage)
        controls = plan.controls or (Controls.FREE if paid and plan.conductors else Controls.ALL)
        casts = stage.gathered.casts
        refuse_names([*casts.singles(), casts.random(), *wanted])
        notes = _overlaps(plan, stage)
        keep = Keep(Path(plan.setup.keep), _identity(stage))
        stack.push_async_callback(keep.aclose)
        console.print(f"what is played is kept in {keep.folder}", soft_wrap=True)
        executor = await stack.enter_async_context(_executor(plan, stage, casting))
        shown = stack.enter_context(progress(console))
        evaluation = Evaluation(keep, executor, _deadline(plan.seconds), plan.retry_failed, shown.heard)
        gathered = stage.gathered
        if paid:
            _announce(console, controls, expenses(stage, controls, plan.conductors, evaluation.missing))
        course = Course(
            evaluation,
            gathered.casts,
            casting.make,
            gathered.items,
            gathered.dev,
            plan.conductors,
            shown.begin,
            controls,
            ALONE,
        )
        with settled_heap():
            await course.run()
    return _report(stage, course, perf_counter() - begun, notes)


def _overlaps(plan: Plan, stage: Stage) -> tuple[str, ...]:
    if not plan.against:
        return ()
    tools = Tools(sandbox_named(plan.setup.sandbox), judge_of(stage.composition, plan.setup.judge))
    return tuple(overlap(stage.gathered.items, plan.setup, other, tools) for other in plan.against)


def _announce(console: "Console", controls: Controls, found: tuple[Expense, Expense]) -> None:
    """Say what it may come to, before the first call."""
    wanted, beside = found
    more = f"; the controls beside them at most {beside}" if controls is Controls.ALL else ""
    console.print(
        f"What was asked for makes at most {wanted}{more} (--controls {controls})", markup=False, soft_wrap=True
    )


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _identity(stage: Stage) -> dict[str, object]:
    caps = stage.composition.settings.budgets.model_dump(mode="json")
    weights = stage.composition.settings.reward.model_dump(mode="json")
    return {"taskset": stage.gathered.name, "budgets": caps, "reward": weights, "judge": stage.setup.judge}


@asynccontextmanager
async def _executor(plan: Plan, stage: Stage, casting: Casting) -> AsyncIterator[Executor]:
    if plan.ray is not None:
        from shikisha.config.cluster import joined

        _refuse_limit(plan, "a Ray cluster")
        async with joined(plan.ray, plan.setup, plan.at_once, casting.specs) as cluster:
            yield cluster
        return
    count = plan.processes or _processes(plan, stage)
    if count == 1:
        yield Local(stage.player, plan.at_once)
        return
    from shikisha.config.parts import started

    _refuse_limit(plan, "several processes")
    async with started(plan.setup, count, plan.at_once, casting.specs) as processes:
        yield processes


def _refuse_limit(plan: Plan, where: str) -> None:
    if plan.setup.dollars is not None:
        raise ConfigError(f"--dollars: the purse is held by one process; it cannot be held by {where}")


def _processes(plan: Plan, stage: Stage) -> int:
    """Return how many processes pay: all cores where nothing is waited for and there is much to do, else one."""
    gathered = stage.gathered
    entrants = len(gathered.casts.singles()) + len(plan.conductors) + 1
    waits = plan.setup.log is None or plan.setup.dollars is not None
    return 1 if waits or entrants * len(gathered.items) < _MANY else len(os.sched_getaffinity(0))


def _report(stage: Stage, course: Course, seconds: float, notes: tuple[str, ...]) -> Report:
    gathered, stopped = stage.gathered, course.evaluation.stopped
    keep = course.evaluation.keep
    samples = {entrant.name: keep.of(entrant, items) for entrant, items in course.played}
    workers = gathered.pool.names if gathered.pool is not None else ()
    about = About(
        gathered.name,
        gathered.version,
        {item.task.id: item.task.content_hash for item in gathered.items},
        workers,
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        (*gathered.notes, *notes, *course.notes),
        seconds,
        stopped is None,
        _WHY[stopped] if stopped else "",
    )
    asked_first = sorted(course.played, key=lambda played: _ORDER.index(played[0].part))
    return report([Who.of(entrant) for entrant, _ in asked_first], samples, about)


_ORDER = ["asked", "fixed", "consistency", "random", "single", "oracle"]
