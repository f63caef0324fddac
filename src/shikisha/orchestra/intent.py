"""What a plan is to be: its form, and by what its workers are chosen, said on one line before the lists are written.

    so two in turn: chain of two, by fit

It stands between a thought, which ends with the line's beginning, and the lists, so that which form a question needs is
one word, chosen directly after the kinds of work have been summed up, and not a property of three lists. Invariant: it
names a form and says whether the thought is followed (`fit`) or workers were drawn by `lot`; nothing of a question or a
pool is in it. Deliberately absent: which form is right. No parser and no reward reads it.
"""

from enum import StrEnum

from shikisha.plan import Plan

_BY = ", by "


class Form(StrEnum):
    """The forms of plans that lessons show, in equal shares."""

    ONE = "single"
    CHAIN_2 = "chain of two"
    CHAIN_3 = "chain of three"
    JOIN = "two and a join"
    VOTE = "readings and a vote"
    VOTE_FIRST = "readings, then one"
    VOTE_LAST = "one, then readings"


class Choice(StrEnum):
    """By what a plan's workers are chosen."""

    FIT = "fit"
    LOT = "lot"


def intent(form: Form, choice: Choice) -> str:
    """Return the line's end."""
    return f"{form}{_BY}{choice}\n"


def form_of(plan: Plan) -> Form:
    """Return the form that a plan is nearest to."""
    said = [step.subtask for step in plan.steps]
    match plan.topology():
        case "one-shot":
            return Form.ONE
        case "chain":
            return Form.CHAIN_2 if len(plan) == 2 else Form.CHAIN_3
        case "fan-out+join":
            return Form.JOIN if len(set(said[:-1])) == len(said) - 1 else Form.VOTE
    return Form.VOTE_LAST if len(plan.steps[-1].access) > 1 else Form.VOTE_FIRST


def pieces() -> tuple[str, ...]:
    """Return the texts that intents are made of, for a tokenizer that keeps each as one token."""
    return (*Form, _BY, *Choice)
