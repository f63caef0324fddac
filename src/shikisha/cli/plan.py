"""`plan`: ask a conductor for a plan, or parse the text of one, and perform nothing."""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.first_run import SIMULATION_NOTE, obtain_container
from shikisha.cli.options import ConductorOptions, SharedOptions, TaskOptions, YesOption
from shikisha.config.container import Container
from shikisha.core.errors import PlanError, TaskError
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import render_plan_lists
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder

Prompt = Annotated[str, typer.Argument(help="The task; - reads it from stdin.", show_default=False)]
Parse = Annotated[
    str | None, typer.Option("--parse", metavar="FILE", help="Parse the plan in this file (- for stdin) instead.")
]
PoolSize = Annotated[
    int | None,
    typer.Option(
        "--pool-size", min=0, help="With --parse: the size of the pool; by default that of the configured pool."
    ),
]


def plan(
    details: TaskOptions,
    chosen: ConductorOptions,
    shared: SharedOptions,
    prompt: Prompt = "",
    parse: Parse = None,
    pool_size: PoolSize = None,
    yes: YesOption = False,
) -> ExitCode:
    """Ask for a plan, or parse one, and perform nothing.

    No journal is written. With --parse, exit code 2 for a text that is not a plan.
    """
    if parse is not None:
        try:
            text = session.read_text(parse)
        except TaskError as error:
            raise PlanError(str(error), "text") from None
        if pool_size is None:
            known = obtain_container(shared, performs=False, simulated=chosen.simulated)
            pool_size = len(known.cards(chosen.names))
        parsed = parse_plan(text, pool_size)
        if shared.json:
            output.print_json(plan_json(parsed))
        else:
            _print_lists(parsed)
        return ExitCode.OK
    if not prompt:
        raise TaskError("expected a prompt, or --parse FILE")
    task = session.read_task(prompt, details)
    obtained = obtain_container(shared, yes=yes, simulated=chosen.simulated, prompt=prompt)
    if obtained.simulated_pool is not None:
        output.print_wrapped_note(SIMULATION_NOTE)
    run, proposal = session.run_async(lambda: _ask_for_plan(task, chosen, obtained))
    if proposal is None:
        raise PlanError(run.finished.why if run.finished else str(run.status), run.started.conductor)
    _print_proposal(run, proposal, shared)
    return ExitCode.OK


async def _ask_for_plan(task: Task, chosen: ConductorOptions, obtained: Container) -> tuple[Run, Proposal | None]:
    """Ask for a plan through an engine in memory, which applies caps, retries and time limits."""
    async with aclosing(obtained) as container:
        pool = container.pool(chosen.names or container.team_pool(chosen.conductor))
        recorded = _PlanRecorder(container.conductor(chosen.conductor, pool))
        engine = Engine(MemoryRecorder(), secret_store=container.secret_store)
        run = await engine.run(task, pool, recorded, container.caps)
        return run, recorded.proposals[0] if recorded.proposals else None


@dataclass(slots=True)
class _PlanRecorder:
    """A conductor that records the proposal of another, and returns an empty plan, so that nothing is performed."""

    conductor: Conductor
    proposals: list[Proposal] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.conductor.name

    async def propose(self, situation: Situation) -> Proposal:
        proposal = await self.conductor.propose(situation)
        proposal.plan.check_pool(len(situation.cards))
        self.proposals.append(proposal)
        return Proposal(Plan(), final=True)


def plan_json(plan: Plan) -> Mapping[str, object]:
    """Return a plan as JSON."""
    return {"steps": [{"worker": s.worker, "subtask": s.subtask, "access": s.access_entries()} for s in plan.steps]}


def _print_lists(plan: Plan) -> None:
    output.print_answer(render_plan_lists(plan))


def _print_proposal(run: Run, proposal: Proposal, shared: SharedOptions) -> None:
    if shared.json:
        output.print_json(
            {
                **plan_json(proposal.plan),
                "pool": list(run.started.pool),
                "conductor": run.started.conductor,
                "substituted": proposal.substituted,
                "note": proposal.note,
                "rejected": [{"what": r.what, "where": r.where, "text": r.text} for r in proposal.rejected],
                "tokens": run.charged.tokens,
                "dollars": run.charged.dollars,
                "uncertain_tokens": run.uncertain.tokens,
                "uncertain_dollars": run.uncertain.dollars,
            }
        )
        return
    for rejection in proposal.rejected:
        output.print_note(f"no plan: {one_line(rejection.where)}: {one_line(rejection.what)}")
    if proposal.note:
        output.print_note(one_line(proposal.note))
    for index, step in enumerate(proposal.plan.steps):
        sees = f" ← {', '.join(map(str, step.access_entries()))}" if step.access else ""
        output.print_note_line(f"{index} {run.started.pool[step.worker]}{sees}: {step.subtask}")
    _print_lists(proposal.plan)
