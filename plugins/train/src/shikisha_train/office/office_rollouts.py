"""Rollouts of the office in arrays: what choices for many tasks bring, part by part, as the simulated workers err.

GRPO needs tens of thousands of performed plans a second. This performs them with the semantics of `simulated_staff`,
`office_conductors` and `VoteWorker`, without texts. Given the luck that the engine's run has, its parts are right where
that run's are: a test compares the two, part by part.

Invariants: what a learner gets is `PointerInput` (questions as read, cards, outcomes, prices) and what came of its
choices; levels and wants stay inside. Deliberately absent: a condition's wrong branch that ends right by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.routing.arrays import Flags, Floats32, Ints
from shikisha_train.office.office_tasks import OfficeTask, StaffEvidence
from shikisha_train.office.questions import MAX_PARTS, OfficeQuestion
from shikisha_train.office.staff import (
    CHECK_COST,
    CHECK_KEEPS,
    CHECK_POWER,
    EXTRA_SAID,
    FAMILIES,
    FEATURES,
    IGNORANCE,
    IRRELEVANT_SHOWN,
    KINDS,
    MORE_PARTS,
    WANT_MISSED,
)
from shikisha_train.pointer.part_plans import TreatmentKind
from shikisha_train.pointer.pointer_network import (
    TREATMENTS,
    PointerChoices,
    PointerInput,
    PointerOutcomes,
    said_features,
)

_CHECK, _SECOND_OPINION, _VOTE = map(
    TREATMENTS.index, (TreatmentKind.CHECK, TreatmentKind.SECOND_OPINION, TreatmentKind.VOTE)
)


@dataclass(frozen=True)
class OfficeTruth:
    """What only the simulation knows of a batch: levels [B, W, K], wants [B, W, F], families [B, W], prices [B, W],
    kinds [B, P] and needs [B, P, P] of parts."""

    levels: Floats32
    wants: Flags
    families: Ints
    prices: Floats32
    kinds: Ints
    needs: Flags
    parts: Flags


@dataclass(frozen=True)
class OfficeLuck:
    """Draws in [0, 1): of families [B, G, P, 4], slips [B, G, P, 3] and checks [B, G, P]."""

    families: Floats32
    slips: Floats32
    checks: Floats32


def draw_luck(shape: tuple[int, ...], rng: np.random.Generator) -> OfficeLuck:
    """Return the luck of so many samples [B, G, P]."""
    return OfficeLuck(
        rng.random((*shape, len(FAMILIES)), np.float32),
        rng.random((*shape, 3), np.float32),
        rng.random(shape, np.float32),
    )


def path_needs(question: OfficeQuestion) -> Flags:
    """Return [P, P]: which parts of the path need the result of which."""
    path = question.path
    rule = question.condition
    found = np.zeros((MAX_PARTS, MAX_PARTS), bool)
    for row, part in enumerate(path):
        uses = set(question.parts[part].uses)
        if rule is not None and part >= rule.first_then:
            uses.add(rule.on)
        for column, earlier in enumerate(path[:row]):
            found[row, column] = earlier in uses
    return found


def path_joinable(question: OfficeQuestion) -> Flags:
    """Return [P]: whether a part of the path may be asked together with the one before."""
    path, rule = question.path, question.condition
    found = np.zeros(MAX_PARTS, bool)
    for row in range(1, len(path)):
        before = path[row - 1]
        later = path[row + 1 :]
        found[row] = not any(before in question.parts[part].uses for part in later) and (
            rule is None or rule.on != before
        )
    return found


def office_truth(items: Sequence[OfficeTask], most: int) -> OfficeTruth:
    """Return the truth of these tasks, with room for `most` workers."""
    count = len(items)
    levels = np.full((count, most, len(KINDS)), 1e-3, np.float32)
    wants = np.zeros((count, most, len(FEATURES)), bool)
    families, prices = np.zeros((count, most), np.int64), np.ones((count, most), np.float32)
    kinds, needs = np.zeros((count, MAX_PARTS), np.int64), np.zeros((count, MAX_PARTS, MAX_PARTS), bool)
    parts = np.zeros((count, MAX_PARTS), bool)
    for at, item in enumerate(items):
        for place, member in enumerate(item.crew.members):
            levels[at, place] = [member.levels[kind] for kind in KINDS]
            wants[at, place] = [feature in member.wants for feature in FEATURES]
            families[at, place], prices[at, place] = FAMILIES.index(member.family), member.price
        path = item.question.path
        kinds[at, : len(path)] = [KINDS.index(item.question.parts[part].kind) for part in path]
        parts[at, : len(path)], needs[at] = True, path_needs(item.question)
    return OfficeTruth(levels, wants, families, prices, kinds, needs, parts)


def draw_notes(
    truth: OfficeTruth, outcomes: Ints, rng: np.random.Generator
) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """Return (tries, right) by kind [B, W, K] and by kind and wording [B, W, K, 2^F] after so many outcomes [B, W].

    Outcomes are of single parts, kinds and wordings drawn evenly, as in `draw_evidence`.
    """
    kinds, features = truth.levels.shape[-1], truth.wants.shape[-1]
    told = said_features(features) > 0
    wants = truth.wants[:, :, None]
    factor = WANT_MISSED ** (wants & ~told).sum(-1) * EXTRA_SAID ** (told & ~wants).sum(-1)
    chance = truth.levels[..., None] * factor[:, :, None]
    cells = kinds * len(told)
    tries = rng.multinomial(outcomes, np.full(cells, 1 / cells)).reshape(chance.shape)
    right = rng.binomial(tries, chance.clip(0, 1)).astype(np.float32)
    tries = tries.astype(np.float32)
    return tries.sum(-1), right.sum(-1), tries, right


def evidence_arrays(evidence: StaffEvidence, most: int) -> tuple[Floats32, Floats32, Floats32, Floats32]:
    """Return the arrays of `draw_notes` for one task's evidence."""
    tries, right = (np.zeros((most, len(KINDS), 2 ** len(FEATURES)), np.float32) for _ in range(2))
    for worker, by_wording in enumerate(evidence.by_wording):
        for (kind, said), found in by_wording.items():
            at = worker, KINDS.index(kind), sum(1 << FEATURES.index(feature) for feature in said)
            tries[at], right[at] = found
    return tries.sum(-1), right.sum(-1), tries, right


def perform_choices(truth: OfficeTruth, choices: PointerChoices, luck: OfficeLuck) -> PointerOutcomes:
    """Return what the simulated workers make of these choices, given right inputs."""
    count = len(choices.mode)
    task = np.arange(count)[:, None, None]
    kinds = np.broadcast_to(truth.kinds[:, None], choices.mode.shape)
    ignorance = np.array([IGNORANCE[kind] for kind in KINDS], np.float32)[kinds]
    called, first_of, size = _blocks(choices.join, truth.parts)
    at_first = np.take_along_axis
    needs = _of_block(np.broadcast_to(truth.needs[:, None], choices.shown.shape), first_of)
    shown = _of_block(choices.shown & truth.parts[:, None, :, None], first_of)
    missing = (needs & ~shown).any(-1)
    extra = (shown & ~needs).sum(-1)
    right_by_slot, codes = [], []
    slot_chances = []
    for slot in range(3):
        worker = at_first(choices.workers[..., slot], first_of, 2)
        told = np.take_along_axis(choices.told[..., slot, :], first_of[..., None], 2)
        level = truth.levels[task, worker, kinds]
        wants = truth.wants[task, worker]
        factor = WANT_MISSED ** (wants & ~told).sum(-1) * EXTRA_SAID ** (told & ~wants).sum(-1)
        steady = (
            level ** (1 - ignorance)
            * MORE_PARTS ** ((size - 1) / size)
            * factor ** (1 / size)
            * IRRELEVANT_SHOWN ** (extra / size)
        )
        family = truth.families[task, worker]
        knows = np.take_along_axis(luck.families, family[..., None], 3)[..., 0] < level**ignorance
        right = knows & (luck.slips[..., slot] < steady)
        right_by_slot.append(right)
        codes.append(np.where(right, 0, np.where(knows, 10 + slot, 1 + family)))
        slot_chances.append((knows, level))
    code = _treated(choices, codes, right_by_slot, slot_chances, luck, kinds)
    dollars = _spent(truth, choices, codes, called, kinds, task)
    used = truth.parts[:, None]
    return PointerOutcomes(
        ((code == 0) & ~missing) | ~used, np.where(used, dollars, 0).astype(np.float32), (code != codes[0]) & used
    )


def _blocks(join: Flags, parts: Flags) -> tuple[Flags, Ints, Ints]:
    """Return which parts begin a call, the first part of each part's call, and how many parts that call does."""
    places = join.shape[-1]
    begins = ~join
    first_of = np.maximum.accumulate(np.where(begins, np.arange(places), 0), -1)
    used = np.broadcast_to(parts[:, None], join.shape)
    same = (first_of[..., None] == first_of[..., None, :]) & used[..., None, :]
    return begins & used, first_of, same.sum(-1).clip(1)


def _of_block(earlier: Flags, first_of: Ints) -> Flags:
    """Return [B, G, P, P]: which results from before the call that does a part are `earlier` for one of its parts."""
    same = first_of[..., :, None] == first_of[..., None, :]
    found: Flags = (same[..., None] & earlier[..., None, :, :]).any(-2)
    return found & (np.arange(earlier.shape[-1]) < first_of[..., None])


def _treated(
    choices: PointerChoices,
    codes: Sequence[Ints],
    right: Sequence[Flags],
    chances: Sequence[tuple[Flags, Floats32]],
    luck: OfficeLuck,
    kinds: Ints,
) -> Ints:
    """Return the code of each part's result after its treatment, 0 if right; only parts alone in a call have one."""
    power = np.array([CHECK_POWER[kind] for kind in KINDS], np.float32)[kinds]
    found = luck.checks < np.where(right[0], 1 - CHECK_KEEPS, power * chances[1][1])
    one, two, three = codes
    checked = np.where(found, two, one)
    pair = (one == two) | (one == three)
    winner = np.where(pair, one, np.where(two == three, two, one))
    opinion = np.where(one == two, one, winner)
    code: Ints = np.select(
        [
            choices.mode == _CHECK,
            choices.mode == _SECOND_OPINION,
            choices.mode == _VOTE,
        ],
        [checked, opinion, winner],
        one,
    )
    return code


def _spent(
    truth: OfficeTruth, choices: PointerChoices, codes: Sequence[Ints], called: Flags, kinds: Ints, task: Ints
) -> Floats32:
    cost = np.array([CHECK_COST[kind] for kind in KINDS], np.float32)[kinds]
    one, two, three = (truth.prices[task, choices.workers[..., slot]] for slot in range(3))
    differ = codes[0] != codes[1]
    extra = np.select(
        [
            choices.mode == _CHECK,
            choices.mode == _SECOND_OPINION,
            choices.mode == _VOTE,
        ],
        [cost * two, two + differ * three, two + three],
        0.0,
    )
    return np.where(called, one + extra, 0).astype(np.float32)


def true_input(items: Sequence[OfficeTask], truth: OfficeTruth, notes: Sequence[Floats32]) -> PointerInput:
    """Return what a learner sees that reads without a mistake."""
    most = truth.levels.shape[1]
    claims = np.zeros(truth.levels.shape, np.float32)
    workers = np.zeros((len(items), most), bool)
    joinable = np.zeros((len(items), MAX_PARTS), bool)
    for at, item in enumerate(items):
        workers[at, : len(item.crew)] = True
        joinable[at] = path_joinable(item.question)
        for place, claimed in enumerate(item.crew.claims):
            claims[at, place] = [kind in claimed for kind in KINDS]
    kinds = np.eye(len(KINDS), dtype=np.float32)[truth.kinds] * truth.parts[..., None]
    tries, right, told_tries, told_right = notes
    value = np.array([item.value for item in items], np.float32)
    return PointerInput(
        kinds, truth.parts, workers, claims, tries, right, told_tries, told_right,
        truth.prices, np.where(workers, truth.families, -1), value, joinable, truth.needs.astype(np.float32),
    )  # fmt: skip


def draw_outcome_counts(shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Return how many outcomes each worker has: none for some crews, to 300, alike or not within a crew."""
    exponent = rng.uniform(0, np.log(330), (shape[0], 1)) + rng.normal(0, 0.6, shape) * (
        rng.random((shape[0], 1)) < 0.4
    )
    count = np.exp(exponent).astype(np.int64).clip(0, 300)
    none = rng.random((shape[0], 1)) < 0.1
    fresh = rng.random(shape) < 0.05
    return np.where(none | fresh, 0, count)
