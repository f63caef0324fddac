"""The shapes of plans that lessons show, as plans of given workers, and the line that names one before its lists.

The name is for whoever writes the lists: their first one, the workers, could be that of several forms. No parser and no
reward reads it. Invariant: a form is a plan for any workers, whatever the question; its subtasks are the canonical
phrases. An edition's forms are as long as its thoughts (`forms_of`). Deliberately absent: who is put where, and how
often (`lessons`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shikisha.orchestra.compose import Block, compose
from shikisha.orchestra.edition import Edition
from shikisha.orchestra.instructions import PHRASES, Verb
from shikisha.plan import Plan

_SMALL_SLOTS = 3


class Form(StrEnum):
    """The shapes of plans that lessons show, in equal shares."""

    ONE = "one"
    CHAIN_2 = "chain of two"
    CHAIN_3 = "chain of three"
    JOIN = "two, then a join"
    VOTE = "readings and a vote"
    VOTE_FIRST = "readings, a vote, one more"
    VOTE_LAST = "one, readings, a vote"


class LongForm(StrEnum):
    """Those of more steps, which only editions with longer questions have; two arms of any length before a join."""

    CHAIN_4 = "chain of four"
    CHAIN_5 = "chain of five"
    JOIN_4 = "three in two arms, then a join"
    JOIN_5 = "four in two arms, then a join"


VOTING = frozenset({Form.VOTE, Form.VOTE_FIRST, Form.VOTE_LAST})
_CHAINS: tuple[Form | LongForm, ...] = (Form.ONE, Form.CHAIN_2, Form.CHAIN_3, LongForm.CHAIN_4, LongForm.CHAIN_5)
_JOINS: dict[int, Form | LongForm] = {3: Form.JOIN, 4: LongForm.JOIN_4, 5: LongForm.JOIN_5}
_AS = "as "
_COUNTS = {LongForm.CHAIN_4: 4, LongForm.CHAIN_5: 5, LongForm.JOIN_4: 4, LongForm.JOIN_5: 5}


@dataclass(frozen=True, slots=True)
class Cast:
    """Who does each kind of work, who votes, how many readings there are; `beside` is who takes one of them.

    `arm` is how many kinds the first arm of a long join has (its other arm has the rest).
    """

    kinds: Sequence[str]
    can: Sequence[int]
    judge: int = 0
    readings: int = 2
    beside: int | None = None
    arm: int = 1


def forms_of(edition: Edition) -> tuple[Form | LongForm, ...]:
    """Return an edition's forms."""
    return (*Form, *(LongForm if edition.slots > _SMALL_SLOTS else ()))


def named(form: Form | LongForm) -> str:
    """Return the line that says of which form a plan is; its lists follow."""
    return f"{_AS}{form}\n"


def pieces(edition: Edition) -> tuple[str, ...]:
    """Return the beginnings of these lines, for a tokenizer that keeps each as one token."""
    return tuple(f"\n{_AS}{form}" for form in forms_of(edition))


def plain_form(count: int, *, joined: bool) -> Form | LongForm:
    """Return the form that does so many kinds of work one by one, the last of them bringing the others together."""
    return _JOINS[count] if joined else _CHAINS[count - 1]


def form_of(plan: Plan) -> Form | LongForm:
    """Return the form that is nearest to a plan's."""
    last = len(plan.steps) - 1
    votes = [at for at, step in enumerate(plan.steps) if step.subtask == PHRASES[Verb.VOTE][0]]
    if votes:
        if votes[0] < last:
            return Form.VOTE_FIRST
        return Form.VOTE if len({step.subtask for step in plan.steps[:last]}) == 1 else Form.VOTE_LAST
    joined = len(plan.steps[last].access) > 1 and last + 1 in _JOINS
    return plain_form(last + 1, joined=joined)


def formed(form: Form | LongForm, cast: Cast) -> Plan:
    """Return the plan of this form."""
    if isinstance(form, LongForm):
        return _long(form, cast)
    kinds = list(cast.kinds)
    match form:
        case Form.ONE:
            return compose(kinds[:1], [()], [_one(cast, 0)])
        case Form.CHAIN_2:
            return compose(kinds[:2], [(), (0,)], [_one(cast, 0), _one(cast, 1)])
        case Form.CHAIN_3:
            return compose(kinds[:3], [(), (0,), (1,)], [_one(cast, at) for at in range(3)])
        case Form.JOIN:
            return compose(kinds[:3], [(), (), (0, 1)], [_one(cast, at) for at in range(3)])
        case Form.VOTE:
            return compose(kinds[:1], [()], [_vote(cast, 0, 4)])
        case Form.VOTE_FIRST:
            return compose(kinds[:2], [(), (0,)], [_vote(cast, 0, 3), _one(cast, 1)])
        case Form.VOTE_LAST:
            return compose(kinds[:2], [(), (0,)], [_one(cast, 0), _vote(cast, 1, 3)])


def _long(form: LongForm, cast: Cast) -> Plan:
    count = _COUNTS[form]
    uses: list[tuple[int, ...]] = [(at - 1,) if at else () for at in range(count)]
    if form in (LongForm.JOIN_4, LongForm.JOIN_5):
        arm = min(max(cast.arm, 1), count - 2)
        uses[arm], uses[-1] = (), (arm - 1, count - 2)
    return compose(list(cast.kinds)[:count], uses, [_one(cast, at) for at in range(count)])


def _one(cast: Cast, part: int) -> Block:
    return Block((part,), (cast.can[part],))


def _vote(cast: Cast, part: int, most: int) -> Block:
    times = min(cast.readings, most)
    others = () if cast.beside is None else (cast.beside,)
    return Block((part,), (*others, *(cast.can[part],) * (times - len(others))), cast.judge)
