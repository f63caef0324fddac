"""`run`, which also only plans, `runs resume`, and `runs approve`, which answers a question that a run waits for."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from threading import Thread
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import approval_prompt, output, progress, session
from shikisha.cli.approval_prompt import current_user
from shikisha.cli.exit_codes import ExitCode, StopSignal, exit_code_of_status
from shikisha.cli.first_run import SIMULATION_NOTE, obtain_container
from shikisha.cli.options import (
    NEWEST_RUN,
    CapOptions,
    ConductorOptions,
    OneRun,
    RunId,
    SharedOptions,
    TaskOptions,
    YesOption,
)
from shikisha.cli.progress import RunProgress, run_summary
from shikisha.cli.runs import release
from shikisha.config.container import Container, build_observer
from shikisha.config.context_source import answer_steps, context_source
from shikisha.core.errors import JournalError, PlanError, TaskError
from shikisha.core.events import Event, QuestionAnswered, QuestionAsked, QuestionKind, RunStatus
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import render_plan_lists
from shikisha.core.run import Run, new_run_id, root_run_id
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.engine import approvals
from shikisha.engine.approvals import Decision
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.engine.rounds import answer_problem
from shikisha.journal.plain_sqlite import open_recorder
from shikisha.server import store

if TYPE_CHECKING:
    from shikisha.journal import Journal
    from shikisha.telemetry.observer import TelemetryObserver


Prompt = Annotated[str | None, typer.Argument(help="The task; - reads it from stdin.", show_default=False)]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options for a plan that is not performed."""

    plan: Annotated[bool, typer.Option("--plan", help="Ask for a plan, perform nothing, and write no journal.")] = False
    parse: Annotated[
        str | None,
        typer.Option(
            "--parse", metavar="FILE", help="Parse the plan in this file (- for stdin); exit code 2 if it is none."
        ),
    ] = None


def _parse_plan(file: str, chosen: ConductorOptions, shared: SharedOptions) -> ExitCode:
    try:
        text = session.read_text(file)
    except TaskError as error:
        raise PlanError(str(error), "text") from None
    known = obtain_container(shared, performs=False, simulated=chosen.simulated)
    parsed = parse_plan(text, len(known.cards(chosen.names)))
    if shared.json:
        output.print_json(plan_json(parsed))
    else:
        _print_lists(parsed)
    return ExitCode.OK


def _plan_only(
    prompt: str, details: TaskOptions, chosen: ConductorOptions, shared: SharedOptions, *, yes: bool
) -> ExitCode:
    task = session.read_task(prompt, details)
    obtained = obtain_container(shared, yes=yes, simulated=chosen.simulated, prompt=prompt)
    if obtained.simulated_pool is not None:
        output.print_wrapped_note(SIMULATION_NOTE)
    planned, proposal = session.run_async(lambda: _ask_for_plan(task, chosen, obtained))
    if proposal is None:
        raise PlanError(planned.finished.why if planned.finished else str(planned.status), planned.started.conductor)
    _print_proposal(planned, proposal, shared)
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


_TRACE_VARIABLE = "TRACEPARENT"
_EXPORT_SECONDS = 5.0  # seconds that a receiver gets to take a run's last spans
_ANSWER_OPTIONS = {
    "answer": "--answer TEXT",
    "approve": "yes|no",
    "review": "yes|no|--answer TEXT",
    "tools": "(its client answers)",
}
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
OnServer = Annotated[bool, typer.Option("--on-server", help="Let servers perform a quarantined run again.")]
YesNo = Annotated[str, typer.Argument(metavar="yes|no", help="Answers an approval or a review.", show_default=False)]


def run(
    details: TaskOptions,
    chosen: ConductorOptions,
    caps: CapOptions,
    planning: PlanOptions,
    shared: SharedOptions,
    prompt: Prompt = None,
    quiet: Quiet = False,
    yes: YesOption = False,
) -> ExitCode:
    """Perform a task and print its answer.

    Without a configuration it looks for keys of known providers and for model servers on this machine, says what a run
    would cost, and asks once.
    """
    if planning.parse is not None:
        return _parse_plan(planning.parse, chosen, shared)
    if prompt is None:
        raise TaskError("prompt is missing (see shikisha run --help)")
    if planning.plan:
        return _plan_only(prompt, details, chosen, shared, yes=yes)
    task, name, shown = session.read_task(prompt, details), new_run_id(), progress.choose_progress(quiet)
    obtained = obtain_container(shared, yes=yes, simulated=chosen.simulated, prompt=task.prompt)

    async def main() -> Run:
        async with aclosing(obtained) as container:
            if container.simulated_pool is not None:
                output.print_wrapped_note(SIMULATION_NOTE)
            pool = container.pool(chosen.names or container.team_pool(chosen.conductor))
            conductor = container.conductor(chosen.conductor, pool, learns=True)
            limits = caps.apply_to(container.caps)
            async with open_recorder(session.journal_place(shared, container)) as journal:
                with shown:
                    config = container.resolved()
                    async with _exported(container, name) as observer:
                        engine = _build_engine(container, journal, shown, observer)
                        finished = await engine.run(task, pool, conductor, limits, run_id=name, config=config)
            await _learn(container, shared)
            return finished

    return _perform_and_report(main, lambda: name if shown.started else None, shared)


def resume(
    shared: SharedOptions,
    run: RunId = NEWEST_RUN,
    on_server: OnServer = False,
    quiet: Quiet = False,
    yes: YesOption = False,
) -> ExitCode:
    """Continue a run from its last journaled step.

    The run was interrupted or killed, or it waited for a person. Servers quarantine a run that took one of them down
    twice, as `shikisha explain` shows; --on-server lets them perform it again.
    """
    if on_server:
        return release(run, shared)
    name: list[str] = []

    async def read_past() -> dict[str, tuple[Event, ...]]:
        async with session.open_existing_journal(shared) as journal:
            return await session.read_run_family(journal, await session.find_run(journal, run))

    past = session.run_async(read_past)
    name.append(next(iter(past)))
    before = Run.fold(past[name[0]])
    started = before.started
    simulated = json.loads(started.config or "{}").get("workers") == {}  # asked for by name, when it began
    obtained = obtain_container(shared, yes=yes, simulated=simulated, prompt=before.task.prompt)

    async def main() -> Run:
        async with (
            aclosing(obtained) as container,
            session.open_existing_journal(shared) as journal,
        ):
            pool = container.pool(started.pool)
            conductor = container.conductor(started.conductor, pool)
            with progress.choose_progress(quiet, past) as shown:
                async with (
                    session.exclusive_run(journal, name[0], container.settings.server.lease),
                    _exported(container, name[0]) as observer,
                ):
                    if observer is not None:
                        observer.recall(past[name[0]])
                    engine = _build_engine(container, journal, shown, observer)
                    return await engine.resume(name[0], pool, conductor)

    return _perform_and_report(main, lambda: name[0] if name else None, shared)


def approve(
    run: OneRun,
    shared: SharedOptions,
    decision: YesNo = "",
    answer: Annotated[
        str | None, typer.Option("--answer", help="The answer of a person who is the worker, or a changed answer.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="The step that asks, where several questions are open.")
    ] = None,
    remark: Annotated[str, typer.Option("--remark", help="The reason, for the journal.")] = "",
) -> ExitCode:
    """Answer a question that a run waits for.

    A server that performs the run continues it within seconds. Otherwise `shikisha runs resume` continues it.
    """

    async def main() -> tuple[str, QuestionAnswered, bool]:
        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run)
            asking, question = _choose_question(await _open_questions(journal, name), step)
            answered = approvals.answer_question(
                asking, question.question, _decision(question, decision, answer, remark), time()
            )
            if (
                question.asks == "review"
                and answered.text
                and (problem := await answer_problem(asking.task, answered.text))
            ):
                raise TaskError(f"--answer: {problem}")
            root = root_run_id(name)
            served = await journal.query(partial(store.state_of_run, run=root)) in ("open", "waiting")
            journal.add(answered)
            journal.add_work(partial(store.reopen_run, run=root))
            await journal.flush()
            await check_answer_was_first(journal, answered)
            return name, answered, served

    name, answered, served = session.run_async(main)
    if shared.json:
        output.print_json({"run": name, "question": answered.question, "approved": answered.approved})
    word = "no" if not answered.approved else "yes" if answer is None else "the answer"
    if served:
        output.print_note(
            f"noted: {word}. A server continues run {name}; without a server: shikisha runs resume {name}"
        )
    else:
        output.print_note(f"noted: {word}. Continue with: shikisha runs resume {name}")
    return ExitCode.OK


async def check_answer_was_first(journal: "Journal", answered: QuestionAnswered) -> None:
    """Raise TaskError where another answer was journaled first."""
    counts = Run.fold(await journal.read(answered.run)).answers.get(answered.question)
    if counts != answered:
        first = counts.actor if counts else "another"
        raise TaskError(f"question {answered.question} is answered already: {first} was first")


async def _learn(container: Container, shared: SharedOptions) -> None:
    """Learn from the runs so far, where learning is on and there are enough new ones."""
    if container.settings.learning.on and container.simulated_pool is None:
        from shikisha.learned.journal_learner import JournalLearner

        async with session.open_command_journal(shared, container) as journal:
            learner = JournalLearner(container.learning_files(), journal, container.learning_terms())
            if await learner.is_due():
                await learner.look(force=True)


@asynccontextmanager
async def _exported(container: Container, run: str) -> AsyncIterator["TelemetryObserver | None"]:
    """Yield what exports a run, where the configuration or the environment names an endpoint, and send what is left.

    A run is part of the trace in $TRACEPARENT (W3C), as a shell or a CI job passes it on.
    """
    observer = build_observer(container, container.settings.telemetry)
    if observer is None:
        yield None
        return
    observer.adopt(run, os.environ.get(_TRACE_VARIABLE))
    try:
        yield observer
    finally:
        # A daemon, because a receiver that is away must not keep the command from ending.
        ending = Thread(target=observer.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _EXPORT_SECONDS)


def _build_engine(
    container: Container, journal: Recorder, shown: RunProgress, observer: "TelemetryObserver | None"
) -> Engine:
    approver = approval_prompt.choose_approver(shown.paused)

    def observe(event: Event) -> None:
        shown.observe(event)
        if observer is not None:
            observer.observe(event)

    engine = Engine(
        journal,
        approver=approver,
        secret_store=container.secret_store,
        observe=observe,
        guarded_labels=container.guarded_labels,
        context_source=context_source(container),
        answer_steps=answer_steps(container),
    )
    return engine.with_autonomy(container.autonomy_policy())


def _perform_and_report(
    main: Callable[[], Coroutine[object, object, Run]], name: Callable[[], str | None], shared: SharedOptions
) -> ExitCode:
    """Perform a run and print its answer; for a run that was stopped, print how to continue it."""
    try:
        run = session.run_async(main)
    except StopSignal:
        if (stopped := name()) is not None:
            if shared.json:
                output.print_json({"run": stopped, "status": "interrupted", "answer": None})
            output.print_note(f"stopped; continue with: shikisha runs resume {stopped}")
        raise
    except JournalError:
        if (stopped := name()) is not None:
            output.print_note(
                f"the run cannot be journaled any more; once it can, continue with: shikisha runs resume {stopped}"
            )
        raise
    if shared.json:
        output.print_json(run_summary(run))
    elif run.answer is not None:
        output.print_answer(run.answer)
    # Print on stderr why a run has no answer, or what it waits for.
    if run.status is RunStatus.SUSPENDED:
        output.print_note(f"run {run.id} waits for a person:")
        for question in run.open_questions:
            options = _ANSWER_OPTIONS[question.asks]
            planning = question.step is None
            place, choice = ("planning", "") if planning else (f"step {question.step}", f" --step {question.step}")
            output.print_note(f"  {place}, {question.worker}: {one_line(question.prompt, 70)}")
            output.print_note(f"    shikisha runs approve {run.id}{choice} {options}")
        output.print_note(f"then: shikisha runs resume {run.id}")
    elif run.status is not RunStatus.DONE and run.finished is not None:
        output.print_note(f"run {run.id} {run.status}: {run.finished.why}")
    return exit_code_of_status(run.status)


async def _open_questions(journal: "Journal", name: str) -> list[tuple[Run, QuestionAsked]]:
    past = await session.read_run_family(journal, name)
    folded = [Run.fold(events) for events in past.values()]
    return [(run, question) for run in folded for question in run.open_questions if question.asks != "tools"]


def _choose_question(questions: list[tuple[Run, QuestionAsked]], step: int | None) -> tuple[Run, QuestionAsked]:
    fitting = [(run, question) for run, question in questions if step is None or question.step == step]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise TaskError("no question is open" + ("" if step is None else f" in step {step}"))
    places = ", ".join(f"--step {question.step} ({question.worker})" for _, question in fitting)
    raise TaskError(f"several questions are open; choose one: {places}")


def _decision(question: QuestionAsked, decision: str, answer: str | None, remark: str) -> Decision:
    """Return the decision of the command line; TaskError where it does not answer the question."""
    if question.asks is QuestionKind.ANSWER and answer is None and decision != "no":
        raise TaskError(f"{question.worker!r} is a person who answers: use --answer TEXT, or no")
    if question.asks is QuestionKind.APPROVE and (answer is not None or decision not in ("yes", "no")):
        raise TaskError(f"a call to {question.worker!r} waits for approval: expected yes or no")
    if question.asks is QuestionKind.REVIEW and (
        decision not in ("yes", "no", "") or (decision == "" and answer is None)
    ):
        raise TaskError("the run's answer waits for a review: expected yes or no, or --answer TEXT to change it")
    if answer is not None and not answer.strip():
        raise TaskError("the answer is empty")
    text, said = session.require_storable(answer or "", "--answer"), session.require_storable(remark, "--remark")
    return Decision(decision != "no", current_user(), text, "cli", said)
