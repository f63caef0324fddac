"""The chance of a run by its parts: equal to counting every case, and rates that come out as runs were drawn."""

import random
from itertools import product
from math import prod

import pytest

from shikisha.notes.run_chances import PartForm, PartShare, PartTrial, RunModel

WRONG_REPLACED, RIGHT_REPLACED, MENDED = 0.6, 0.04, 0.7  # what a model believes at first


def cases(trial: PartTrial) -> list[tuple[float, bool, bool, bool]]:
    """Return every case of a part: its chance, whether the first result, the replaced one, and the part are right."""
    p = trial.chance
    if trial.form is PartForm.CALL:
        return [(p, True, False, True), (1 - p, False, False, False)]
    return [
        (p * (1 - RIGHT_REPLACED), True, False, True),
        (p * RIGHT_REPLACED, True, True, False),
        ((1 - p) * (1 - WRONG_REPLACED), False, False, False),
        ((1 - p) * WRONG_REPLACED * MENDED, False, True, True),
        ((1 - p) * WRONG_REPLACED * (1 - MENDED), False, True, False),
    ]


RUNS = [
    [PartTrial("a", 0.8), PartTrial("b", 0.5)],
    [PartTrial("a", 0.8, PartForm.CHECK, replaced=True), PartTrial("b", 0.6)],
    [PartTrial("a", 0.8, PartForm.CHECK, replaced=False), PartTrial("b", 0.6, PartForm.OPINIONS, replaced=True)],
    [PartTrial("a", 0.3, PartForm.CHECK), PartTrial("b", 0.6, PartForm.OPINIONS, replaced=False), PartTrial("a", 0.9)],
]


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("trials", RUNS)
def test_likelihood_and_blame_are_those_of_counting_every_case(trials: list[PartTrial], *, right: bool) -> None:
    total, own, part = 0.0, [0.0] * len(trials), [0.0] * len(trials)
    for combination in product(*map(cases, trials)):
        seen = all(trial.replaced in (None, case[2]) for trial, case in zip(trials, combination, strict=True))
        if not seen or all(case[3] for case in combination) is not right:
            continue
        chance = prod(case[0] for case in combination)
        total += chance
        for at, case in enumerate(combination):
            own[at] += chance * case[1]
            part[at] += chance * case[3]
    model = RunModel()
    assert model.likelihood(trials, right=right) == pytest.approx(total)
    found = model.share_blame(trials, right=right)
    assert [one.own for one in found] == pytest.approx([one / total for one in own])
    assert [one.part for one in found] == pytest.approx([one / total for one in part])


def test_rates_come_out_as_runs_were_drawn() -> None:
    rng, model = random.Random(3), RunModel()
    for _ in range(3000):
        trials, rights = list[PartTrial](), list[bool]()
        for _ in range(rng.randint(1, 3)):
            chance = rng.uniform(0.3, 0.9)
            own = rng.random() < chance
            replaced = rng.random() < (0.02 if own else 0.85)
            rights.append(not own and rng.random() < 0.5 if replaced else own)
            trials.append(PartTrial("a", chance, PartForm.CHECK, replaced))
        model.learn(trials, right=all(rights))
    # Of a checked part with an even chance, (1 - .02) / 2 + .85 * .5 / 2 are right; .69 before anything is learned.
    assert model.chance([PartTrial("a", 0.5, PartForm.CHECK)]) == pytest.approx(0.7025, abs=0.02)
    kept = model.share_blame([PartTrial("a", 0.5, PartForm.CHECK, replaced=False)], right=False)
    assert kept == [PartShare(0.0, 0.0)]
    mended = model.likelihood([PartTrial("a", 0.5, PartForm.CHECK, replaced=True)], right=True)
    assert mended == pytest.approx(0.85 * 0.5 / 2, abs=0.02)
    assert model.chance([PartTrial("a", 0.5, PartForm.OPINIONS)]) == RunModel().chance(
        [PartTrial("a", 0.5, PartForm.OPINIONS)]
    )
