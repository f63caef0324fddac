"""Commands that act on runs of the journal: `feedback` and `rollback` (`history` shows them), and release.

Invariants: feedback is appended and never changed; of several grades the last counts, and executed grades take
precedence. A rollback claims its run, names every effect that could not be undone, and then ends with an error. A
release is recorded in the audit of the keys. The actor is the account at this terminal.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import time
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.approval_prompt import current_user
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import OneRun, SharedOptions
from shikisha.core.errors import TaskError
from shikisha.core.events import AnswerGraded, EffectKept, EffectUndone, GradeMark
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.engine.compensation import RollbackOrder
from shikisha.engine.engine import Engine
from shikisha.server import store

FEEDBACK_GRADER = "feedback"
_MAX_NOTE, _MAX_EDITED, _LONG_ANSWER = 10_000, 1_000_000, 20_000  # characters


Right = Annotated[bool | None, typer.Option("--right/--wrong", help="Whether the answer is right.", show_default=False)]
Score = Annotated[float | None, typer.Option("--score", min=0, max=1, help="How good the answer is, from 0 to 1.")]
Accepted = Annotated[
    bool | None, typer.Option("--accepted/--rejected", help="What became of the answer.", show_default=False)
]
Edited = Annotated[
    Path | None, typer.Option("--edited", metavar="FILE", help="The answer as it was used, after changes by hand.")
]
Note = Annotated[str, typer.Option("--note", help="The reason, for the journal.")]


def feedback(
    run: OneRun,
    shared: SharedOptions,
    right: Right = None,
    score: Score = None,
    note: Note = "",
    accepted: Accepted = None,
    edited: Edited = None,
) -> ExitCode:
    """Grade the answer of a run.

    What became of it is a grade, too: accepted counts 1, rejected 0, and edited the share of the answer that was kept.

    Policies learn from feedback (learn --from-journal) and are compared by it (policy promote).
    """
    if sum(one is not None for one in (right, score, accepted, edited)) != 1:
        raise TaskError("expected --right, --wrong, --score X, --accepted, --rejected or --edited FILE, one of them")
    text = None if edited is None else _read_edited(edited)
    if len(note) > _MAX_NOTE:
        raise TaskError(f"--note: more than {_MAX_NOTE:,} characters")
    remark = session.require_storable(note, "--note")

    async def main() -> AnswerGraded:
        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run)
            past = Run.fold(await journal.read(name))
            if past.finished is None:
                raise TaskError(f"run {name} has not ended: there is nothing to grade yet")
            if past.answer is None:
                raise TaskError(f"run {name} ended without an answer: there is nothing to grade")
            if text is not None:
                value, kept = kept_share(past.answer, text), "edited"
            else:
                value = score if score is not None else float(right is True or accepted is True)
                kept = "" if accepted is None else "accepted" if accepted else "rejected"
            graded = replace(_feedback_event(name, value, ": ".join(filter(None, (kept, remark)))), found=text)
            journal.add(graded)
            await journal.flush()
            return graded

    graded = session.run_async(main)
    if shared.json:
        output.print_json({"run": graded.run, "mark": str(graded.mark), "score": graded.score, "actor": graded.actor})
    else:
        output.print_note(f"noted: run {graded.run} is {graded.mark}, says {graded.actor}")
    return ExitCode.OK


def _read_edited(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(_MAX_EDITED + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--edited {file}: expected a text in UTF-8: {error}") from None
    if len(text) > _MAX_EDITED:
        raise TaskError(f"--edited {file}: more than {_MAX_EDITED:,} characters")
    return session.require_storable(text, "--edited")


def kept_share(answer: str, edited: str) -> float:
    """Return which share of an answer's lines, or of its words where it is short, is in the text as it was used.

    1 only for the answer itself, but for white space at its ends; an answer of which something was kept is above 0.
    """
    if answer.strip() == edited.strip():
        return 1.0
    long = len(answer) > _LONG_ANSWER
    before, after = (text.splitlines() if long else text.split() for text in (answer, edited))
    left, kept = Counter(after), 0
    for one in before:
        if left[one]:
            left[one] -= 1
            kept += 1
    return min(0.99, kept / max(1, len(before), len(after)))


def _feedback_event(run: str, score: float, remark: str) -> AnswerGraded:
    mark = GradeMark.RIGHT if score >= 1 else GradeMark.WRONG if score <= 0 else GradeMark.PARTIAL
    return AnswerGraded(
        run=run,
        at=time(),
        checker=FEEDBACK_GRADER,
        mark=mark,
        score=score,
        evidence=remark,
        actor=current_user(),
    )


def release(run: str, shared: SharedOptions) -> ExitCode:
    """Let servers perform a quarantined run again."""

    from shikisha.server.keys import KeyManager  # with SQLAlchemy, which most commands here do without

    async def main() -> str:
        async with session.open_existing_journal(shared) as journal:
            name = await session.find_run(journal, run)
            if not await journal.write(partial(store.release_quarantined, run=name)):
                raise TaskError(f"run {name} is not quarantined")
            await KeyManager(journal).note(f"cli:{current_user()}", "run.released", name)
            return name

    name = session.run_async(main)
    if shared.json:
        output.print_json({"run": name, "released": True})
    output.print_note(f"released: a server will continue run {name}")
    return ExitCode.OK


def rollback(run: OneRun, shared: SharedOptions, note: Note = "") -> ExitCode:
    """Undo the effects of a run's calls.

    The configured compensating workers undo them, the newest first, with those of child runs. What is undone already is
    not undone again.
    """
    remark = session.require_storable(note, "--note")

    async def main() -> tuple[Run, Run]:
        async with (
            session.open_container(shared) as container,
            session.open_existing_journal(shared) as journal,
        ):
            name = await session.find_run(journal, run)
            async with session.exclusive_run(journal, name, container.settings.server.lease):
                past = Run.fold(await journal.read(name))
                pool = container.pool(past.started.pool)
                engine = Engine(journal, secret_store=container.secret_store, guarded_labels=container.guarded_labels)
                return past, await engine.undo(past.id, pool, RollbackOrder(current_user(), remark, again=True))

    before, after = session.run_async(main)
    effects = after.effects.values()
    if shared.json:
        output.print_json({"run": after.id, "effects": [_effect_json(effect) for effect in effects]})
    else:
        if not after.effects:
            output.print_note(f"run {after.id} has no effect that could be undone")
        elif before.effects == after.effects:
            output.print_note(f"run {after.id} is already rolled back as far as possible:")
        for effect in after.effects.values():
            outcome = "undone" if _was_undone(effect) else f"kept: {one_line(getattr(effect, 'message', ''), 100)}"
            output.print_note(f"  {effect.effect} ({effect.worker}, by {effect.by}): {outcome}")
    return ExitCode.OK if all(_was_undone(effect) for effect in effects) else ExitCode.FAILED


def _was_undone(effect: EffectUndone | EffectKept) -> bool:
    return effect.kind == "effect.undone"


def _effect_json(effect: EffectUndone | EffectKept) -> Mapping[str, object]:
    fault = getattr(effect, "fault", None)
    return {
        "call": effect.effect,
        "worker": effect.worker,
        "by": effect.by,
        "undone": _was_undone(effect),
        "fault": str(fault) if fault else None,
        "message": getattr(effect, "message", ""),
    }
