"""Examples for supervised fine-tuning: how to read questions and descriptions and to write plans, not which plan.

An example is a prompt, a chain of thought and a plan. *Readings* teach the thought that is true of the prompt, with
some words masked. *Drills* show a random thought, which is not taught, and teach a plan that follows it. *Plans* teach
the true thought and a plan with random workers. *Second rounds* do the same after a first plan was performed:

    came ok+cannot+lack
    model_id = []

The `came` line says of each step whether it gave a result, repeated an earlier one, could not do its part or lacked
something, and of a vote whether readings agreed; whether the answer is then kept is random. *One-kind* examples teach
to read a kind of work after random others, so that no order is ruled out. A plan's shape is random and named before the
lists. After these examples a model can read, and can do what a thought says. It does not know which shape a question
needs, nor that following a thought pays: reinforcement learning finds that out.

A share of the questions makes no sense on purpose. Values must fit where they are used, so few kinds of work follow one
another in real questions, and a model trained on these alone would rule the other pairs out.

Invariants: an example is a function of (seed, index, mixture); it has only the training split's words, names, workers
and compositions; what a second round shows was really done by the pool's workers. Best plans are absent unless asked
for (`best`): they serve experiments that show the model what it otherwise has to find out.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import chain, takewhile

from shikisha.core.call import GrantedStep, Request
from shikisha.core.plan import Plan
from shikisha.core.prompts import compact_prompt, render_plan_lists, repeated_result
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.chain_of_thought import ChainOfThought, best_worker_for, true_chain_of_thought
from shikisha.simulation.editions import ALL_PROFILES, LARGE, SMALL, Edition
from shikisha.simulation.instructions import CANONICAL_PHRASES, InstructionKind
from shikisha.simulation.plan_templates import (
    VOTE_FORMS,
    LongPlanForm,
    PlanForm,
    WorkerAssignment,
    edition_forms,
    form_line,
    nearest_form,
    plain_form,
    plan_of_form,
)
from shikisha.simulation.question_families import Operation
from shikisha.simulation.questions import FAMILIES, ComposedQuestion, PartReference, QuestionPart, write_question
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.simulation.simulated_workers import CANNOT_PREFIX, LACK_PREFIX, SimulatedWorker
from shikisha.simulation.task_generator import (
    PoolDistribution,
    PoolWorkers,
    QuestionShape,
    TaskDistribution,
    build_pool,
    describe_worker,
    draw_pool_workers,
    draw_question,
    draw_shape,
    draw_value,
    generate_task,
    shape_groups,
)
from shikisha.simulation.values import SimulatedValue
from shikisha.simulation.vocabulary import WordingSplit

MASKED_WORD = "~"  # replaces a masked word
# Shares of the training run: first `follow` is constant, then it falls.
_CONSTANT_SHARE, _DECAY_SHARE = 0.5, 0.3
# How much oftener words are masked that descriptions of several families share.
_MASK_FACTOR = 5.0
_LIST_OPENING = "model_id = ["  # how a plan's lists begin
# Added to the seed of readings during reinforcement learning.
_READING_SEED_OFFSET = 1_000
# A pool with almost nothing to read.
_SMALLEST_POOL = 2
_SHORT_POOL_SIZES = (2, 3)  # workers in a drill's prompt
# Share of the votes in which a model takes one of the readings.
_MODEL_READING_SHARE = 0.1
# Readings to vote on, where there is room: two that differ decide nothing.
_VOTE_READINGS = 4
_FIRST_ROUND_VOTE_SHARE = 0.4  # of the first rounds
# Share of the questions that are drawn until a part is noisy and a worker takes votes.
_VOTABLE_SHARE = 0.15
_JUDGE_SHARE = 0.8  # of drills: a worker takes votes
# Share of the one-skill workers that an example with double descriptions describes twice.
_DOUBLE_DESCRIPTION_SHARE = 0.5
# Share of demonstrations in which a model replaces a missing specialist.
_MISSING_SPECIALIST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SFTMixture:
    """Shares of drills, plans, second rounds (`encores`) and one-kind examples (`turns`); the rest are readings.

    `follow` is how often a plan follows; `noise` is the share of the prompt's words that are masked in readings and
    drills; `sizes` of pools. `best` is the share of plans that are demonstrations: the optimal policy's plan for a task
    that the pool can do. `odd` is the share of questions without sense, `twofold` that of readings in which workers
    with one skill are described twice (`_double_description_example`).
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


LARGE_MIXTURE = SFTMixture(sizes=tuple(range(3, 11)), parts=(0.15, 0.2, 0.2, 0.2, 0.25), edition=LARGE)


@dataclass(frozen=True, slots=True)
class SimulatedExample:
    """A prompt, the completion that is shown but carries no loss, and the completion that is taught."""

    prompt: str
    shown: str
    taught: str
    whole: bool = True  # whether the text ends after it


def example_schedule(
    seed: int, begin: float, end: float, best: float = 0.0, edition: Edition = SMALL
) -> Callable[[int, float], SimulatedExample]:
    """Return a function of index and progress to an example; `follow` falls from `begin` to `end` late in training."""

    drawn = mixture_of(edition)

    def taught(index: int, done: float) -> SimulatedExample:
        fallen = min(1.0, max(0.0, done - _CONSTANT_SHARE) / _DECAY_SHARE)
        return generate_example(seed, index, replace(drawn, follow=begin + (end - begin) * fallen, best=best))

    return taught


def reading_examples(seed: int, edition: Edition = SMALL) -> Callable[[int, float], SimulatedExample]:
    """Return a function of the index to readings only, with pools of sizes that tasks do not have.

    A few are one-kind examples, whose pools are small.
    """
    drawn = mixture_of(edition)
    sizes = tuple(size for size in drawn.sizes if size > _SMALLEST_POOL and size not in edition.sizes)
    drawn = replace(drawn, drills=0.0, plans=0.0, encores=0.0, sizes=sizes, twofold=0.5)
    return lambda index, _: generate_example(seed + _READING_SEED_OFFSET, index, drawn)


def copy_examples(seed: int, edition: Edition = SMALL) -> Callable[[int, float], SimulatedExample]:
    """Return a function of the index to examples that copy an ordinal of the thought, in pools larger than any task's.

    The list is shown up to the ordinal, and the ordinal alone is taught.
    """
    drawn, least = mixture_of(edition), max(edition.sizes)
    sizes = tuple(size for size in drawn.sizes if size > least)

    def copied(index: int, _: float) -> SimulatedExample:
        rng = seeded_generator("copy", seed, index)
        while True:
            workers, shape = _draw_pool_and_shape(sizes, drawn, rng)
            thought = true_chain_of_thought(shape, workers, edition)
            able = list(takewhile(lambda ordinal: ordinal is not None, thought.can))
            if able:
                place = rng.randrange(len(able))
                begun = "".join(f"{ordinal}, " for ordinal in able[:place])
                prompt = _prompt_text(workers, draw_question(shape, WordingSplit.TRAIN, rng)[0], drawn, rng)
                form = plain_form(len(thought.kinds), joined=thought.joined)
                return SimulatedExample(
                    prompt, f"{thought.text()}{form_line(form)}{_LIST_OPENING}{begun}", str(able[place]), whole=False
                )

    return copied


def mixture_of(edition: Edition) -> SFTMixture:
    """Return the mixture for an edition."""
    return SFTMixture() if edition is SMALL else LARGE_MIXTURE


def plan_subtasks(edition: Edition = SMALL) -> tuple[str, ...]:
    """Return every subtask that plans in examples may have."""
    told = (phrase for name in edition.families for phrase in FAMILIES[name].instructions)
    return (*told, *chain.from_iterable(CANONICAL_PHRASES.values()))


def generate_example(seed: int, index: int, curriculum: SFTMixture = SFTMixture()) -> SimulatedExample:
    """Return one example."""
    rng = seeded_generator("lesson", seed, index)
    kind = rng.random()
    if kind < curriculum.drills:
        return _drill_example(curriculum, rng)
    is_plan = kind < curriculum.drills + curriculum.plans
    if is_plan and curriculum.best and rng.random() < curriculum.best:
        return _demonstration_example(seed, index, curriculum)
    rounds = curriculum.drills + curriculum.plans + curriculum.encores
    if not is_plan and kind < rounds + curriculum.turns:
        return _second_round_example(curriculum, rng) if kind < rounds else _one_kind_example(curriculum, rng)
    workers, shape = _draw_pool_and_shape(curriculum.sizes, curriculum, rng)
    if rng.random() < curriculum.odd:
        shape = nonsense_shape(curriculum.edition, len(shape.operations), rng)
        question = nonsense_question(shape, WordingSplit.TRAIN, rng)
    else:
        question, _ = draw_question(shape, WordingSplit.TRAIN, rng)
    if not is_plan and curriculum.twofold and rng.random() < curriculum.twofold:
        return _double_description_example(workers, shape, question, curriculum, rng)
    prompt, thought = (
        _prompt_text(workers, question, curriculum, rng),
        true_chain_of_thought(shape, workers, curriculum.edition),
    )
    if is_plan:
        plan = _plan_text(*_draw_plan(thought, len(workers), curriculum.follow, rng))
        return SimulatedExample(prompt, "", thought.text() + plan)
    return SimulatedExample(_mask_words(prompt, curriculum, rng), "", thought.text()[:-1], whole=False)


def _double_description_example(
    workers: PoolWorkers, shape: QuestionShape, question: ComposedQuestion, curriculum: SFTMixture, rng: random.Random
) -> SimulatedExample:
    """Return a reading in which one-skill workers are described twice, or as another worker of the pool as well.

    Few pairs of skills occur in one worker, so a model would learn to infer the second skill from the
    first. Here anything that is not another skill may follow. The best worker for each kind stays.
    """
    thought = true_chain_of_thought(shape, workers, curriculum.edition)
    said, roll = list(workers), list(thought.roll)
    others = [(text, *does) for (name, text), does in zip(workers, roll, strict=True) if not ALL_PROFILES[name].skills]
    for place, (name, text) in enumerate(workers):
        if len(ALL_PROFILES[name].skills) == 1 and rng.random() < _DOUBLE_DESCRIPTION_SHARE:
            again = (describe_worker(ALL_PROFILES[name], WordingSplit.TRAIN, rng), *roll[place])
            both = [(text, *roll[place]), rng.choice([again, *others])]
            rng.shuffle(both)
            said[place] = (name, " and ".join(one[0] for one in both))
            roll[place] = tuple(one[1] for one in both)
    prompt = _prompt_text(tuple(said), question, curriculum, rng)
    return SimulatedExample(
        _mask_words(prompt, curriculum, rng), "", replace(thought, roll=tuple(roll)).text()[:-1], whole=False
    )


def _one_kind_example(curriculum: SFTMixture, rng: random.Random) -> SimulatedExample:
    """Return an example of reading one kind of work after random other kinds.

    Some kinds never follow one another in training, and a model that conditions on its own text would rule that out,
    whatever the question says.
    """
    parts = (0.0, *curriculum.parts[1:])
    workers, shape = _draw_pool_and_shape(_SHORT_POOL_SIZES, replace(curriculum, parts=parts), rng)
    shape = nonsense_shape(curriculum.edition, len(shape.operations), rng)
    prompt = _prompt_text(workers, nonsense_question(shape, WordingSplit.TRAIN, rng), curriculum, rng)
    thought = true_chain_of_thought(shape, workers, curriculum.edition)
    place = rng.randrange(1, len(thought.kinds))
    kinds = (*rng.choices(thought.known, k=place), *thought.kinds[place:])
    can = tuple(best_worker_for(kind, [name for name, _ in workers]) for kind in kinds)
    shown, taught = replace(thought, kinds=kinds, can=can).before(place)
    return SimulatedExample(_mask_words(prompt, curriculum, rng), shown, taught, whole=False)


def _demonstration_example(seed: int, index: int, curriculum: SFTMixture) -> SimulatedExample:
    """Return a task as reinforcement learning draws it, its true thought, and the best plan."""
    one = generate_task(
        WordingSplit.TRAIN,
        seed,
        index,
        TaskDistribution(
            curriculum.parts, _MISSING_SPECIALIST_SHARE, PoolDistribution(curriculum.sizes), edition=curriculum.edition
        ),
    )
    parts = one.question.parts
    shape = QuestionShape(tuple(part.operation for part in parts), tuple(part.uses for part in parts))
    plan = best_plan(one.question, profiles_of(one.pool.cards)).plan
    return SimulatedExample(
        compact_prompt(one.task, one.pool.cards),
        "",
        true_chain_of_thought(shape, one.workers, one.edition).text() + _plan_text(plan, nearest_form(plan)),
    )


def _second_round_example(curriculum: SFTMixture, rng: random.Random) -> SimulatedExample:
    """Return an example whose prompt shows a first round; whether its answer is kept is random.

    A share of the first rounds are votes on noisy readings, so that some votes find no agreement.
    """
    workers, shape = _draw_pool_and_shape(curriculum.sizes, curriculum, rng)
    voted = rng.random() < _FIRST_ROUND_VOTE_SHARE
    while voted and not _can_vote(true_chain_of_thought(shape, workers, curriculum.edition)):
        workers, shape = _draw_pool_and_shape(curriculum.sizes, curriculum, rng)
    thought, pool = true_chain_of_thought(shape, workers, curriculum.edition), build_pool(workers)
    question, _ = draw_question(shape, WordingSplit.TRAIN, rng)
    task = Task(write_question(question, WordingSplit.TRAIN, rng, curriculum.edition.slots))
    if voted:
        first = _plan_following(thought, rng.choice((PlanForm.VOTE, PlanForm.VOTE_FIRST)), len(workers), rng)
    else:
        first, _ = _draw_plan(thought, len(workers), 0.5, rng)
    performed = perform_plan(first, task, pool, rng)
    prompt = compact_prompt(task, pool.cards, (performed,))
    if rng.random() < 0.5:
        return SimulatedExample(prompt, "", outcome_line(performed) + KEEP_ANSWER_LISTS)
    plan = _plan_text(*_draw_plan(thought, len(workers), curriculum.follow, rng))
    return SimulatedExample(prompt, "", outcome_line(performed) + thought.text() + plan)


def _can_vote(thought: ChainOfThought) -> bool:
    """Whether the first kind of work is noisy, and the pool has a reader for it and a judge."""
    return FAMILIES[thought.kinds[0]].noisy and thought.can[0] is not None and thought.judge is not None


def _draw_plan(
    thought: ChainOfThought, size: int, follow: float, rng: random.Random
) -> tuple[Plan, PlanForm | LongPlanForm]:
    """Return a plan of any form, and that form; it follows the thought as often as `follow` says."""
    follows, form = rng.random() < follow, _draw_form(thought, rng)
    return (_plan_following if follows else _random_plan)(thought, form, size, rng), form


def _plan_text(plan: Plan, form: PlanForm | LongPlanForm) -> str:
    """Return a plan's text: the name of its form, which no parser reads, and its lists."""
    return form_line(form) + render_plan_lists(plan)


def _draw_form(thought: ChainOfThought, rng: random.Random) -> PlanForm | LongPlanForm:
    """Draw a form whatever the question is; one with a vote only where the pool has a judge."""
    forms = edition_forms(thought.edition)
    return rng.choice([form for form in forms if thought.judge is not None or form not in VOTE_FORMS])


def _drill_example(curriculum: SFTMixture, rng: random.Random) -> SimulatedExample:
    """Return a random thought and a plan that follows it, after a short prompt that has nothing to do with either."""
    workers, shape = _draw_pool_and_shape(_SHORT_POOL_SIZES, curriculum, rng)
    size, thought = _random_thought(curriculum, rng)
    form = _draw_form(thought, rng)
    plan = _plan_following(thought, form, size, rng)
    prompt = _prompt_text(workers, draw_question(shape, WordingSplit.TRAIN, rng)[0], curriculum, rng)
    return SimulatedExample(_mask_words(prompt, curriculum, rng), thought.text()[:-1], f"\n{_plan_text(plan, form)}")


def _prompt_text(workers: PoolWorkers, question: ComposedQuestion, curriculum: SFTMixture, rng: random.Random) -> str:
    return compact_prompt(
        Task(write_question(question, WordingSplit.TRAIN, rng, curriculum.edition.slots)), build_pool(workers).cards
    )


def _draw_pool_and_shape(
    sizes: tuple[int, ...], curriculum: SFTMixture, rng: random.Random
) -> tuple[PoolWorkers, QuestionShape]:
    """Draw a pool and a question's shape; a share is drawn again until a part can be voted on."""
    votable = max(sizes) > _SMALLEST_POOL and rng.random() < _VOTABLE_SHARE
    while True:
        workers, shape = _draw_any_pool_and_shape(sizes, curriculum, rng)
        if not votable or true_chain_of_thought(shape, workers, curriculum.edition).votable:
            return workers, shape


def _draw_any_pool_and_shape(
    sizes: tuple[int, ...], curriculum: SFTMixture, rng: random.Random
) -> tuple[PoolWorkers, QuestionShape]:
    edition, parts = curriculum.edition, curriculum.parts
    count = 1 + rng.choices(range(len(parts)), parts)[0]
    pools = PoolDistribution(sizes, judge=0.5, single=rng.choice((0.3, 0.65)))
    if not edition.listed:
        return draw_pool_workers(pools, WordingSplit.TRAIN, rng, edition), _draw_training_shape(edition, count, rng)
    known = [group for group in shape_groups(count, edition) if not group.held_out]
    return draw_pool_workers(pools, WordingSplit.TRAIN, rng, edition), rng.choice(rng.choice(known).shapes)


def _draw_training_shape(edition: Edition, count: int, rng: random.Random) -> QuestionShape:
    everything = frozenset(edition.families)
    while (shape := draw_shape(edition, count, everything, 0, held_out=False, rng=rng)) is None:
        pass
    return shape


def _mask_words(prompt: str, curriculum: SFTMixture, rng: random.Random) -> str:
    """Mask words of the question and the descriptions; oftener those that say nothing about a kind of work."""
    noise, shared = curriculum.noise, _shared_words(curriculum.edition)
    lines = []
    for line in prompt.split("\n"):
        mark, _, rest = line.partition(" ")
        empty = shared if mark.isdigit() else frozenset[str]()
        words = [
            MASKED_WORD if word.isalpha() and rng.random() < noise * (_MASK_FACTOR if word in empty else 1) else word
            for word in rest.split(" ")
        ]
        lines.append(f"{mark} {' '.join(words)}" if rest else line)
    return "\n".join(lines)


@cache
def _shared_words(edition: Edition) -> frozenset[str]:
    """Return the words that training's descriptions of several kinds of work have in common ("is good at")."""
    found = Counter(
        word
        for profile in edition.specialists
        for word in {word for text in profile.descriptions[0].by_split[WordingSplit.TRAIN] for word in text.split()}
    )
    return frozenset(word for word, kinds in found.items() if kinds > 1)


def _random_thought(curriculum: SFTMixture, rng: random.Random) -> tuple[int, ChainOfThought]:
    """Draw a pool's size and a random thought: the true one of another question and pool.

    Most of these pools have a judge, so that plans with a vote are shown about as often as others.
    """
    judged = rng.random() < _JUDGE_SHARE
    while True:
        size = rng.choice(curriculum.sizes)
        workers, shape = _draw_pool_and_shape((size,), curriculum, rng)
        thought = true_chain_of_thought(shape, workers, curriculum.edition)
        if thought.judge is not None or not judged:
            return size, thought


def _plan_following(thought: ChainOfThought, form: PlanForm | LongPlanForm, size: int, rng: random.Random) -> Plan:
    """Return the plan of this form that does what the thought says; workers that it does not name are random."""
    stand_ins = [ordinal for ordinal in (thought.strong, thought.weak) if ordinal is not None]
    can = [
        rng.choice(stand_ins) if ordinal is None and stand_ins and rng.random() < 0.8 else ordinal
        for ordinal in (*thought.can, *[None] * thought.slots)[: thought.slots]
    ]
    found = [rng.randrange(size) if ordinal is None else ordinal for ordinal in can]
    judge = rng.randrange(size) if thought.judge is None else thought.judge
    beside = rng.choice(stand_ins) if stand_ins and rng.random() < _MODEL_READING_SHARE else None
    kinds = _fill_kinds(thought, rng)
    return plan_of_form(
        form, WorkerAssignment(kinds, found, judge, _VOTE_READINGS, beside, _arm_length(thought, form, rng))
    )


def _random_plan(thought: ChainOfThought, form: PlanForm | LongPlanForm, size: int, rng: random.Random) -> Plan:
    """Return a plan of this form with random workers, and half of the time random kinds of work too.

    Readings to vote on come from one worker, with at most one exception, as in plans that follow: if each were random
    by itself, two readings would hardly ever agree.
    """
    kinds = _fill_kinds(thought, rng)
    if rng.random() < 0.5:
        kinds = rng.sample(thought.known, thought.slots)
    can = [rng.randrange(size) for _ in range(thought.slots)]
    judge = rng.randrange(size)
    beside = rng.randrange(size) if rng.random() < _MODEL_READING_SHARE else None
    return plan_of_form(
        form, WorkerAssignment(kinds, can, judge, _VOTE_READINGS, beside, _arm_length(thought, form, rng))
    )


def _fill_kinds(thought: ChainOfThought, rng: random.Random) -> list[str]:
    """Return the thought's kinds of work, padded with random ones to the length of a thought."""
    return [*thought.kinds, *rng.sample(thought.known, thought.slots)][: thought.slots]


def _arm_length(thought: ChainOfThought, form: PlanForm | LongPlanForm, rng: random.Random) -> int:
    """Return how long the first arm of a long join is: as in the thought where that joins as many, else random."""
    if not isinstance(form, LongPlanForm):
        return 1
    longest = {LongPlanForm.JOIN_4: 2, LongPlanForm.JOIN_5: 3}.get(form, 1)
    return thought.arm if thought.joined and len(thought.kinds) == longest + 2 else rng.randint(1, longest)


KEEP_ANSWER_LISTS = render_plan_lists(Plan())
_OUTCOME_PREFIX = "came "


class StepOutcome(StrEnum):
    """How a step of a first round ended."""

    OK = "ok"
    SAME = "same"  # the result of an earlier step
    AGREED = "agreed"  # a vote that two readings at least agree with
    TIED = "torn"
    CANNOT = "cannot"
    LACK = "lack"


OUTCOME_TOKENS = (_OUTCOME_PREFIX, *map(str, StepOutcome))
_VOTE_PHRASE = CANONICAL_PHRASES[InstructionKind.VOTE][0]
_AGREEING_READINGS = 2  # readings that agree with a vote


def perform_plan(plan: Plan, task: Task, pool: Pool, rng: random.Random) -> RoundResult:
    """Perform the plan with the pool's workers, one step after another."""
    said: list[str] = []
    salt = rng.random()
    for index, step in enumerate(plan.steps):
        worker = pool[step.worker].worker
        if not isinstance(worker, SimulatedWorker):
            raise TypeError(f"expected a simulated worker, not {worker!r}")
        granted = tuple(GrantedStep(seen, plan.steps[seen].subtask, said[seen]) for seen in step.access)
        said.append(worker.answer(Request(task, step.subtask, granted, key=f"{salt}-{index}")))
    names = [pool[step.worker].card.name for step in plan.steps]
    return RoundResult(plan, tuple(Result(name, text) for name, text in zip(names, said, strict=True)))


def outcome_line(performed: RoundResult) -> str:
    """Return the line that says how each step ended."""
    return f"{_OUTCOME_PREFIX}{'+'.join(_step_outcome(performed, place) for place in range(len(performed.results)))}\n"


def _step_outcome(performed: RoundResult, place: int) -> StepOutcome:
    results = performed.results
    text = results[place].text or ""
    if text.startswith(CANNOT_PREFIX):
        return StepOutcome.CANNOT
    if text.startswith(LACK_PREFIX):
        return StepOutcome.LACK
    first = repeated_result(results, place)
    if performed.plan.steps[place].subtask == _VOTE_PHRASE:
        alike = sum(first in (at, repeated_result(results, at)) for at in range(place)) if first is not None else 0
        return StepOutcome.AGREED if alike >= _AGREEING_READINGS else StepOutcome.TIED
    return StepOutcome.OK if first is None else StepOutcome.SAME


# Share of the questions with three parts or more that join two arms.
_JOIN_SHARE = 0.5


def nonsense_shape(edition: Edition, count: int, rng: random.Random) -> QuestionShape:
    """Draw an operation for each of `count` parts, whether or not the kinds of values fit."""
    while True:
        first = rng.randint(1, count - 2) if count > 2 and rng.random() < _JOIN_SHARE else 0
        families = rng.choices(edition.families, k=count)
        found = [
            _operations_of(name, joins=bool(first) and place == count - 1, edition=edition)
            for place, name in enumerate(families)
        ]
        if all(found) and not edition.holds_out(frozenset(families)):
            uses: list[tuple[int, ...]] = [(place - 1,) if place else () for place in range(count)]
            if first:
                uses[first], uses[-1] = (), (first - 1, count - 2)
            return QuestionShape(tuple(map(rng.choice, found)), tuple(uses))


def nonsense_question(shape: QuestionShape, split: WordingSplit, rng: random.Random) -> ComposedQuestion:
    """Return a question of this shape; inputs that no part provides are drawn."""
    parts = []
    for operation, uses in zip(shape.operations, shape.uses, strict=True):
        inputs, constants = _draw_inputs(operation, split, rng)
        parts.append(QuestionPart(operation, tuple(map(PartReference, uses)) or inputs, constants))
    return ComposedQuestion(tuple(parts))


def _draw_inputs(
    operation: Operation, split: WordingSplit, rng: random.Random
) -> tuple[tuple[SimulatedValue, ...], tuple[SimulatedValue, ...]]:
    """Draw inputs of the right kinds, and constants that go with them."""
    while True:
        inputs = tuple(draw_value(sort, split, rng) for sort in operation.takes)
        constants = operation.draw(rng, inputs)
        if constants is not None:
            return inputs, constants


def _operations_of(family: str, *, joins: bool, edition: Edition) -> list[Operation]:
    return [one for one in FAMILIES[family].operations if one.joins is joins and one in edition.operations]
