"""Rollouts in arrays bring, part by part, what the engine's runs bring, given the same luck."""

import random
import re

import numpy as np
import pytest

from shikisha import Caps, Engine
from shikisha.core.prompts import WORDINGS
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Request
from shikisha_train.office import office_conductors as play
from shikisha_train.office.company import write_value
from shikisha_train.office.office_batches import OfficeBatches
from shikisha_train.office.office_rollouts import (
    OfficeLuck,
    draw_notes,
    evidence_arrays,
    office_truth,
    path_joinable,
    perform_choices,
)
from shikisha_train.office.office_tasks import (
    OfficeDistribution,
    OfficeTask,
    draw_evidence,
    office_task,
    office_tasks,
)
from shikisha_train.office.questions import MAX_PARTS, AuthorSplit, parts_in
from shikisha_train.office.seeded_random import hash_fraction
from shikisha_train.office.simulated_staff import SimulatedStaff
from shikisha_train.office.staff import FAMILIES
from shikisha_train.pointer.part_plans import PartsConductor, TreatmentKind
from shikisha_train.pointer.pointer_conductor import PointerPlan
from shikisha_train.pointer.pointer_network import TREATMENTS, PointerChoices

PLAIN = OfficeDistribution(parts=(0.2, 0.3, 0.3, 0.2), conditional=0.0)


class WatchedStaff(SimulatedStaff):
    """Notes which key each part was worked on under, in order of the calls."""

    calls: list[tuple[int, str, str]]

    def answer(self, request: Request) -> tuple[str, float]:
        asked = re.sub(r'Known: "[^"]+" gave [^.]+\. ', "", request.subtask)
        for part in parts_in(asked, self.question):
            self.calls.append((part, self.member.name, request.key))
        return super().answer(request)


def random_choices(item: OfficeTask, rng: np.random.Generator) -> PointerChoices:
    joinable = path_joinable(item.question)
    mode = rng.integers(0, len(TREATMENTS), MAX_PARTS)
    join = joinable & (rng.random(MAX_PARTS) < 0.4)
    for part in range(1, MAX_PARTS):
        join[part] &= mode[part - 1] == 0
        mode[part] *= not join[part]
    workers = rng.integers(0, len(item.crew), (MAX_PARTS, 3))
    for part in range(1, MAX_PARTS):
        workers[part, 0] = workers[part - 1, 0] if join[part] else workers[part, 0]
    needs = office_truth([item], len(item.crew)).needs[0]
    shown = (needs | (rng.random(needs.shape) < 0.2)) & np.tril(np.ones_like(needs), -1)
    told = rng.random((MAX_PARTS, 3, len(WORDINGS))) < 0.5
    return PointerChoices(join[None, None], mode[None, None], workers[None, None], told[None, None], shown[None, None])


def luck_of(item: OfficeTask, choices: PointerChoices, calls: list[tuple[int, str, str]]) -> OfficeLuck:
    """Return the draws that the engine's calls had."""
    families = np.zeros((1, 1, MAX_PARTS, len(FAMILIES)), np.float32)
    slips, checks = np.zeros((1, 1, MAX_PARTS, 3), np.float32), np.zeros((1, 1, MAX_PARTS), np.float32)
    for part in range(len(item.question)):
        families[0, 0, part] = [hash_fraction("knows", item.luck, name, item.task.id, part) for name in FAMILIES]
        made = [(name, key) for at, name, key in calls if at == part]
        if TREATMENTS[choices.mode[0, 0, part]] is TreatmentKind.SECOND_OPINION:
            made[:2] = made[1::-1]
        for slot, (name, key) in enumerate(made):
            slips[0, 0, part, slot] = hash_fraction("slip", item.luck, name, item.task.id, part, key)
        if len(made) > 1:
            checks[0, 0, part] = hash_fraction("check", item.luck, made[1][0], item.task.id, part, made[1][1])
    return OfficeLuck(families, slips, checks)


async def test_rollouts_agree_with_the_engine_on_every_part_and_dollar() -> None:
    rng = np.random.default_rng(3)
    engine = Engine(MemoryRecorder())
    rights = []
    for item in office_tasks(AuthorSplit.TRAIN, 21, PLAIN, 150):
        choices = random_choices(item, rng)
        calls: list[tuple[int, str, str]] = []
        members = []
        real = list(item.pool)
        for member, simulated in zip(real, item.crew.members, strict=False):
            staff = WatchedStaff(simulated, item.question, item.task.id, item.luck)
            staff.calls = calls
            members.append(Member(member.card, staff))
        pool = Pool([*members, real[-1]])
        path = list(range(len(item.question)))
        plan = PointerPlan(
            [tuple(path)], *(getattr(choices, name)[:, 0] for name in ("join", "mode", "workers", "told", "shown"))
        )
        conductor = PartsConductor("random", play.office_parts(item.question), plan.policy(), len(item.crew))
        run = await engine.run(item.task, pool, conductor, Caps(steps=40, rounds=12), run_id=item.task.id)
        truth = office_truth([item], len(item.crew))
        found = perform_choices(truth, choices, luck_of(item, choices, calls))
        right = bool(found.right.all())
        assert run.charged.dollars == pytest.approx(float(found.dollars.sum()), rel=1e-4), item.task.id
        if right:
            assert item.grade(run.answer), item.task.id
        else:
            true = set(map(write_value, item.question.solve()))
            said = {result.text for turn in run.rounds for result in turn.results if result is not None}
            assert said - true, item.task.id
        rights.append(right)
    assert 0.02 < np.mean(rights) < 0.6


def test_notes_in_arrays_are_distributed_like_those_drawn_one_by_one() -> None:
    item = office_task(AuthorSplit.TRAIN, 3, 5)
    truth = office_truth([item], len(item.crew))
    slow = evidence_arrays(draw_evidence(item.crew, 4_000, random.Random(1)), len(item.crew))
    tries, right, told_tries, told_right = draw_notes(
        truth, np.full(truth.prices.shape, 4_000), np.random.default_rng(1)
    )
    for one, other in zip(slow, (tries[0], right[0], told_tries[0], told_right[0]), strict=True):
        assert np.abs(one - other).max() < 5 * (4_000 * 0.25) ** 0.5


def test_a_batch_shows_a_learner_no_level_and_other_notes_each_time() -> None:
    batches = OfficeBatches.draw_bank(1, 40)
    rng = np.random.default_rng(0)
    (one, perform), (two, _) = batches.draw(16, rng), batches.draw(16, rng)
    assert not np.array_equal(one.tries, two.tries)
    shape = (16, 3, MAX_PARTS)
    nobody = PointerChoices(
        np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros((*shape, 3), np.int64),
        np.zeros((*shape, 3, len(WORDINGS)), bool), np.zeros((*shape, MAX_PARTS), bool),
    )  # fmt: skip
    outcomes = perform(nobody, rng, shared=False)
    assert outcomes.right.shape == outcomes.dollars.shape == shape
    assert (outcomes.dollars > 0).any()
