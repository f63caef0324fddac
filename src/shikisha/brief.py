"""The briefing in as few words as it takes, for small models that were trained on exactly this form.

    ask what is the tally listed for kalo?
    0 $4 looks up facts in the register
    1 $5 a strong and dear general model
    plan

A line for the question, one (`given`) for its context and the end of the conversation before it where there is any, one
for each worker (ordinal, price level, description), one for each step of earlier rounds (`did`; one that came to the
same as an earlier step of its round says to which's: `did 2 =0 read the gauge: 47`), and `plan`: after it the model
writes. Invariant: whatever somebody else wrote (question, context, descriptions, answers) is put on one line, so no
line but our own begins with it, and it stands behind what that says. Deliberately absent: instructions and examples
(`prompt` has them, for models that read English), and workers' names.
"""

from collections.abc import Sequence
from math import log10

from shikisha.budget import Price, Usage
from shikisha.call import Card
from shikisha.run import Performed, Result
from shikisha.task import Task

_TYPICAL = Usage(100, 20)  # a call, to tell prices apart by
_LEVELS = 9  # the dearest price level: a dollar a call and more
_SHOWN = 200  # characters of an earlier answer
UNKNOWN = 0.05  # share of a briefing that a model may not know: own tasks have 4 % at most, everyday ones 12 % and more
_HEARD = 1_000  # of the conversation before the prompt, whose end says most of what the prompt means


def brief(task: Task, cards: Sequence[Card], rounds: Sequence[Performed] = ()) -> str:
    """Return the prompt; it ends where the plan's text begins."""
    lines = [f"ask {_flat(task.prompt)}"]
    given = " ".join([_flat(task.context), *_said(task)]).strip()
    if given:
        lines.append(f"given {given}")
    lines += [f"{number} {price_level(card.price)} {_flat(card.description)}" for number, card in enumerate(cards)]
    for past in rounds:
        lines += [
            f"did {step.worker} {_same(past.results, place)}{_flat(step.subtask)}: {_came(past.results[place])}"
            for place, step in enumerate(past.plan.steps)
        ]
    return "\n".join([*lines, "plan\n"])


def _said(task: Task) -> list[str]:
    """Return the end of the conversation before the prompt."""
    said = _flat(" ".join(f"{turn.speaker} {turn.text}" for turn in task.history if turn.text))
    return [said[-_HEARD:]] if said else []


def price_level(price: Price | None) -> str:
    """Return what a typical call costs as `$0` (free) to `$9` (a dollar or more), two levels a power of ten."""
    if price is None:
        return "$?"
    dollars = price.of(_TYPICAL)
    return f"${0 if dollars <= 0 else max(1, min(_LEVELS, round(_LEVELS + 2 * log10(dollars))))}"


def repeated(results: Sequence[Result], place: int) -> int | None:
    """Return the first step of a round with the same answer as the one at `place`; None where that is new, or none."""
    if _is_silent(results[place]):
        return None
    said = _flat(results[place].text or "")
    same = (at for at in range(place) if not _is_silent(results[at]) and _flat(results[at].text or "") == said)
    return next(same, None)


def _same(results: Sequence[Result], place: int) -> str:
    earlier = repeated(results, place)
    return "" if earlier is None else f"={earlier} "


def _came(result: Result) -> str:
    return "nothing" if _is_silent(result) else _flat(result.text or "")[:_SHOWN]


def _is_silent(result: Result) -> bool:
    return result.text is None or result.fault is not None


def _flat(text: str) -> str:
    return " ".join(text.split())
