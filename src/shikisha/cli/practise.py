"""`practise`: perform the tasks of a set that teach most, within a budget, graded and journaled.

Tasks whose estimated success is nearest one half from below come first: what always succeeds or always fails teaches
little. Invariants: the cap holds over all tasks; a task that was practised before is not paid for again.
"""

from pathlib import Path
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError

TasksetName = Annotated[str, typer.Option("--taskset", help="Tasks with graders: rows of your own, or a known set.")]
Values = Annotated[Path, typer.Option("--values", help="Step values that estimate how hard a task is.")]
Budget = Annotated[float, typer.Option("--budget", min=0.000001, help="The most US dollars to spend, all in all.")]
Spec = Annotated[str, typer.Option("--conductor", "-C", help="The conductor; by default the configured one.")]
Most = Annotated[int, typer.Option("--tasks", min=1, help="The most tasks to perform.")]


def practise(
    shared: SharedOptions, taskset: TasksetName, values: Values, budget: Budget, conductor: Spec = "", most: Most = 100
) -> ExitCode:
    """Perform the tasks that teach most, within a budget, to learn from them."""
    from shikisha.config.practice import Practice, order_by_need
    from shikisha.evals.tasksets.taskset_loader import load_taskset
    from shikisha.learned.step_value import load_step_value

    items = load_taskset(taskset).items
    if not items:
        raise ConfigError(f"{taskset}: there are no tasks")
    model = load_step_value(values)

    async def main() -> Practice:
        async with (
            session.open_container(shared) as container,
            session.open_command_journal(shared, container) as journal,
        ):
            pool = container.pool()
            order = order_by_need(items, model, pool.names)[:most]
            practice = Practice(container, journal, pool, container.conductor(conductor, pool), budget, model.scope)
            await practice.perform(order, time)
            return practice

    done = session.run_async(main)
    if shared.json:
        output.print_json({"tasks": done.tasks, "right": done.right, "dollars": done.spent, "why": done.why})
    output.print_note(f"{done.tasks} tasks, {done.right} right, {format_dollars(done.spent)}: {done.why}")
    return ExitCode.OK
