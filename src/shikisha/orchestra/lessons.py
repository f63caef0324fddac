"""Lessons for a warm start: how questions and descriptions are read, how plans are written, and never which to write.

A lesson is a prompt, a thought and a plan. *Readings* teach the thought that is true of the prompt, with some words of
the prompt struck out, of descriptions above all those that say nothing of a kind of work. *Drills* show a random
thought, which is not taught, and teach a plan that follows it. *Plans* teach the true thought and a plan whose workers,
and half of whose kinds, are drawn by lot; *encores* the same after a first round, whose answer half of them keep. A
plan's shape is drawn by lot in every lesson, whatever the question, and named before the lists; only votes need
somebody in the pool who takes them, and their readings are one worker's, whoever that is. So after the lessons a model
reads, and can do what a thought says, but does not know which shape a question needs, or that following a thought pays:
that is left for outcomes to teach. *Turns* teach to read one kind of work after others that are drawn by lot, so that
none is ruled out by what never came before it. A share of the questions makes no sense (`odd`), so that kinds of work
are read one by one and not by which of them usually come together; for the same reason readings describe some workers
twofold, those beside reinforcement more. `follow` is the share of plans that follow a true thought nevertheless.
Invariant: a lesson is a function of (seed, index, recipe); only the training split's words, names and workers are in
it, and in its question only compositions of that split. Deliberately absent, unless asked for: best plans. Their share,
`best`, is zero; it is there for controls, which are shown what reinforcement has to find out.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, takewhile
from itertools import count as counting

from shikisha.brief import brief
from shikisha.orchestra.chance import dice
from shikisha.orchestra.edition import EVERYONE, LARGE, SMALL, Edition
from shikisha.orchestra.encore import KEPT, came, played
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.forms import VOTING, Cast, Form, LongForm, form_of, formed, forms_of, named, plain_form
from shikisha.orchestra.grammar import write
from shikisha.orchestra.instructions import PHRASES
from shikisha.orchestra.odd import odd_question, odd_shape
from shikisha.orchestra.optimal import best, profiles
from shikisha.orchestra.pools import Auditions, Casting, cast_pool, describe, draw_cast
from shikisha.orchestra.question import Question
from shikisha.orchestra.shapes import Shape, groups
from shikisha.orchestra.tasks import Recipe, any_shape, fill, item
from shikisha.orchestra.thought import Thought, fit_for, thought_of
from shikisha.orchestra.wording import Split
from shikisha.plan import Plan
from shikisha.prompt import render_lists
from shikisha.task import Task

STRUCK = "~"  # stands for a word that was struck out
_HELD, _FALLING = 0.5, 0.3  # of the lessons: `follow` stays as it begins, then falls
_EMPTY = 5.0  # times as often as others, words of descriptions are struck out that several kinds of work share
_LIST = "model_id = ["  # how a plan's lists begin
_READINGS = 1_000  # added to the seed of readings beside reinforcement
_ALIKE = 2  # workers of a pool in which there is next to nothing to read
_FEW = (2, 3)  # workers in a drill's prompt
_BESIDE = 0.1  # of the votes: a model takes one of the readings
_VOTES = 4  # readings that are voted on, where there is room: two that differ decide nothing
_VOTED = 0.4  # of the first rounds of encores
_VOTABLE = 0.15  # of questions, besides: something is read with noise, and somebody takes votes
_JUDGED = 0.8  # of drills: somebody takes votes
_TWICE = 0.5  # of the workers with one skill, in a reading with twofold ones
_LACKING = 0.2  # of demonstrations: a specialist is missing, and a model stands in


@dataclass(frozen=True, slots=True)
class Curriculum:
    """What lessons are drawn: shares of drills, plans, second rounds and turns (the rest: readings).

    `follow` is how often a plan follows; `noise` is the share of the prompt's words that are struck out in readings and
    drills; `sizes` of pools. `best` is the share of plans that are demonstrations: the optimal policy's plan for a task
    that the pool can do. `odd` is the share of questions without sense, `twofold` that of readings in which workers
    with one skill are described twofold (`_twofold`).
    """

    drills: float = 0.22
    plans: float = 0.32
    encores: float = 0.12
    turns: float = 0.1
    follow: float = 0.15
    noise: float = 0.06
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    parts: tuple[float, ...] = (0.25, 0.35, 0.4)
    best: float = 0.0
    odd: float = 0.25
    twofold: float = 0.3
    edition: Edition = SMALL


LARGE_CURRICULUM = Curriculum(sizes=tuple(range(3, 11)), parts=(0.15, 0.2, 0.2, 0.2, 0.25), edition=LARGE)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A prompt, what is shown after it but not taught, and what is taught."""

    prompt: str
    shown: str
    taught: str
    whole: bool = True  # whether the text ends there


def lessons(seed: int, curriculum: Curriculum = Curriculum(), first: int = 0) -> Iterator[Lesson]:
    """Yield lessons without end."""
    return (lesson(seed, index, curriculum) for index in counting(first))


def schooling(
    seed: int, begin: float, end: float, best: float = 0.0, edition: Edition = SMALL
) -> Callable[[int, float], Lesson]:
    """Return the lesson of each index when a share of the lessons is done: `follow` falls from begin to end at last."""

    drawn = curriculum_of(edition)

    def taught(index: int, done: float) -> Lesson:
        fallen = min(1.0, max(0.0, done - _HELD) / _FALLING)
        return lesson(seed, index, replace(drawn, follow=begin + (end - begin) * fallen, best=best))

    return taught


def readings(seed: int, edition: Edition = SMALL) -> Callable[[int, float], Lesson]:
    """Return lessons by index that teach to read, and nothing else, pools of the sizes that tasks do not bring.

    A few are turns, whose pools are small.
    """
    drawn = curriculum_of(edition)
    sizes = tuple(size for size in drawn.sizes if size > _ALIKE and size not in edition.sizes)
    drawn = replace(drawn, drills=0.0, plans=0.0, encores=0.0, sizes=sizes, twofold=0.5)
    return lambda index, _: lesson(seed + _READINGS, index, drawn)


def copies(seed: int, edition: Edition = SMALL) -> Callable[[int, float], Lesson]:
    """Return lessons by index in writing down an ordinal of the thought, in pools larger than any of the tasks.

    The list is shown up to there; what is taught is the ordinal alone, neither whether the list goes on nor what of.
    """
    drawn, least = curriculum_of(edition), max(edition.sizes)
    sizes = tuple(size for size in drawn.sizes if size > least)

    def copied(index: int, _: float) -> Lesson:
        draw = dice("copy", seed, index)
        while True:
            casting, shape = _scene(sizes, drawn, draw)
            thought = thought_of(shape, casting, edition)
            able = list(takewhile(lambda ordinal: ordinal is not None, thought.can))
            if able:
                place = draw.randrange(len(able))
                begun = "".join(f"{ordinal}, " for ordinal in able[:place])
                prompt = _asked(casting, fill(shape, Split.TRAIN, draw)[0], drawn, draw)
                form = plain_form(len(thought.kinds), joined=thought.joined)
                return Lesson(prompt, f"{thought.text()}{named(form)}{_LIST}{begun}", str(able[place]), whole=False)

    return copied


def curriculum_of(edition: Edition) -> Curriculum:
    """Return what an edition's lessons are drawn by."""
    return Curriculum() if edition is SMALL else LARGE_CURRICULUM


def phrases(edition: Edition = SMALL) -> tuple[str, ...]:
    """Return every subtask that lessons' plans may have."""
    told = (phrase for name in edition.families for phrase in FAMILIES[name].tell)
    return (*told, *chain.from_iterable(PHRASES.values()))


def lesson(seed: int, index: int, curriculum: Curriculum = Curriculum()) -> Lesson:
    """Return one lesson."""
    draw = dice("lesson", seed, index)
    kind = draw.random()
    if kind < curriculum.drills:
        return _drill(curriculum, draw)
    is_plan = kind < curriculum.drills + curriculum.plans
    if is_plan and curriculum.best and draw.random() < curriculum.best:
        return _demonstration(seed, index, curriculum)
    rounds = curriculum.drills + curriculum.plans + curriculum.encores
    if not is_plan and kind < rounds + curriculum.turns:
        return _encore(curriculum, draw) if kind < rounds else _turn(curriculum, draw)
    casting, shape = _scene(curriculum.sizes, curriculum, draw)
    if draw.random() < curriculum.odd:
        shape = odd_shape(curriculum.edition, len(shape.operations), draw)
        question = odd_question(shape, Split.TRAIN, draw)
    else:
        question, _ = fill(shape, Split.TRAIN, draw)
    if not is_plan and curriculum.twofold and draw.random() < curriculum.twofold:
        return _twofold(casting, shape, question, curriculum, draw)
    prompt, thought = _asked(casting, question, curriculum, draw), thought_of(shape, casting, curriculum.edition)
    if is_plan:
        plan = _told(*_planned(thought, len(casting), curriculum.follow, draw))
        return Lesson(prompt, "", thought.text() + plan)
    return Lesson(_struck(prompt, curriculum, draw), "", thought.text()[:-1], whole=False)


def _twofold(casting: Casting, shape: Shape, question: Question, curriculum: Curriculum, draw: random.Random) -> Lesson:
    """Return a reading in which workers with one skill are described twice over, or as somebody of the pool besides.

    Training knows few pairs of skills in one worker, and who reads many lessons comes to tell the second skill by the
    first. Here anything may follow that is no skill of another kind. Who is fit for what is as it was.
    """
    thought = thought_of(shape, casting, curriculum.edition)
    said, roll = list(casting), list(thought.roll)
    others = [(text, *does) for (name, text), does in zip(casting, roll, strict=True) if not EVERYONE[name].skills]
    for place, (name, text) in enumerate(casting):
        if len(EVERYONE[name].skills) == 1 and draw.random() < _TWICE:
            again = (describe(EVERYONE[name], Split.TRAIN, draw), *roll[place])
            both = [(text, *roll[place]), draw.choice([again, *others])]
            draw.shuffle(both)
            said[place] = (name, " and ".join(one[0] for one in both))
            roll[place] = tuple(one[1] for one in both)
    prompt = _asked(tuple(said), question, curriculum, draw)
    return Lesson(_struck(prompt, curriculum, draw), "", replace(thought, roll=tuple(roll)).text()[:-1], whole=False)


def _turn(curriculum: Curriculum, draw: random.Random) -> Lesson:
    """Return a lesson in reading one kind of work, whatever was named before it: those kinds are drawn by lot.

    Some kinds never follow one another in training, and who goes by what it wrote itself comes to rule that out,
    whatever the question says.
    """
    parts = (0.0, *curriculum.parts[1:])
    casting, shape = _scene(_FEW, replace(curriculum, parts=parts), draw)
    shape = odd_shape(curriculum.edition, len(shape.operations), draw)
    prompt = _asked(casting, odd_question(shape, Split.TRAIN, draw), curriculum, draw)
    thought = thought_of(shape, casting, curriculum.edition)
    place = draw.randrange(1, len(thought.kinds))
    kinds = (*draw.choices(thought.known, k=place), *thought.kinds[place:])
    can = tuple(fit_for(kind, [name for name, _ in casting]) for kind in kinds)
    shown, taught = replace(thought, kinds=kinds, can=can).before(place)
    return Lesson(_struck(prompt, curriculum, draw), shown, taught, whole=False)


def _demonstration(seed: int, index: int, curriculum: Curriculum) -> Lesson:
    """Return a task as reinforcement would draw it, its true thought, and the plan with the best chance."""
    one = item(
        Split.TRAIN,
        seed,
        index,
        Recipe(curriculum.parts, _LACKING, Auditions(curriculum.sizes), edition=curriculum.edition),
    )
    parts = one.question.parts
    shape = Shape(tuple(part.operation for part in parts), tuple(part.uses for part in parts))
    plan = best(one.question, profiles(one.pool.cards)).plan
    return Lesson(
        brief(one.task, one.pool.cards),
        "",
        thought_of(shape, one.casting, one.edition).text() + _told(plan, form_of(plan)),
    )


def _encore(curriculum: Curriculum, draw: random.Random) -> Lesson:
    """Return a lesson whose prompt shows a first round; whether its answer is kept is drawn by lot.

    A share of the first rounds are votes on noisy readings, so that there are some that readings do not agree with.
    """
    casting, shape = _scene(curriculum.sizes, curriculum, draw)
    voted = draw.random() < _VOTED
    while voted and not _can_vote(thought_of(shape, casting, curriculum.edition)):
        casting, shape = _scene(curriculum.sizes, curriculum, draw)
    thought, pool = thought_of(shape, casting, curriculum.edition), cast_pool(casting)
    question, _ = fill(shape, Split.TRAIN, draw)
    task = Task(write(question, Split.TRAIN, draw, curriculum.edition.slots))
    if voted:
        first = _following(thought, draw.choice((Form.VOTE, Form.VOTE_FIRST)), len(casting), draw)
    else:
        first, _ = _planned(thought, len(casting), 0.5, draw)
    performed = played(first, task, pool, draw)
    prompt = brief(task, pool.cards, (performed,))
    if draw.random() < 0.5:
        return Lesson(prompt, "", came(performed) + KEPT)
    plan = _told(*_planned(thought, len(casting), curriculum.follow, draw))
    return Lesson(prompt, "", came(performed) + thought.text() + plan)


def _can_vote(thought: Thought) -> bool:
    """Whether the first kind of work is noisy, and there is somebody to read and somebody to take the vote."""
    return FAMILIES[thought.kinds[0]].noisy and thought.can[0] is not None and thought.judge is not None


def _planned(thought: Thought, size: int, follow: float, draw: random.Random) -> tuple[Plan, Form | LongForm]:
    """Return a plan of any form, and that form; it follows the thought as often as `follow` says."""
    follows, form = draw.random() < follow, _form(thought, draw)
    return (_following if follows else _by_lot)(thought, form, size, draw), form


def _told(plan: Plan, form: Form | LongForm) -> str:
    """Return what is written of a plan: its form, in words that nobody reads, and its lists."""
    return named(form) + render_lists(plan)


def _form(thought: Thought, draw: random.Random) -> Form | LongForm:
    """Draw a form, whatever the question: one with a vote only where somebody takes votes."""
    forms = forms_of(thought.edition)
    return draw.choice([form for form in forms if thought.judge is not None or form not in VOTING])


def _drill(curriculum: Curriculum, draw: random.Random) -> Lesson:
    """Return a random thought and a plan that follows it, after a short prompt that has nothing to do with either."""
    casting, shape = _scene(_FEW, curriculum, draw)
    size, thought = _imagined(curriculum, draw)
    form = _form(thought, draw)
    plan = _following(thought, form, size, draw)
    prompt = _asked(casting, fill(shape, Split.TRAIN, draw)[0], curriculum, draw)
    return Lesson(_struck(prompt, curriculum, draw), thought.text()[:-1], f"\n{_told(plan, form)}")


def _asked(casting: Casting, question: Question, curriculum: Curriculum, draw: random.Random) -> str:
    return brief(Task(write(question, Split.TRAIN, draw, curriculum.edition.slots)), cast_pool(casting).cards)


def _scene(sizes: tuple[int, ...], curriculum: Curriculum, draw: random.Random) -> tuple[Casting, Shape]:
    """Draw a pool and a question's shape; a share of them are drawn until something can be voted on."""
    votable = max(sizes) > _ALIKE and draw.random() < _VOTABLE
    while True:
        casting, shape = _any_scene(sizes, curriculum, draw)
        if not votable or thought_of(shape, casting, curriculum.edition).votable:
            return casting, shape


def _any_scene(sizes: tuple[int, ...], curriculum: Curriculum, draw: random.Random) -> tuple[Casting, Shape]:
    edition, parts = curriculum.edition, curriculum.parts
    count = 1 + draw.choices(range(len(parts)), parts)[0]
    auditions = Auditions(sizes, judge=0.5, single=draw.choice((0.3, 0.65)))
    if not edition.listed:
        return draw_cast(auditions, Split.TRAIN, draw, edition), _any_shape(edition, count, draw)
    known = [group for group in groups(count, edition) if not group.held_out]
    return draw_cast(auditions, Split.TRAIN, draw, edition), draw.choice(draw.choice(known).shapes)


def _any_shape(edition: Edition, count: int, draw: random.Random) -> Shape:
    everything = frozenset(edition.families)
    while (shape := any_shape(edition, count, everything, 0, held_out=False, draw=draw)) is None:
        pass
    return shape


def _struck(prompt: str, curriculum: Curriculum, draw: random.Random) -> str:
    """Strike out words of what others wrote; in descriptions those oftener that say nothing of a kind of work."""
    noise, shared = curriculum.noise, _shared(curriculum.edition)
    lines = []
    for line in prompt.split("\n"):
        mark, _, rest = line.partition(" ")
        empty = shared if mark.isdigit() else frozenset[str]()
        words = [
            STRUCK if word.isalpha() and draw.random() < noise * (_EMPTY if word in empty else 1) else word
            for word in rest.split(" ")
        ]
        lines.append(f"{mark} {' '.join(words)}" if rest else line)
    return "\n".join(lines)


@cache
def _shared(edition: Edition) -> frozenset[str]:
    """Return the words that training's descriptions of several kinds of work have in common ("is good at")."""
    found = Counter(
        word
        for profile in edition.specialists
        for word in {word for text in profile.offers[0].by_split[Split.TRAIN] for word in text.split()}
    )
    return frozenset(word for word, kinds in found.items() if kinds > 1)


def _imagined(curriculum: Curriculum, draw: random.Random) -> tuple[int, Thought]:
    """Draw a pool's size and a thought by lot: the true one of some other question and pool.

    Mostly somebody there takes votes, so that plans with a vote are shown about as often as others.
    """
    judged = draw.random() < _JUDGED
    while True:
        size = draw.choice(curriculum.sizes)
        casting, shape = _scene((size,), curriculum, draw)
        thought = thought_of(shape, casting, curriculum.edition)
        if thought.judge is not None or not judged:
            return size, thought


def _following(thought: Thought, form: Form | LongForm, size: int, draw: random.Random) -> Plan:
    """Return the plan of this form that does what the thought says; whoever it does not name is drawn by lot."""
    stand_ins = [ordinal for ordinal in (thought.strong, thought.weak) if ordinal is not None]
    can = [
        draw.choice(stand_ins) if ordinal is None and stand_ins and draw.random() < 0.8 else ordinal
        for ordinal in (*thought.can, *[None] * thought.slots)[: thought.slots]
    ]
    found = [draw.randrange(size) if ordinal is None else ordinal for ordinal in can]
    judge = draw.randrange(size) if thought.judge is None else thought.judge
    beside = draw.choice(stand_ins) if stand_ins and draw.random() < _BESIDE else None
    kinds = _kinds(thought, draw)
    return formed(form, Cast(kinds, found, judge, _VOTES, beside, _arm(thought, form, draw)))


def _by_lot(thought: Thought, form: Form | LongForm, size: int, draw: random.Random) -> Plan:
    """Return a plan of this form with workers drawn by lot, and half of the time other kinds of work too.

    Readings that are voted on are one worker's, but for one at times, as where a thought is followed: drawn by lot each
    for itself, outcomes hardly ever find two alike.
    """
    kinds = _kinds(thought, draw)
    if draw.random() < 0.5:
        kinds = draw.sample(thought.known, thought.slots)
    can = [draw.randrange(size) for _ in range(thought.slots)]
    judge = draw.randrange(size)
    beside = draw.randrange(size) if draw.random() < _BESIDE else None
    return formed(form, Cast(kinds, can, judge, _VOTES, beside, _arm(thought, form, draw)))


def _kinds(thought: Thought, draw: random.Random) -> list[str]:
    """Return the thought's kinds of work, and others by lot up to as many as a thought holds."""
    return [*thought.kinds, *draw.sample(thought.known, thought.slots)][: thought.slots]


def _arm(thought: Thought, form: Form | LongForm, draw: random.Random) -> int:
    """Return how long the first arm of a long join is: as in the thought where that joins as many, else by lot."""
    if not isinstance(form, LongForm):
        return 1
    longest = {LongForm.JOIN_4: 2, LongForm.JOIN_5: 3}.get(form, 1)
    return thought.arm if thought.joined and len(thought.kinds) == longest + 2 else draw.randint(1, longest)
