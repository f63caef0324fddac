"""Plans on the command line: `plan` asks a conductor for one and performs nothing, or parses a text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConductorOptions, SharedOptions, TaskOptions
from shikisha.core.errors import PlanError, TaskError
from shikisha.core.text import one_line

if TYPE_CHECKING:
    from shikisha.core.plan import Plan
    from shikisha.core.run import Run
    from shikisha.core.task import Task
    from shikisha.engine.conductor import Conductor, Proposal, Situation

Prompt = Annotated[str, typer.Argument(help="What is to be done; - reads it from stdin.", show_default=False)]
Parse = Annotated[
    str | None, typer.Option("--parse", metavar="FILE", help="Parse this plan text (- for stdin) instead of asking.")
]
PoolSize = Annotated[
    int | None, typer.Option("--pool-size", min=0, help="With --parse: how many workers there are; else the pool's.")
]


def plan(
    about: TaskOptions,
    conducting: ConductorOptions,
    shared: SharedOptions,
    prompt: Prompt = "",
    parse: Parse = None,
    pool_size: PoolSize = None,
) -> ExitCode:
    """Ask for a plan, or parse one; perform nothing.

    No journal is written. With --parse, exit code 2 for a text that is no plan.
    """
    if parse is not None:
        return _parse_file(parse, pool_size, conducting, shared)
    if not prompt:
        raise TaskError("expected a prompt, or --parse FILE")
    run, proposal = session.run_async(lambda: _ask_for_plan(session.read_task(prompt, about), conducting, shared))
    if proposal is None:
        raise PlanError(run.finished.why if run.finished else str(run.status), run.started.conductor)
    _print_proposal(run, proposal, shared)
    return ExitCode.OK


def _parse_file(file: str, pool_size: int | None, conducting: ConductorOptions, shared: SharedOptions) -> ExitCode:
    from shikisha.core.plan_parser import parse_plan

    try:
        text = session.read_text(file)
    except TaskError as error:
        raise PlanError(str(error), "text") from None
    size = pool_size if pool_size is not None else len(session.load_container(shared).pool(conducting.names))
    parsed = parse_plan(text, size)
    if shared.json:
        output.print_json(plan_json(parsed))
    else:
        _print_lists(parsed)
    return ExitCode.OK


async def _ask_for_plan(
    task: "Task", conducting: ConductorOptions, shared: SharedOptions
) -> "tuple[Run, Proposal | None]":
    """Let an engine in memory ask for a plan: within the caps, with retries and time limits, and perform nothing."""
    from shikisha.engine.engine import Engine
    from shikisha.engine.recorder import MemoryRecorder

    async with session.open_container(session.load_container(shared)) as composition:
        pool = composition.pool(conducting.names)
        curious = _PlanRecorder(composition.conductor(conducting.conductor, pool))
        engine = Engine(MemoryRecorder(), vault=composition.vault)
        run = await engine.run(task, pool, curious, composition.caps)
        return run, curious.proposals[0] if curious.proposals else None


@dataclass(slots=True)
class _PlanRecorder:
    """Asks a conductor, keeps what it proposes, and has nothing performed."""

    conductor: "Conductor"
    proposals: "list[Proposal]" = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.conductor.name

    async def propose(self, situation: "Situation") -> "Proposal":
        from shikisha.core.plan import Plan
        from shikisha.engine.conductor import Proposal

        proposal = await self.conductor.propose(situation)
        proposal.plan.check_pool(len(situation.cards))
        self.proposals.append(proposal)
        return Proposal(Plan(), final=True)


def plan_json(plan: "Plan") -> Mapping[str, object]:
    """Return the plan's JSON twin."""
    return {"steps": [{"worker": s.worker, "subtask": s.subtask, "access": list(s.access)} for s in plan.steps]}


def _print_lists(plan: "Plan") -> None:
    from shikisha.core.prompts import render_plan_lists

    output.print_answer(render_plan_lists(plan))


def _print_proposal(run: "Run", proposal: "Proposal", shared: SharedOptions) -> None:
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
        sees = f" ← {', '.join(map(str, step.access))}" if step.access else ""
        output.print_note_line(f"{index} {run.started.pool[step.worker]}{sees}: {step.subtask}")
    _print_lists(proposal.plan)
