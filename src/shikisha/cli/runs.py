"""Looking at runs afterwards: `runs`, `trace`, `explain`.

`feedback`: a person's word on a run's answer, kept as a grade beside those of checks and judges.

Invariant: a word is appended and never changed; of several the last counts, and executed grades go before all of them.
Deliberately absent: who somebody really is (the name is that of the account at this terminal), and any effect on the
run, which has ended.

`release`: let servers perform a run again that they quarantined because it took some of them down.

Invariant: it is in the audit of the keys, under the name of the account at this terminal. Deliberately absent:
performing it here (`resume` does, away from every server).

`rollback`: undo what the calls of a run did, as far as compensating workers are registered for them.

Invariants: what could not be undone is named, and ends the command with an error; nobody else rolls the run back
meanwhile, no server and no other command. Deliberately absent: choosing among effects (a run's calls hang together),
and any change to the run's answer.
"""

import json
from dataclasses import asdict
from functools import partial
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.cli.run import OneRun, RunId, run_summary
from shikisha.core.budget import format_dollars
from shikisha.core.errors import TaskError
from shikisha.core.text import one_line

if TYPE_CHECKING:
    from shikisha.core.run import Run
    from shikisha.journal import RunOverview

_CHILDREN_PER_RUN = 5  # how many child runs a run is expected to have, when a page of runs is fetched
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")]
Children = Annotated[bool, typer.Option("--children", help="List child runs too.")]
Answers = Annotated[bool, typer.Option("--answers", help="Show the beginning of each step's answer too.")]


def runs(
    shared: SharedOptions,
    limit: Limit = 20,
    status: Annotated[str, typer.Option("--status", help="Only runs of this status.")] = "",
    children: Children = False,
) -> ExitCode:
    """List the newest runs."""
    from shikisha.core.events import RunStatus

    if status and status not in list(RunStatus):
        raise TaskError(f"unknown status {status!r}: known are {', '.join(RunStatus)}")

    async def main() -> "tuple[RunOverview, ...]":
        async with session.open_existing_journal(shared) as journal:
            found = await journal.runs(limit=limit * _CHILDREN_PER_RUN, status=RunStatus(status) if status else None)
            return tuple(run for run in found if children or run.parent is None)[:limit]

    listed = session.run_async(main)
    if shared.json:
        output.print_json([_summary_json(run) for run in listed])
    else:
        rows = ((run.id, str(run.status), format_dollars(run.dollars), run.prompt) for run in listed)
        output.print_table(("run", "status", "cost", "task"), rows, right=("cost",))
    return ExitCode.OK


def trace(shared: SharedOptions, run: RunId = session.NEWEST_RUN, answers: Answers = False) -> ExitCode:
    """Show a run as a tree.

    Rounds, steps, attempts, checks, child runs; with --json every event.
    """

    from shikisha.core.run import Run

    async def main() -> tuple[dict[str, Run], list[object]]:
        async with session.open_existing_journal(shared) as journal:
            past = await session.read_run_family(journal, await session.find_run(journal, run))
            lines = [json.loads(line) for name in past if shared.json async for line in journal.export(name)]
            return {name: Run.fold(events) for name, events in past.items()}, lines

    folded, events = session.run_async(main)
    root = next(iter(folded.values()))
    if shared.json:
        output.print_json({**run_summary(root), "events": events})
        return ExitCode.OK
    from shikisha.cli.progress import RunTreeView, run_tree

    screen = output.make_console(to_stdout=True)
    screen.print(one_line(root.task.prompt, 1000), style="italic")
    screen.print(run_tree(RunTreeView(folded, answers=answers), root.id))
    return ExitCode.OK


def explain(shared: SharedOptions, run: RunId = session.NEWEST_RUN) -> ExitCode:
    """Say why a run went as it did.

    Why these workers, what each saw and what was withheld, what was retried, escalated or approved, what it cost.
    """
    from shikisha.explain import explain as explained
    from shikisha.explain import explain_text

    root, *children = session.run_async(lambda: _read_family(shared, run))
    story = explained(root, children)
    if shared.json:
        output.print_json(asdict(story))
    else:
        output.print_report(explain_text(story))
    return ExitCode.OK


async def _read_family(shared: SharedOptions, run: str) -> "list[Run]":
    from shikisha.core.run import Run

    async with session.open_existing_journal(shared) as journal:
        past = await session.read_run_family(journal, await session.find_run(journal, run))
        return [Run.fold(events) for events in past.values()]


def _summary_json(run: "RunOverview") -> dict[str, object]:
    return {
        "run": run.id,
        "status": str(run.status),
        "conductor": run.conductor,
        "started_at": run.started_at,
        "prompt": run.prompt,
        "tokens": run.tokens,
        "dollars": run.dollars,
        "uncertain_tokens": run.uncertain.tokens,
        "uncertain_dollars": run.uncertain.dollars,
        "parent": run.parent,
    }


if TYPE_CHECKING:
    from shikisha.core.events import AnswerGraded

FEEDBACK_CHECKER = "feedback"
_MAX_NOTE = 10_000  # characters of a remark
Right = Annotated[bool | None, typer.Option("--right/--wrong", help="Whether the answer is right.", show_default=False)]
Score = Annotated[float | None, typer.Option("--score", min=0, max=1, help="How good it is, from 0 to 1.")]
FeedbackNote = Annotated[str, typer.Option("--note", help="Why, in words.")]


def feedback(
    run: OneRun, shared: SharedOptions, right: Right = None, score: Score = None, note: FeedbackNote = ""
) -> ExitCode:
    """Say whether a run's answer is right.

    Policies learn from it (learn --from-journal) and are compared by it (policy trial).
    """
    if (right is None) == (score is None):
        raise TaskError("how is the answer? expected --right, --wrong or --score X, one of them")
    worth = score if score is not None else float(right is True)
    if len(note) > _MAX_NOTE:
        raise TaskError(f"--note: more than {_MAX_NOTE:,} characters")
    said = session.require_storable(note, "--note")

    async def main() -> "AnswerGraded":
        from shikisha.core.run import Run

        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run)
            told = Run.fold(await journal.read(name))
            if told.finished is None:
                raise TaskError(f"run {name} has not ended: there is nothing to judge yet")
            if told.answer is None:
                raise TaskError(f"run {name} ended without an answer: there is nothing to judge")
            word = _feedback_event(name, worth, said)
            journal.add(word)
            await journal.flush()
            return word

    word = session.run_async(main)
    if shared.json:
        output.print_json({"run": word.run, "mark": str(word.mark), "score": word.score, "actor": word.actor})
    else:
        output.print_note(f"noted: run {word.run} is {word.mark}, says {word.actor}")
    return ExitCode.OK


def _feedback_event(run: str, score: float, said: str) -> "AnswerGraded":
    from shikisha.cli.approval_prompt import current_user
    from shikisha.core.events import AnswerGraded, GradeMark

    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return AnswerGraded(
        run=run,
        at=time(),
        checker=FEEDBACK_CHECKER,
        mark=mark,
        score=score,
        evidence=said,
        actor=current_user() or "unknown",
    )


def release(run: OneRun, shared: SharedOptions) -> ExitCode:
    """Let servers perform a quarantined run again.

    A run is quarantined when it took a server down twice; `shikisha explain` says so.
    """

    async def main() -> str:
        from shikisha.cli.approval_prompt import current_user
        from shikisha.server.keys import KeyManager
        from shikisha.server.store import claims

        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run)
            if not await journal.write(partial(claims.release_quarantined, run=name)):
                raise TaskError(f"run {name} is not quarantined")
            await KeyManager(journal).note(f"cli:{current_user()}", "run.released", name)
            return name

    name = session.run_async(main)
    if shared.json:
        output.print_json({"run": name, "released": True})
    output.print_note(f"released: the next server takes run {name} up again")
    return ExitCode.OK


if TYPE_CHECKING:
    from collections.abc import Mapping

    from shikisha.core.events import EffectKept, EffectUndone
    from shikisha.core.run import Run

Note = Annotated[str, typer.Option("--note", help="Why, in words.")]


def rollback(run: OneRun, shared: SharedOptions, note: Note = "") -> ExitCode:
    """Undo what a run's calls did, by the compensating workers of the configuration.

    Newest first, its child runs' calls included; what is undone already is not undone again.
    """
    said = session.require_storable(note, "--note")

    async def main() -> "tuple[Run, Run]":
        from shikisha.cli.approval_prompt import current_user
        from shikisha.core.run import Run
        from shikisha.engine.compensation import RollbackOrder
        from shikisha.engine.engine import Engine

        async with (
            session.open_container(session.load_container(shared)) as composition,
            session.open_existing_journal(shared) as journal,
        ):
            name = await session.find_run(journal, run)
            async with session.exclusive_run(journal, name, composition.settings.server.lease):
                past = Run.fold(await journal.read(name))
                pool = composition.pool(past.started.pool)
                engine = Engine(journal, vault=composition.vault, guarded=composition.guarded_labels)
                return past, await engine.undo(past.id, pool, RollbackOrder(current_user(), said, again=True))

    before, after = session.run_async(main)
    became = after.effects
    if shared.json:
        output.print_json({"run": after.id, "effects": [_effect_json(effect) for effect in became.values()]})
    else:
        _print_effects(before, after)
    return ExitCode.OK if all(_was_undone(effect) for effect in became.values()) else ExitCode.FAILED


def _print_effects(before: "Run", after: "Run") -> None:
    if not after.effects:
        output.print_note(f"run {after.id} has no effect that anybody could undo")
    elif before.effects == after.effects:
        output.print_note(f"run {after.id} is rolled back already, as far as that goes:")
    for effect in after.effects.values():
        said = "undone" if _was_undone(effect) else f"kept: {one_line(getattr(effect, 'message', ''), 100)}"
        output.print_note(f"  {effect.effect} ({effect.worker}, by {effect.by}): {said}")


def _was_undone(effect: "EffectUndone | EffectKept") -> bool:
    return effect.kind == "effect.undone"


def _effect_json(effect: "EffectUndone | EffectKept") -> "Mapping[str, object]":
    fault = getattr(effect, "fault", None)
    return {
        "call": effect.effect,
        "worker": effect.worker,
        "by": effect.by,
        "undone": _was_undone(effect),
        "fault": str(fault) if fault else None,
        "message": getattr(effect, "message", ""),
    }
