"""Demonstrations: the optimal policy's plans among lessons, for controls; without them lessons are what they were."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.core.plan_parser import parse_plan
from shikisha.simulation.baseline_conductors import best_plan
from shikisha.simulation.questions import parse_question
from shikisha.simulation.sft_examples import SFTMixture, SimulatedExample, example_schedule, generate_example
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import PROFILES, WorkerProfile

ALL = SFTMixture(drills=0, plans=1, encores=0, best=1)
RECIPES = ROOT / "recipes"
MANY = 200


@cache
def described() -> dict[str, WorkerProfile]:
    """Whose description each is, in training."""
    return {
        " and ".join(said): profile
        for profile in PROFILES.values()
        for offers in permutations(offer.by_split[WordingSplit.TRAIN] for offer in profile.descriptions)
        for said in _one_of_each(offers)
    }


def _one_of_each(offers: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    if not offers:
        return [()]
    return [(first, *rest) for first in offers[0] for rest in _one_of_each(offers[1:])]


def pool(one: SimulatedExample) -> list[WorkerProfile]:
    """The workers that a lesson's prompt describes."""
    return [described()[line.split(" ", 2)[2]] for line in one.prompt.splitlines()[1:-1]]


@pytest.mark.parametrize("index", range(30))
def test_a_demonstration_is_the_best_plan_for_what_its_prompt_asks_and_offers(index: int) -> None:
    one = generate_example(3, index, ALL)
    question = parse_question(one.prompt.splitlines()[0].removeprefix("ask "))
    assert question is not None
    choice = best_plan(question, pool(one))
    assert parse_plan(one.taught, len(pool(one))) == choice.plan
    assert choice.success > 0


def test_lessons_that_are_no_plans_are_the_same_with_demonstrations() -> None:
    pairs = [(generate_example(3, index), generate_example(3, index, SFTMixture(best=1))) for index in range(MANY)]
    changed = [one for one, other in pairs if one != other]
    assert 0.25 < len(changed) / MANY < 0.45
    assert all(one.whole and not one.shown and "came " not in one.taught for one in changed)


def test_the_share_of_demonstrations_is_of_the_plans() -> None:
    plain, some, every = (
        [generate_example(5, index, SFTMixture(drills=0, plans=1, encores=0, best=best)) for index in range(MANY)]
        for best in (0.0, 0.3, 1.0)
    )
    shown = sum(one == two for one, two in zip(some, every, strict=True))
    assert 0.2 < shown / MANY < 0.4
    assert not set(plain) & set(every)


@pytest.mark.parametrize(
    ("drawn", "digest"),
    [
        (lambda index: generate_example(3, index), "35e6de1ae9ddac1d"),
        (lambda index: example_schedule(1, 0.6, 0.15)(index, index / 60), "5b2db93133af754e"),
    ],
)
def test_runs_without_demonstrations_see_lessons_that_hang_on_seed_and_index(
    drawn: Callable[[int], SimulatedExample], digest: str
) -> None:
    seen = sha256()
    for one in map(drawn, range(60)):
        seen.update("\0".join((one.prompt, one.shown, one.taught, str(one.whole))).encode())
    assert seen.hexdigest()[:16] == digest  # another digest: seeds no longer repeat the runs that are told of


async def test_the_control_learns_from_demonstrations_alone_and_its_card_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from shikisha.config.training_environment import open_environment
    from shikisha.training.settings import load_settings

    settings = load_settings(RECIPES / "demonstrations.toml")
    assert (settings.grpo.steps, settings.warm.demonstrations) == (0, 1.0)
    async with open_environment(settings, tmp_path, None) as ground:
        assert ground.sft_source is not None
        assert "100% of the plans are the optimal policy's" in ground.origin.lessons
        taught = [ground.sft_source.examples(index, 0.0) for index in range(40)]
    assert taught == [generate_example(settings.seed, index, SFTMixture(follow=0.6, best=1.0)) for index in range(40)]


def test_the_conductor_that_is_trained_is_shown_none() -> None:
    pytest.importorskip("torch")
    from shikisha.training.settings import load_settings

    assert load_settings(RECIPES / "rehearsal.toml").warm.demonstrations == 0.0


async def test_lessons_beside_reinforcement_are_named_only_where_there_is_reinforcement(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from shikisha.config.training_environment import open_environment
    from shikisha.training.settings import load_settings

    settings = load_settings(RECIPES / "rehearsal.toml")
    warm = settings.model_copy(update={"grpo": settings.grpo.model_copy(update={"steps": 0})})
    for each, beside in ((settings, True), (warm, False)):
        async with open_environment(each, tmp_path, None) as ground:
            assert ("per GRPO step" in ground.origin.lessons) is beside
