"""`tune`: search for advice that makes a prompted conductor's plans worth more, with dollars as the only budget.

Invariants: what one honest comparison costs is said and refused before anything is spent; a command that was killed
goes on when it is called again with the same options, and pays for nothing twice; nothing is written that is not shown
to be better on tasks that the search has not seen.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, TenantOption, import_errors_name_extra
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.run import Run, runs_in_scope
from shikisha.core.task import Scope
from shikisha.engine.engine import Engine

if TYPE_CHECKING:
    from shikisha.config.container import Container
    from shikisha.config.prompt_tuner import JournaledTuner
    from shikisha.evals.taskset import TaskItem
    from shikisha.journal import Journal
    from shikisha.learned.prompt_search import SearchResult

Spec = Annotated[str, typer.Option("--conductor", "-C", help="The prompted conductor to tune: lm:WORKER.")]
Reflector = Annotated[
    str, typer.Option("--reflector", help="The worker that reads what came of runs and edits advice.")
]
Dollars = Annotated[float, typer.Option("--dollars", min=0.000001, help="The most US dollars to spend, all in all.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file of advice to write, for [learned] prompt.")]
TasksetName = Annotated[str, typer.Option("--taskset", help="Tasks with graders: rows of your own, or a known set.")]
FromJournal = Annotated[
    bool, typer.Option("--from-journal", help="Tune on tasks of the journal whose right answer is known.")
]
Worth = Annotated[float, typer.Option("--worth", min=0.000001, help="US dollars that a right answer is worth.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the search and of the split of tasks.")]
RunCost = Annotated[
    float | None, typer.Option("--run-cost", min=0, help="What a run costs, where the journal does not say.")
]


def tune(
    shared: SharedOptions,
    conductor: Spec,
    reflector: Reflector,
    dollars: Dollars,
    to: Out,
    taskset: TasksetName = "",
    from_journal: FromJournal = False,
    worth: Worth = 0.05,
    seed: Seed = 0,
    run_cost: RunCost = None,
    tenant: TenantOption = None,
) -> ExitCode:
    """Tune the advice that a prompted conductor gets.

    Half of the tasks are for the search; the advice that it finds is compared with the one in force on the others, and
    written only if it is better there.
    """
    output.refuse_unwritable(to)
    if bool(taskset) == from_journal:
        raise ConfigError("expected --taskset NAME or --from-journal, one of them")
    with import_errors_name_extra("tune"):
        from shikisha.learned.prompt_search import PromptSearch
        from shikisha.learned.tuned_prompt import load_advice, prompt_file

    async def main() -> "tuple[SearchResult, Scope]":
        async with (
            session.open_container(shared) as container,
            session.open_command_journal(shared, container) as journal,
        ):
            scope, runs = runs_in_scope(await journal.all_runs(), "" if taskset else tenant)
            items = load_items(taskset, runs)
            name = f"{to.name} {conductor} {reflector} {taskset} {seed}"
            tuner = _tuner(name, container, journal, conductor, reflector, items, scope)
            before = container.settings.learned.prompt
            known = None if before is None else load_advice(container.folder / before)
            advice = str(known.content["advice"]) if known is not None and known.scope.admits(scope) else ""
            loop = asyncio.get_running_loop()
            search = PromptSearch(
                len(items),
                lambda said, place, left: asyncio.run_coroutine_threadsafe(
                    tuner.perform(said, place, left), loop
                ).result(),
                lambda prompt, number, left: asyncio.run_coroutine_threadsafe(
                    tuner.reflect(prompt, number, left), loop
                ).result(),
                dollars,
                worth,
                seed,
            )
            costs = _costs(container, runs, conductor, run_cost)
            result = await asyncio.to_thread(search.run, advice, *costs)
            # Advice of a set that a person named is for every tenant, unless it began with a tenant's.
            if known is not None and advice:
                result = replace(result, evidence=(*known.evidence, *result.evidence))
            public = bool(taskset) and (not advice or (known is not None and known.scope.shared))
            return result, replace(scope, labels=frozenset(tuner.labels), shared=public)

    result, scope = session.run_async(main)
    _report(result, as_json=shared.json)
    if not result.accepted:
        output.print_note(f"nothing is written: {result.why}")
        return ExitCode.OK
    from shikisha.learned.learned_file import write_learned

    written = prompt_file(result.advice, result.evidence, scope, result.gain, time())
    write_learned(to, written)
    output.print_note(f"{to}: advice, version {written.short_version}; use it with [learned] prompt")
    return ExitCode.OK


def load_items(taskset: str, runs: Sequence[Run]) -> "list[TaskItem]":
    """Return the tasks to tune on; ConfigError where there are none."""
    from shikisha.config.prompt_tuner import items_from_runs
    from shikisha.evals.tasksets.taskset_loader import load_taskset

    items = list(load_taskset(taskset).items) if taskset else items_from_runs(runs)
    if not items:
        raise ConfigError("there are no tasks to tune on: the journal has no task that was answered right, and graded")
    return items


def _tuner(
    name: str,
    container: "Container",
    journal: "Journal",
    conductor: str,
    reflector: str,
    items: "list[TaskItem]",
    scope: Scope,
) -> "JournaledTuner":
    from shikisha.config.prompt_tuner import JournaledTuner, prompted_part

    pool = container.pool()
    engine = Engine(journal, secret_store=container.secret_store, guarded_labels=container.guarded_labels)
    planner = prompted_part(container.conductor(conductor, pool))
    ask, caps = container.pool([reflector]), container.caps
    return JournaledTuner(name, engine, journal, pool, planner, items, ask, caps, scope)


def _costs(container: "Container", runs: Sequence[Run], conductor: str, said: float | None) -> tuple[float, float]:
    """Return what a run and a reflection cost: as said, as the journal shows, else the cap of a run."""
    from shikisha.config.prompt_tuner import mean_run_cost

    cost = said if said is not None else mean_run_cost(runs, conductor)
    cost = cost if cost is not None else container.caps.dollars
    if cost is None:
        raise ConfigError("what a run costs is not known: name it with --run-cost, or set budgets.dollars")
    return cost, cost


def _report(result: "SearchResult", *, as_json: bool) -> None:
    gain = result.gain
    if as_json:
        output.print_json(
            {
                "accepted": result.accepted,
                "why": result.why,
                "dollars": result.spent,
                "runs": result.runs,
                "candidates": result.candidates,
                "gain": None if gain is None else [gain.mean, gain.low, gain.high],
                "advice": result.advice,
            }
        )
        return
    output.print_answer(result.advice or "(no advice)")
    output.print_note(f"{result.runs} runs, {result.candidates} candidates, {format_dollars(result.spent)}")
    if gain is not None:
        output.print_note(gain.describe())
