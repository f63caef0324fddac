"""Makers of small panels: workers of given skill, cost and likeness, tasks of given types; equal seeds, equal panels.

A `Made` says what a worker is like; `panel` draws what it did. `missing`, `scores_only` and `untyped` take away.
`states` are panels half asked, and `keeps_its_word` asserts on them what every part promises.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import nan

import numpy as np

from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.fit.log_replay import ReplayResult, replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.state import (
    NO_ANSWER,
    NO_WORKER,
    SHIP,
    DecisionRule,
    DecisionState,
    TaskBatch,
    TaskTypes,
    encode_answers,
)
from shikisha.routing.trade_off import OperatingMix, hash_to_unit

CHOICES = "ABCDEFGH"
_TOPIC = 12  # words of its own that a type has


@dataclass(frozen=True, slots=True)
class Made:
    """A worker to make up: how often it is right (for the types in turn), dollars, output tokens, seconds a task.

    `silent` is the share of tasks to which it gives no answer; those cost as much, and score 0.
    """

    skill: float | tuple[float, ...] = 0.7
    cost: float = 1.0
    tokens: float = 100.0
    seconds: float = nan
    silent: float = 0.0


POOL: Mapping[str, Made] = {
    "cheap": Made((0.75, 0.45), 0.02),
    "middle": Made((0.6, 0.7), 0.2, tokens=150.0),
    "dear": Made((0.85, 0.8), 1.0, tokens=300.0),
}


def panel(
    workers: Mapping[str, Made] = POOL,
    tasks: int = 300,
    kinds: tuple[str, ...] = ("maths", "law"),
    alike: float = 0.0,
    seed: int = 0,
) -> OutcomeMatrix:
    """Return a panel of lettered choices in which every worker was asked for every task.

    Types take turns. `alike` is how often a worker's luck, and its wrong answer, are those that all workers share.
    """
    random = np.random.default_rng(seed)
    types = np.arange(tasks) % max(1, len(kinds)) - (not kinds)
    made = tuple(workers.values())
    shape = (tasks, len(made))
    skill = np.array([np.resize(one.skill, max(1, len(kinds))) for one in made]).T[types]
    right = _shared(random, shape, alike) < skill
    wrong = 1 + np.floor(_shared(random, shape, alike) * (len(CHOICES) - 1)).astype(np.int64)
    silent = random.random(shape) < np.array([one.silent for one in made])
    first = random.integers(0, len(CHOICES), tasks)  # which choice is right
    choice = np.where(silent, NO_ANSWER, (first[:, None] + np.where(right, 0, wrong)) % len(CHOICES))
    prompts = tuple(_prompt(random, kinds[kind] if kinds else "", number) for number, kind in enumerate(types))
    return OutcomeMatrix(
        ids=tuple(f"task-{number}" for number in range(tasks)),
        hashes=tuple(sha256(prompt.encode()).hexdigest() for prompt in prompts),
        workers=tuple(workers),
        types=TaskTypes(kinds, (AnswerForm.CHOICE,) * len(kinds), AnswerForm.CHOICE),
        batch=TaskBatch(prompts, types.astype(np.int64)),
        codes=np.array([encode_answers([_letter(place) for place in row], NO_ANSWER) for row in choice]).reshape(shape),
        lengths=np.where(silent, 0, 1),
        tokens=np.round(np.array([one.tokens for one in made]) * random.lognormal(0, 0.4, shape)),
        scores=(right & ~silent).astype(float),
        dollars=np.array([one.cost for one in made]) * random.lognormal(0, 0.2, shape),
        seconds=np.array([one.seconds for one in made]) * random.lognormal(0, 0.2, shape),
        there=np.ones(shape, bool),
        propensities=np.ones(shape),
    )


def missing(held: OutcomeMatrix, cells: Flags) -> OutcomeMatrix:
    """Return the panel as if these pairs [T, J] had never been recorded."""
    return held.without_outcomes(np.broadcast_to(cells, held.codes.shape))


def scores_only(held: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel of a log without answers: each worker's stand-in agrees with nobody's."""
    own = np.broadcast_to(np.arange(len(held.workers)), held.codes.shape)
    return replace(held, codes=np.where(held.there, own, NO_ANSWER), answers=False)


def untyped(held: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel of a log that has no domains."""
    unknown = np.full(len(held), -1, np.int64)
    return replace(held, types=TaskTypes((), (), held.types.form), batch=TaskBatch(held.batch.prompts, unknown))


def folds(held: OutcomeMatrix, count: int = 5) -> Ints:
    """Return [T] folds of equal size, which do not follow the types."""
    return np.random.default_rng(1).permutation(np.arange(len(held)) % count)


def states(held: OutcomeMatrix, count: int = 8, seed: int = 0) -> Iterator[DecisionState]:
    """Yield states of a panel in which random workers have been asked, and random ones are there."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        asked = random.random(held.codes.shape) < random.random()
        yield held.state_after(asked, random.random(len(held.workers)) < 0.7)
    yield held.state_after(np.zeros(held.codes.shape, bool), np.zeros(len(held.workers), bool))


def keeps_its_word(part: DecisionRule, held: OutcomeMatrix) -> None:
    """Assert that a part asks nobody twice and nobody who is not there, and ships answers that were given."""
    for seen in states(held):
        rows = np.arange(len(seen))
        for setting in range(part.settings):
            acts = part.act(seen, setting)
            asks, ships = rows[acts.ask != SHIP], rows[(acts.ask == SHIP) & (acts.ship != NO_WORKER)]
            assert not seen.asked[asks, acts.ask[asks]].any()
            assert seen.may_ask[acts.ask[asks]].all()
            assert (seen.codes[ships, acts.ship[ships]] > NO_ANSWER).all()


def _shared(random: np.random.Generator, shape: tuple[int, int], alike: float) -> Floats:
    """[T, J] uniform draws, of which this share is the same along a row."""
    own, common = random.random(shape), random.random((shape[0], 1))
    return np.where(random.random(shape) < alike, common, own)


def _letter(place: int) -> str | None:
    return None if place == NO_ANSWER else CHOICES[place]


def _prompt(random: np.random.Generator, kind: str, number: int) -> str:
    """Write a prompt in words that its type has for its own, among others that all have."""
    topic = [f"{kind or 'any'}{'abcdefghijkl'[place]}" for place in random.permutation(_TOPIC)[: len(CHOICES)]]
    options = "".join(f"\n{letter}. {word}" for letter, word in zip(CHOICES, topic, strict=True))
    return f"Question {number}: which of the following about {' and '.join(topic[:3])} holds?{options}"


def replay_mix(
    rules: tuple[DecisionRule, ...], mix: OperatingMix, matrix: OutcomeMatrix, may_ask: Flags | None = None
) -> ReplayResult:
    """Run each task at the one of the mix's two settings that its content draws."""
    drawn = np.array([hash_to_unit(content) for content in matrix.hashes]) < mix.share
    low, high = (replay(rules[point.part], point.setting, matrix, may_ask) for point in (mix.low, mix.high))
    return ReplayResult(
        np.where(drawn, high.won, low.won),
        np.where(drawn, high.paid, low.paid),
        np.where(drawn, high.shipped, low.shipped),
        np.where(drawn[:, None], high.asked, low.asked),
    )
