"""What a learned conductor is compared with: hand-written rules, simple topologies, random plans, and the optimum.

Each is a `Conductor` of one round that plans through the same contract as any other. All of them see the question and
the cards, as every conductor does. The rules read questions and descriptions by keyword lists, as a careful person
would write them who knows the families; where words mislead they err, and that is their point. A kind of work goes to a
specialist, else to the strongest model; a noisy part is read several times and voted on where a judge and the steps
allow it. Only `OptimalConductor` knows kinds of work, skills and prices: it tries every way to split the parts, every
worker for each, and, for noisy work, every number of readings with a vote.

Invariants: the rules have a plan for every question and pool; `BestPlan.success` is the exact probability under nominal
skills, where blocks succeed independently, a wrong reading is one of SLIP_COUNT equally likely values, and a vote takes
one of the most common readings. Deliberately absent: anything learned.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import combinations, product

from shikisha.core.budget import Usage
from shikisha.core.errors import PlanError
from shikisha.core.plan import MAX_STEPS, Plan, Step
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.simulation.editions import ALL_PROFILES, LARGE, SMALL, Edition
from shikisha.simulation.instructions import CANONICAL_PHRASES, NUMBERED_PHRASES, InstructionKind
from shikisha.simulation.plan_templates import PlanBlock, compose_plan
from shikisha.simulation.questions import FAMILIES, ComposedQuestion, parse_question
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.simulation.values import SLIP_COUNT
from shikisha.simulation.vocabulary import word_set
from shikisha.simulation.worker_profiles import GENERALIST, NOVICE, WorkerProfile


@cache
def vote_success(skills: tuple[float, ...]) -> float:
    """Return the chance that the most common of independent readings is the right one; ties are broken at random."""
    return sum(
        _outcome_probability(skills, right) * _win_probability(sum(right), len(right) - sum(right))
        for right in _outcomes(len(skills))
    )


def _outcomes(count: int) -> list[tuple[bool, ...]]:
    return list(product((False, True), repeat=count))


def _outcome_probability(skills: tuple[float, ...], right: tuple[bool, ...]) -> float:
    chance = 1.0
    for skill, is_right in zip(skills, right, strict=True):
        chance *= skill if is_right else 1.0 - skill
    return chance


@cache
def _win_probability(right: int, wrong: int) -> float:
    """Return the chance that `right` equal readings win against `wrong` ones, each one of SLIP_COUNT values."""
    if not right:
        return 0.0
    if right > wrong:
        return 1.0
    won: float = 0.0
    for values in product(range(SLIP_COUNT), repeat=wrong):
        counts = Counter(values).values()
        most = max(counts)
        if most <= right:
            won += 1.0 / (1 + sum(count == right for count in counts))
    return won / float(SLIP_COUNT**wrong)


# Words that a model sees besides the question, roughly.
_CONTEXT_WORDS = 16
_REPLY_WORDS = 3  # words that it replies, roughly


@dataclass(frozen=True, slots=True)
class BlockOption:
    """A way to do a block: its success probability given right inputs, and its dollars (an estimate for models)."""

    block: PlanBlock
    success: float
    dollars: float


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The best plan, its probability of a right answer, and its dollars."""

    plan: Plan
    success: float
    dollars: float


@dataclass(frozen=True, slots=True)
class OptimalConductor:
    """Knows families, skills and prices. `thrift` is how much success a dollar must buy (0: any amount)."""

    thrift: float = 0.0

    @property
    def name(self) -> str:
        """The conductor's name."""
        return "rehearsal:optimal"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the best plan in the first round; keep the answer in the second."""
        if situation.rounds:
            return Proposal(Plan(), final=True)
        question = parse_question(situation.task.prompt)
        if question is None:
            raise PlanError("the question is none of the simulation's", "task")
        choice = best_plan(question, profiles_of(situation.cards), situation.left.plan_steps, self.thrift)
        note = f"expected to be right in {choice.success:.1%}"
        return Proposal(choice.plan, note=note, final=True)


def profiles_of(cards: Sequence[Card]) -> tuple[WorkerProfile, ...]:
    """Return the profiles behind the cards; PlanError for a worker that is not simulated."""
    strangers = [card.name for card in cards if card.name not in ALL_PROFILES]
    if strangers:
        raise PlanError(f"not simulated workers: {', '.join(strangers)}", "pool")
    return tuple(ALL_PROFILES[card.name] for card in cards)


def best_plan(
    question: ComposedQuestion, pool: Sequence[WorkerProfile], most_steps: int = MAX_STEPS, thrift: float = 0.0
) -> BestPlan:
    """Return the plan with the highest success probability; the cheapest of equals."""
    words = len(question) * _CONTEXT_WORDS
    found = [
        (round(success - thrift * dollars, 9), -dollars, number, blocks, success)
        for number, blocks in enumerate(_block_options(question, pool, most_steps, words))
        for success, dollars in [_success_and_dollars(blocks)]
    ]
    _, dollars, _, options, success = max(found, key=lambda one: one[:3])
    uses = [part.uses for part in question.parts]
    return BestPlan(compose_plan(question.families, uses, [option.block for option in options]), success, -dollars)


def _success_and_dollars(options: Sequence[BlockOption]) -> tuple[float, float]:
    success, dollars = 1.0, 0.0
    for option in options:
        success *= option.success
        dollars += option.dollars
    return success, dollars


def _block_options(
    question: ComposedQuestion, pool: Sequence[WorkerProfile], most_steps: int, words: int
) -> Iterator[tuple[BlockOption, ...]]:
    for single in _single_part_sets(question):
        rest = tuple(at for at in range(len(question)) if at not in single)
        # For the rest and for readings beyond the first.
        spare = most_steps - len(single)
        if spare >= 1:
            yield from _options_of_groups([(at,) for at in single] + [rest], question, pool, spare, words)


def _single_part_sets(question: ComposedQuestion) -> Iterator[tuple[int, ...]]:
    """Yield the sets of parts that can be done one by one before the rest is done in one call."""
    last = len(question) - 1
    for count in range(len(question)):
        for single in combinations(range(last), count):
            if all(set(question.parts[at].uses) <= set(single) for at in single):
                yield single


def _options_of_groups(
    groups: Sequence[tuple[int, ...]], question: ComposedQuestion, pool: Sequence[WorkerProfile], spare: int, words: int
) -> Iterator[tuple[BlockOption, ...]]:
    """Yield the groups with the best worker for each; one noisy group with every number of readings that fits."""
    plain = [_best_option(parts, question, pool, words) for parts in groups]
    yield tuple(plain)
    for place, parts in enumerate(groups):
        if len(parts) == 1 and FAMILIES[question.families[parts[0]]].noisy:
            for option in _vote_options(parts, question.families[parts[0]], pool, spare, words):
                yield (*plain[:place], option, *plain[place + 1 :])


def _best_option(
    parts: tuple[int, ...], question: ComposedQuestion, pool: Sequence[WorkerProfile], words: int
) -> BlockOption:
    families = tuple(question.families[at] for at in parts)
    options = [
        BlockOption(PlanBlock(parts, (ordinal,)), profile.skill(families), _call_dollars(profile, words))
        for ordinal, profile in enumerate(pool)
    ]
    return max(options, key=lambda option: (option.success, -option.dollars))


def _vote_options(
    parts: tuple[int, ...], family: str, pool: Sequence[WorkerProfile], most_steps: int, words: int
) -> Iterator[BlockOption]:
    """Yield readings with a vote: the cheapest good reader several times, each model at most once more."""
    judges = [ordinal for ordinal, profile in enumerate(pool) if profile.vote]
    readers = [ordinal for ordinal, profile in enumerate(pool) if family in profile.skills]
    models = [ordinal for ordinal, profile in enumerate(pool) if profile.is_model]
    if not judges or not readers:
        return
    judge = max(judges, key=lambda ordinal: (pool[ordinal].vote, -_call_dollars(pool[ordinal], words)))
    reader = max(readers, key=lambda ordinal: (pool[ordinal].skills[family], -_call_dollars(pool[ordinal], words)))
    for count in range(1, most_steps):
        for guests in range(min(len(models), most_steps - 1 - count) + 1):
            for beside in combinations(models, guests):
                workers = (*beside, *(reader,) * count)
                if len(workers) > 1:
                    skills = tuple(sorted(pool[ordinal].skill((family,)) for ordinal in workers))
                    dollars = sum(_call_dollars(pool[ordinal], words) for ordinal in (*workers, judge))
                    yield BlockOption(
                        PlanBlock(parts, workers, judge), vote_success(skills) * pool[judge].vote, dollars
                    )


def _call_dollars(profile: WorkerProfile, words: int) -> float:
    return profile.price.of(Usage(words + _CONTEXT_WORDS, _REPLY_WORDS) if profile.is_model else Usage())


_WORD = re.compile(r"[a-z]+")
_STRONG = word_set("strong capable dear costly right")
_WEAK = word_set("weak small cheap thrifty wrong")
_JUDGES = word_set("majority common vote")
_BRINGS_TOGETHER = re.compile(
    r"\b(?:sum|total|between|apart|differ|glued|followed|together|added up|woven|braided|weave|braid)\b"
)
_CLAUSE = re.compile(r"[.;:?,]")
_SAYS_WHAT = re.compile(r"\b(?:it|that|this|one|two) (?:is|means)\b")
# Nothing but a fact can come before a reading, and nothing before a fact.
_FIRST_FAMILIES = ("fact", "gauge", "sensor")


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker's description says of it."""

    families: frozenset[str]
    is_model: bool = False
    strong: bool = False
    weak: bool = False
    judges: bool = False


@lru_cache(maxsize=1024)
def read_description(description: str) -> WorkerOffer:
    """Read a worker's description."""
    words = frozenset(_WORD.findall(description.lower()))
    if "model" in words:
        return WorkerOffer(frozenset(), is_model=True, strong=bool(words & _STRONG), weak=bool(words & _WEAK))
    if words & _JUDGES:
        return WorkerOffer(frozenset(), judges=True)
    return WorkerOffer(frozenset(name for name, family in FAMILIES.items() if words & family.keywords))


def read_families(question: str) -> tuple[str, ...]:
    """Return the families that the words mention, in their probable order of work."""
    text = question.lower()
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    explained = [clause for clause in clauses if _SAYS_WHAT.search(clause)]
    in_order = explained + [clause for clause in clauses if clause not in explained]
    found = [name for clause in in_order for name in reversed(_families_mentioned(clause))]
    order = list(dict.fromkeys(found))
    if len(order) > 2 and (last := _joining_family(text, order)):
        order.remove(last)
        return (*order, last)
    return tuple(
        sorted(order, key=lambda name: _FIRST_FAMILIES.index(name) if name in _FIRST_FAMILIES else len(_FIRST_FAMILIES))
    )


def reads_as_join(question: str) -> bool:
    """Whether the words mention two things that are combined."""
    return _BRINGS_TOGETHER.search(question.lower()) is not None


def _joining_family(text: str, order: list[str]) -> str | None:
    found = _BRINGS_TOGETHER.search(text)
    if found is None:
        return None
    return next((name for name in order if set(_WORD.findall(found[0])) & FAMILIES[name].keywords), None)


def _families_mentioned(clause: str) -> list[str]:
    places: dict[str, int] = {}
    for place, word in enumerate(_WORD.findall(clause)):
        for name, family in FAMILIES.items():
            if word in family.keywords:
                places.setdefault(name, place)
    return sorted(places, key=lambda name: places[name])


_LINK_WORDS = re.compile(r"\b(?:after that|from that|at last|to begin|first|then|next|now|finally)\b")
_ARM_CLAUSES = (re.compile(r"\bas one\b|\bone (?:is|means)\b"), re.compile(r"\bas two\b|\btwo (?:is|means)\b"))
_SAYS_WHAT_LARGE = re.compile(r"\b(?:it|that|this) (?:is|means)\b")
_MIN_JOIN_PARTS = 2
_OPENING_WORDS = {  # first words of a family's phrase, where its keyword may be the last
    "unit": word_set("length span volume content money sterling feet pints shillings"),
    "numeral": word_set("value form roman octal hexadecimal"),
    "week": word_set("weekday name rank place"),
    "cipher": word_set("caesar atbash cipher code form shape"),
    "digits": word_set("digits heap pile stack squares figure"),
    "date": word_set("date day days number count"),
    "text": word_set("letter alphabet score points worth mirror reverse signs spelling"),
}
PartUses = list[tuple[int, ...]]


def read_parts(question: str) -> tuple[tuple[str, ...], PartUses]:
    """Return the families in an order of work, and for each the places of those that feed it."""
    clauses = [clause for clause in _CLAUSE.split(_LINK_WORDS.sub(" ", question.lower())) if clause.strip()]
    arms = [next((clause for clause in clauses if arm.search(clause)), None) for arm in _ARM_CLAUSES]
    if arms[0] is not None and arms[1] is not None:
        return _join_of_arms(arms[0], arms[1], [clause for clause in clauses if clause not in arms])
    found = read_families(question)
    if len(found) > _MIN_JOIN_PARTS and reads_as_join(question) and len(clauses) == 1:
        return found, [*[()] * (len(found) - 1), tuple(range(len(found) - 1))]
    explained = [clause for clause in clauses if _SAYS_WHAT_LARGE.search(clause)]
    order = [*explained, *(clause for clause in clauses if clause not in explained)]
    chain = tuple(dict.fromkeys(name for clause in order for name in _families_innermost_first(clause)))[:MAX_STEPS]
    return chain, _chain_uses(len(chain))


def _join_of_arms(one: str, two: str, others: list[str]) -> tuple[tuple[str, ...], PartUses]:
    """Return two arms and the family that joins them."""
    last = next((name for clause in others for name in reversed(_families_innermost_first(clause))), None)
    left = [name for name in _families_innermost_first(one) if name != last]
    right = [name for name in _families_innermost_first(two) if name != last and name not in left]
    if last is None or not left or not right or len(left) + len(right) >= MAX_STEPS:
        chain = tuple(dict.fromkeys([*left, *right, *([last] if last else [])]))[:MAX_STEPS]
        return chain, _chain_uses(len(chain))
    uses = [*_chain_uses(len(left)), *((len(left) + at - 1,) if at else () for at in range(len(right)))]
    return (*left, *right, last), [*uses, (len(left) - 1, len(left) + len(right) - 1)]


def _chain_uses(count: int) -> PartUses:
    return [(at - 1,) if at else () for at in range(count)]


def _families_innermost_first(clause: str) -> list[str]:
    """Return the families that a clause mentions, the innermost first."""
    words = _WORD.findall(clause)
    found = [name for name, family in FAMILIES.items() if not family.keywords.isdisjoint(words)]
    places = {
        name: min(
            at
            for at, word in enumerate(words)
            if word in FAMILIES[name].keywords | _OPENING_WORDS.get(name, frozenset())
        )
        for name in found
    }
    return sorted(found, key=lambda name: (FAMILIES[name].noisy or name == "fact", places[name]), reverse=True)


_MIN_VOTES = 3  # two readings that differ decide nothing


def plan_by_rules(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Return the plan that the rules make."""
    offers = [read_description(card.description) for card in cards]
    families = read_families(task.prompt)
    if not families:
        return Plan((Step(CANONICAL_PHRASES[InstructionKind.ANSWER][0], _strongest_or_first(offers)),))
    joined = len(families) > 2 and reads_as_join(task.prompt)
    last = len(families) - 1
    uses: list[tuple[int, ...]] = [() if not at or (joined and at < last) else (at - 1,) for at in range(len(families))]
    if joined:
        uses[last] = tuple(range(last))
    return _plan_of_parts(families, uses, offers)


def plan_by_rules_large(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Return the plan that the rules make for a question of the large edition."""
    offers = [read_description(card.description) for card in cards]
    families, uses = read_parts(task.prompt)
    if not families:
        return Plan((Step(CANONICAL_PHRASES[InstructionKind.ANSWER][0], _strongest_or_first(offers)),))
    return _plan_of_parts(families, uses, offers)


def _plan_of_parts(families: Sequence[str], uses: Sequence[tuple[int, ...]], offers: Sequence[WorkerOffer]) -> Plan:
    blocks = [_rule_block(at, name, offers, len(families)) for at, name in enumerate(families)]
    return compose_plan(families, uses, blocks)


def _rule_block(at: int, family: str, offers: Sequence[WorkerOffer], count: int) -> PlanBlock:
    able = sorted((len(said.families), ordinal) for ordinal, said in enumerate(offers) if family in said.families)
    worker = able[0][1] if able else _strongest_or_first(offers)
    judge = next((ordinal for ordinal, said in enumerate(offers) if said.judges), None)
    # After a step for every other part and one for the judge.
    votes = MAX_STEPS - count
    if FAMILIES[family].noisy and able and judge is not None and votes >= _MIN_VOTES:
        return PlanBlock((at,), (worker,) * votes, judge)
    return PlanBlock((at,), (worker,))


def _strongest_or_first(offers: Sequence[WorkerOffer]) -> int:
    """Return the strongest model, else any model, else the first worker."""
    return max(range(len(offers)), key=lambda ordinal: (offers[ordinal].strong, offers[ordinal].is_model, -ordinal))


_TYPICAL_USAGE = Usage(40, 4)  # to compare prices


@dataclass(frozen=True, slots=True)
class BaselineConductor:
    """A conductor of one round whose plan is a function of the task and the cards; `note` says how it plans."""

    name: str
    plan: Callable[[Task, tuple[Card, ...]], Plan]
    note: str = ""

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan in the first round; keep the answer in the second."""
        if situation.rounds:
            return Proposal(Plan(), final=True)
        return Proposal(self.plan(situation.task, situation.cards), note=self.note, final=True)


def single_worker(worker: str) -> BaselineConductor:
    """Return the conductor that asks one worker for everything; PlanError where the pool lacks it."""

    def plan(_task: Task, cards: tuple[Card, ...]) -> Plan:
        names = [card.name for card in cards]
        if worker not in names:
            raise PlanError(f"no worker {worker!r} in this pool", "pool")
        return _answer_with(names.index(worker))

    return BaselineConductor(f"rehearsal:{worker}", plan, "one worker for everything")


def _keyword_router(task: Task, cards: tuple[Card, ...]) -> Plan:
    """Ask the worker whose description covers most of the families that the question mentions."""
    wanted = set(read_families(task.prompt))
    return _answer_with(max(range(len(cards)), key=lambda ordinal: _match_score(cards[ordinal], wanted)))


def _match_score(card: Card, wanted: set[str]) -> tuple[int, bool, bool, int]:
    said = read_description(card.description)
    return len(said.families & wanted), said.strong, said.weak, -len(said.families)


def _random_plan(task: Task, cards: tuple[Card, ...], edition: Edition = SMALL) -> Plan:
    """Return a plan whose length, workers, instructions and access lists are all random."""
    rng = seeded_generator("random plan", task.prompt)
    said = [phrase for phrases in CANONICAL_PHRASES.values() for phrase in phrases]
    said += [*NUMBERED_PHRASES[:3], *(phrase for name in edition.families for phrase in FAMILIES[name].instructions)]
    return Plan(
        tuple(
            Step(
                rng.choice(said),
                rng.randrange(len(cards)),
                tuple(seen for seen in range(index) if rng.random() < 0.5),  # a fair coin for every earlier step
            )
            for index in range(rng.randint(1, MAX_STEPS))
        )
    )


def _self_consistency(_task: Task, cards: tuple[Card, ...]) -> Plan:
    """Ask the strongest model three times and take the most common answer."""
    offers = [read_description(card.description) for card in cards]
    model = _strongest(cards, offers)
    judge = next((ordinal for ordinal, said in enumerate(offers) if said.judges), model)
    attempts = tuple(Step(CANONICAL_PHRASES[InstructionKind.ANSWER][0], model) for _ in range(3))
    return Plan((*attempts, Step(CANONICAL_PHRASES[InstructionKind.VOTE][0], judge, (0, 1, 2))))


def _planner_executor_verifier(_task: Task, cards: tuple[Card, ...]) -> Plan:
    """Let the strongest model plan, a cheaper one carry the plan out, and the strongest check."""
    offers = [read_description(card.description) for card in cards]
    strongest = _strongest(cards, offers)
    others = [ordinal for ordinal, said in enumerate(offers) if said.is_model and ordinal != strongest]
    return Plan(
        (
            Step(CANONICAL_PHRASES[InstructionKind.PLAN][0], strongest),
            Step("carry out this plan and answer the question", others[0] if others else strongest, (0,)),
            Step(CANONICAL_PHRASES[InstructionKind.CHECK][0], strongest, (1,)),
        )
    )


def _strongest(cards: Sequence[Card], offers: Sequence[WorkerOffer]) -> int:
    """Return the most expensive model; the most expensive worker where there is no model."""
    return max(range(len(cards)), key=lambda ordinal: (offers[ordinal].is_model, _typical_dollars(cards[ordinal])))


def _typical_dollars(card: Card) -> float:
    return card.price.of(_TYPICAL_USAGE) if card.price is not None else 0.0


def _answer_with(worker: int) -> Plan:
    return Plan((Step(CANONICAL_PHRASES[InstructionKind.ANSWER][0], worker),))


OPTIMAL = OptimalConductor()
RULES = BaselineConductor(
    "rehearsal:rules",
    plan_by_rules,
    "kinds of work by key words, a specialist for each in order of work, a vote where readings are noisy",
)
KEYWORD_ROUTER = BaselineConductor(
    "rehearsal:keyword-router", _keyword_router, "the one worker that key words speak for"
)
RANDOM = BaselineConductor("rehearsal:random", _random_plan, "random plans")
SELF_CONSISTENCY = BaselineConductor(
    "rehearsal:self-consistency", _self_consistency, "three answers of the strongest model and a vote"
)
PLANNER_EXECUTOR_VERIFIER = BaselineConductor(
    "rehearsal:planner-executor-verifier",
    _planner_executor_verifier,
    "the strongest model plans and checks, a cheaper one does the work",
)
ONLY_GENERALIST, ONLY_NOVICE = single_worker(GENERALIST), single_worker(NOVICE)
RULES_LARGE = BaselineConductor("rehearsal:rules-large", plan_by_rules_large, RULES.note)
RANDOM_LARGE = BaselineConductor("rehearsal:random-large", partial(_random_plan, edition=LARGE), "random plans")


def random_baseline(edition: Edition) -> BaselineConductor:
    """Return the baseline of random plans that uses an edition's phrases."""
    return RANDOM if edition is SMALL else RANDOM_LARGE


def rules_baseline(edition: Edition) -> BaselineConductor:
    """Return the hand-written rules for an edition."""
    return RULES if edition is SMALL else RULES_LARGE
