"""Performing tasks: `run`, `resume`, and `approve`, which answers what a run waits for."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.clean import one_line
from shikisha.cli import out, session
from shikisha.cli.exits import Exit, Stopped, of_status
from shikisha.cli.options import About, CapOptions, Conducting, Shared
from shikisha.errors import JournalError, TaskError

if TYPE_CHECKING:
    from shikisha.approval import Decision
    from shikisha.cli.watch import Watch
    from shikisha.conduct import Engine
    from shikisha.config.compose import Composition
    from shikisha.events import QuestionAnswered, QuestionAsked
    from shikisha.journal import Journal
    from shikisha.run import Run

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
RunId = Annotated[
    str,
    typer.Argument(metavar="[RUN]", help="A run's id, or its beginning, or last (the default).", show_default=False),
]
OneRun = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, or its beginning, or last.", show_default=False)
]
Prompt = Annotated[str, typer.Argument(help="What is to be done; - reads it from stdin.", show_default=False)]
YesNo = Annotated[str, typer.Argument(metavar="yes|no", help="For an approval or a review.", show_default=False)]


def run(
    prompt: Prompt, about: About, conducting: Conducting, caps: CapOptions, shared: Shared, quiet: Quiet = False
) -> Exit:
    """Perform a task and print its answer."""
    from shikisha.cli import watch
    from shikisha.conduct import new_run_id

    task, name, seen = session.task(prompt, about), new_run_id(), watch.choose(quiet)

    async def main() -> "Run":
        async with session.closing(session.compose(shared)) as composition:
            if composition.orchestra is not None:
                _warn_of_rehearsal(task.prompt)
            pool = composition.pool(conducting.names)
            conductor = composition.conductor(conducting.conductor, pool)
            limits = caps.over(composition.caps)
            async with session.journal(shared, composition) as journal:
                with seen:
                    config = composition.resolved()
                    engine = _engine(composition, journal, seen)
                    return await engine.run(task, pool, conductor, limits, run_id=name, config=config)

    return _reported(main, lambda: name if seen.started else None, shared)


def resume(shared: Shared, run: RunId = session.NEWEST, quiet: Quiet = False) -> Exit:
    """Go on with a run from its last journaled step.

    For runs that were interrupted or killed, or that waited for a person.
    """
    from shikisha.cli import watch
    from shikisha.run import Run

    name: list[str] = []

    async def main() -> "Run":
        async with (
            session.closing(session.compose(shared)) as composition,
            session.reading(shared) as journal,
        ):
            past = await session.family(journal, await session.find_run(journal, run))
            name.append(next(iter(past)))
            begun = Run.fold(past[name[0]]).started
            pool = composition.pool(begun.pool)
            conductor = composition.conductor(begun.conductor, pool)
            with watch.choose(quiet, past) as seen:
                async with session.alone(journal, name[0], composition.settings.server.lease):
                    return await _engine(composition, journal, seen).resume(name[0], pool, conductor)

    return _reported(main, lambda: name[0] if name else None, shared)


def approve(
    run: OneRun,
    shared: Shared,
    decision: YesNo = "",
    answer: Annotated[
        str | None, typer.Option("--answer", help="The answer, where a person is the worker, or a changed one.")
    ] = None,
    step: Annotated[int | None, typer.Option("--step", help="Whose question, where several are open.")] = None,
    remark: Annotated[str, typer.Option("--remark", help="Why, in words.")] = "",
) -> Exit:
    """Answer what a run waits for.

    A server that performs it goes on with it within seconds; else `shikisha resume` does.
    """
    from shikisha import approval
    from shikisha.closing import misfit

    async def main() -> "tuple[str, QuestionAnswered, bool]":
        from shikisha.server.house import root_of
        from shikisha.server.store import claims

        async with session.reading(shared) as journal:
            name = await session.find_run(journal, run)
            asking, question = _chosen(await _open_questions(journal, name), step)
            answered = approval.answer(asking, question.question, _said(question, decision, answer, remark), time())
            if question.asks == "review" and answered.text and (problem := await misfit(asking.task, answered.text)):
                raise TaskError(f"--answer: {problem}")
            root = root_of(name)
            served = await journal.query(partial(claims.stands, run=root)) in ("open", "waiting")
            journal.add(answered)
            journal.along(partial(claims.reopen, run=root))
            await journal.flush()
            await check_counts(journal, answered)
            return name, answered, served

    name, answered, served = session.perform(main)
    if shared.json:
        out.value({"run": name, "question": answered.question, "approved": answered.approved})
    word = "no" if not answered.approved else "yes" if answer is None else "the answer"
    if served:
        out.note(f"noted: {word}. A server goes on with run {name}; where none runs: shikisha resume {name}")
    else:
        out.note(f"noted: {word}. Go on with: shikisha resume {name}")
    return Exit.OK


async def check_counts(journal: "Journal", answered: "QuestionAnswered") -> None:
    """Refuse an answer that another one came before, however close."""
    from shikisha.run import Run

    counts = Run.fold(await journal.read(answered.run)).answers.get(answered.question)
    if counts != answered:
        first = counts.actor if counts else "nobody"
        raise TaskError(f"question {answered.question} is answered already: {first} was first")


def _warn_of_rehearsal(prompt: str) -> None:
    """Say that nobody here answers everyday questions, where the embedded orchestra is put one."""
    from shikisha.orchestra.grammar import parse
    from shikisha.tasksets.rehearsal import rehearsal

    if parse(prompt) is None:
        sample = next(item for item in rehearsal("train") if len(item.kinds) > 1).task.prompt
        out.note("no workers are configured, so the embedded orchestra plays: small tools and simulated models, which")
        out.note(f'understand rehearsal questions only, such as "{sample}". Your own workers: shikisha init')


def _engine(composition: "Composition", journal: "Journal", seen: "Watch") -> "Engine":
    from shikisha.cli import desk
    from shikisha.conduct import Engine

    chosen = desk.choose(seen.paused)
    made = Engine(journal, desk=chosen, vault=composition.vault, observe=seen.observe, guarded=composition.guarded)
    return made.overseen(composition.oversight())


def _reported(
    main: "Callable[[], Coroutine[object, object, Run]]", name: Callable[[], str | None], shared: Shared
) -> Exit:
    """Perform the run and say what came of it; a run that is stopped says how it goes on."""
    try:
        run = session.perform(main)
    except Stopped:
        if (begun := name()) is not None:
            if shared.json:
                out.value({"run": begun, "status": "interrupted", "answer": None})
            out.note(f"stopped; go on with: shikisha resume {begun}")
        raise
    except JournalError:
        if (begun := name()) is not None:
            out.note(f"the run cannot be written down any more; once it can, go on with: shikisha resume {begun}")
        raise
    if shared.json:
        out.value(summary(run))
    elif run.answer is not None:
        out.answer(run.answer)
    _explain_end(run)
    return of_status(run.status)


def summary(run: "Run") -> Mapping[str, object]:
    """Return a run as `--json` prints it. Tokens and dollars include child runs; dollars null: nobody can say.

    What may have been used besides, by calls whose outcome nobody knows, is in `uncertain_…` alone.
    """
    end = run.finished
    return {
        "run": run.id,
        "status": str(run.status),
        "answer": run.answer,
        "why": run.why,
        "cap": end.cap if end else None,
        "fault": str(end.fault) if end and end.fault else None,
        "conductor": run.started.conductor,
        "rounds": len(run.rounds),
        "steps": sum(len(record.plan or ()) for record in run.rounds),
        "calls": len(run.attempts),
        "tokens": run.charged.tokens,
        "dollars": run.charged.dollars,
        "uncertain_tokens": run.uncertain.tokens,
        "uncertain_dollars": run.uncertain.dollars,
        "seconds": round(run.active_seconds, 3),
        "waits_for": [_asked(question) for question in run.open_questions],
    }


def _asked(question: "QuestionAsked") -> Mapping[str, object]:
    return {"step": question.step, "worker": question.worker, "asks": str(question.asks), "prompt": question.prompt}


def _explain_end(run: "Run") -> None:
    """Say on stderr what a person needs to know when a run did not simply end with an answer."""
    from shikisha.events import Status

    if run.status is Status.SUSPENDED:
        out.note(f"run {run.id} waits for a person:")
        for question in run.open_questions:
            say = _CHOICES[question.asks]
            planning = question.step is None
            place, choice = ("planning", "") if planning else (f"step {question.step}", f" --step {question.step}")
            out.note(f"  {place}, {question.worker}: {one_line(question.prompt, 70)}")
            out.note(f"    shikisha approve {run.id}{choice} {say}")
        out.note(f"then: shikisha resume {run.id}")
    elif run.status is not Status.DONE and run.finished is not None:
        out.note(f"run {run.id} {run.status}: {run.finished.why}")


_CHOICES = {
    "answer": "--answer TEXT",
    "approve": "yes|no",
    "review": "yes|no|--answer TEXT",
    "tools": "(its client answers)",
}


async def _open_questions(journal: "Journal", name: str) -> "list[tuple[Run, QuestionAsked]]":
    from shikisha.run import Run

    past = await session.family(journal, name)
    folded = [Run.fold(events) for events in past.values()]
    return [(run, question) for run in folded for question in run.open_questions if question.asks != "tools"]


def _chosen(questions: "list[tuple[Run, QuestionAsked]]", step: int | None) -> "tuple[Run, QuestionAsked]":
    fitting = [(run, question) for run, question in questions if step is None or question.step == step]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise TaskError("nothing is asked" + ("" if step is None else f" in step {step}"))
    places = ", ".join(f"--step {question.step} ({question.worker})" for _, question in fitting)
    raise TaskError(f"several questions are open; choose one: {places}")


def _said(question: "QuestionAsked", decision: str, answer: str | None, remark: str) -> "Decision":
    """Return the decision that the command line holds; TaskError where the question cannot be answered so."""
    from shikisha.approval import Decision
    from shikisha.cli.desk import actor
    from shikisha.events import QuestionKind

    if question.asks is QuestionKind.ANSWER and answer is None and decision != "no":
        raise TaskError(f"{question.worker!r} is a person who answers: use --answer TEXT, or no")
    if question.asks is QuestionKind.APPROVE and (answer is not None or decision not in ("yes", "no")):
        raise TaskError(f"a call to {question.worker!r} waits for approval: say yes or no")
    if question.asks is QuestionKind.REVIEW and (
        decision not in ("yes", "no", "") or (decision == "" and answer is None)
    ):
        raise TaskError("the run's answer waits for a review: say yes or no, or change it with --answer TEXT")
    if answer is not None and not answer.strip():
        raise TaskError("the answer is empty")
    text, said = session.storable(answer or "", "--answer"), session.storable(remark, "--remark")
    return Decision(decision != "no", actor(), text, "cli", said)
