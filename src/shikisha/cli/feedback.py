"""`feedback`: a person's word on a run's answer, kept as a grade beside those of checks and judges.

Invariant: a word is appended and never changed; of several the last counts, and executed grades go before all of them.
Deliberately absent: who somebody really is (the name is that of the account at this terminal), and any effect on the
run, which has ended.
"""

from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.running import OneRun
from shikisha.errors import TaskError

if TYPE_CHECKING:
    from shikisha.events import AnswerGraded

FEEDBACK = "feedback"
_LONGEST = 10_000  # characters of a remark
Right = Annotated[bool | None, typer.Option("--right/--wrong", help="Whether the answer is right.", show_default=False)]
Score = Annotated[float | None, typer.Option("--score", min=0, max=1, help="How good it is, from 0 to 1.")]
Note = Annotated[str, typer.Option("--note", help="Why, in words.")]


def feedback(run: OneRun, shared: Shared, right: Right = None, score: Score = None, note: Note = "") -> Exit:
    """Say whether a run's answer is right.

    Policies learn from it (learn --from-journal) and are compared by it (policy trial).
    """
    if (right is None) == (score is None):
        raise TaskError("how is the answer? expected --right, --wrong or --score X, one of them")
    worth = score if score is not None else float(right is True)
    if len(note) > _LONGEST:
        raise TaskError(f"--note: more than {_LONGEST:,} characters")
    said = session.storable(note, "--note")

    async def main() -> "AnswerGraded":
        from shikisha.run import Run

        async with session.reading(shared) as journal:
            name = await session.find_run(journal, run)
            told = Run.fold(await journal.read(name))
            if told.finished is None:
                raise TaskError(f"run {name} has not ended: there is nothing to judge yet")
            if told.answer is None:
                raise TaskError(f"run {name} ended without an answer: there is nothing to judge")
            word = _word(name, worth, said)
            journal.add(word)
            await journal.flush()
            return word

    word = session.perform(main)
    if shared.json:
        out.value({"run": word.run, "mark": str(word.mark), "score": word.score, "actor": word.actor})
    else:
        out.note(f"noted: run {word.run} is {word.mark}, says {word.actor}")
    return Exit.OK


def _word(run: str, score: float, said: str) -> "AnswerGraded":
    from shikisha.cli.desk import actor
    from shikisha.events import AnswerGraded, Mark

    mark = Mark.RIGHT if score >= 1 else Mark.WRONG if score <= 0 else Mark.PARTIAL
    return AnswerGraded(
        run=run, at=time(), checker=FEEDBACK, mark=mark, score=score, evidence=said, actor=actor() or "unknown"
    )
