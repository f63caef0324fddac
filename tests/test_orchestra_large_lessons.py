"""The large edition's lessons, best plans and rules, and the recipe that trains on it."""

from collections import Counter
from functools import cache
from itertools import islice, product
from math import sqrt
from pathlib import Path

import pytest

from shikisha.brief import brief
from shikisha.config.training import grounded
from shikisha.orchestra import encore, forms
from shikisha.orchestra.cast import JUDGE, Profile
from shikisha.orchestra.edition import LARGE
from shikisha.orchestra.forms import Cast, Form, LongForm, formed, forms_of
from shikisha.orchestra.lessons import LARGE_CURRICULUM, Curriculum, Lesson, lesson, phrases, schooling
from shikisha.orchestra.optimal import best, profiles
from shikisha.orchestra.reading import offer
from shikisha.orchestra.reading_long import parts
from shikisha.orchestra.shapes import groups
from shikisha.orchestra.tasks import LARGE_STANDARD, Item, items
from shikisha.orchestra.thought import pieces, thought_of
from shikisha.orchestra.trials import rehearse, tally
from shikisha.orchestra.wording import Split
from shikisha.orchestra.yardsticks import KEYWORD_ROUTER, OPTIMAL, RANDOM_LARGE, rules_of, single
from shikisha.parse import parse_plan
from shikisha.train.settings import load
from shikisha.train.words import UNKNOWN, plan_pieces, word_tokenizer

MANY, LONGEST = 600, 128
RECIPE = Path(__file__).parents[1] / "recipes" / "rehearsal-large.toml"
CONDUCTORS = (OPTIMAL, rules_of(LARGE), KEYWORD_ROUTER, RANDOM_LARGE)
READINGS = Curriculum(0, 0, 0, 0, noise=0, sizes=(6,), parts=(0, 0, 0, 0, 1), edition=LARGE)


@cache
def taught(curriculum: Curriculum = LARGE_CURRICULUM, count: int = MANY) -> tuple[Lesson, ...]:
    return tuple(lesson(3, index, curriculum) for index in range(count))


@cache
def drawn() -> tuple[Item, ...]:
    return tuple(items(Split.HELDOUT, 21, LARGE_STANDARD, 400))


def test_a_lesson_hangs_on_seed_and_index_alone() -> None:
    assert all(lesson(3, index, LARGE_CURRICULUM) == one for index, one in reversed(list(enumerate(taught()[:30]))))
    lessons = schooling(3, 1.0, 0.0, edition=LARGE)
    assert [lessons(index, 0.5) for index in range(30)] == [lessons(index, 0.0) for index in range(30)]


def test_every_plan_can_be_parsed_and_forms_come_in_equal_shares() -> None:
    plans = [parse_plan(one.shown + one.taught, 10) for one in taught() if one.whole and "came" not in one.taught]
    lengths = Counter(len(plan) for plan in plans)
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert len(forms_of(LARGE)) == 11
    assert 0.04 < lengths[1] / len(plans) < 0.15  # one of eleven
    assert {plan.topology() for plan in plans} == {"one-shot", "chain", "fan-out+join", "mixed"}


@pytest.mark.parametrize("form", [*Form, *LongForm])
def test_forms_are_plans_of_the_workers_given(form: Form | LongForm) -> None:
    plan = formed(form, Cast(LARGE.families[:5], [2, 3, 4, 5, 6], judge=7, readings=3, arm=2))
    assert {step.worker for step in plan.steps} <= {2, 3, 4, 5, 6, 7}
    assert all(step.subtask in phrases(LARGE) for step in plan.steps)


def test_a_long_join_has_two_arms() -> None:
    plan = formed(LongForm.JOIN_5, Cast(LARGE.families[:5], [0, 1, 2, 3, 4], arm=3))
    assert [step.access for step in plan.steps] == [(), (0,), (1,), (), (2, 3)]


def test_thoughts_have_room_for_five_kinds_and_tell_two_arms_apart() -> None:
    works = [one.taught.partition("\nwork ")[2].partition("\n")[0] for one in taught() if "\nwork " in one.taught]
    assert {line.count("=") for line in works} == {5}
    assert any(line.count(" and ") == 1 and line.count(" then ") == 3 for line in works)
    assert all(line.count(" and ") <= 1 for line in works)


def test_pieces_spell_every_thought_and_plan_and_none_is_long() -> None:
    known = [*pieces(LARGE), *forms.pieces(LARGE), *encore.PIECES, *plan_pieces(phrases(LARGE))]
    tokenizer = word_tokenizer((one.prompt for one in taught()), known, 1)
    for one in taught():
        said = tokenizer.encode(one.shown + one.taught)
        assert UNKNOWN not in said.tokens
        assert tokenizer.decode(said.ids, skip_special_tokens=False) == one.shown + one.taught
        assert len(said.ids) < LONGEST


def test_no_lesson_has_what_is_held_out() -> None:
    for one in taught(READINGS, 150):
        lines = one.taught.splitlines()
        kinds = {word.partition("=")[0] for word in lines[-2].split()}
        does = [set(line.partition("=")[2].split("+")) & set(LARGE.families) for line in lines[:6]]
        assert not any(pair <= kinds for pair in LARGE.held_out)
        assert not LARGE.new_names & {
            "-".join(sorted(said, key=LARGE.families.index)) for said in does if len(said) > 1
        }


def test_who_is_of_no_use_is_said_to_do_nothing() -> None:
    casting = (("cook", "cooks meals at home"), (JUDGE, "settles by vote"))
    assert thought_of(groups(1)[0].shapes[0], casting, LARGE).text().startswith("0=none\n1=judge\n")


async def test_the_optimum_reaches_what_was_computed() -> None:
    chances = [best(one.question, profiles(one.pool.cards)).success for one in drawn()]
    spread = sqrt(sum(chance * (1 - chance) for chance in chances))
    trials = await rehearse(drawn(), OPTIMAL)
    assert abs(sum(trial.right for trial in trials) - sum(chances)) < 4 * spread


async def test_yardsticks_stand_in_their_order() -> None:
    shares = [tally(await rehearse(drawn(), one)).share for one in reversed(CONDUCTORS)]
    alone = tally(await rehearse([one.cast(LARGE.generalist) for one in drawn()], single(LARGE.generalist))).share
    assert shares[0] < 0.05 < shares[1] < alone < 0.55 < shares[2] <= shares[3] + 0.02


@pytest.mark.parametrize("profile", LARGE.everyone, ids=lambda profile: profile.name)
def test_rules_read_every_description(profile: Profile) -> None:
    for words in islice(product(*(wordings.all for wordings in profile.offers)), 150):
        said = offer(" and ".join(words))
        assert said.families == frozenset(profile.skills), words
        assert (said.is_model, said.judges) == (profile.is_model, profile.name == JUDGE)
        assert (said.strong, said.weak) == (profile.name == LARGE.generalist, profile.name == LARGE.novice)


def test_rules_read_most_questions_rightly() -> None:
    read = [(parts(one.task.prompt), one) for one in drawn()]
    right = [kinds == one.kinds and uses == [part.uses for part in one.question.parts] for (kinds, uses), one in read]
    assert sum(right) > 0.8 * len(right)


@pytest.mark.parametrize(
    "text", ["", "What now?", "Get it as one. Get it as two. Find it.", "sum of one. two means x."]
)
def test_rules_have_something_for_any_text(text: str) -> None:
    kinds, uses = parts(text)
    assert len(kinds) == len(uses) <= 5


async def test_the_recipe_stands_on_it(tmp_path: Path) -> None:
    settings = load(RECIPE)
    short = settings.model_copy(update={"tasks": settings.tasks.model_copy(update={"judged": 40})})
    async with grounded(short, tmp_path, None) as ground:
        assert ground.identity["taskset"] == "rehearsal-large"
        assert {one.difficulty for one in ground.judged} == {"1 part", *(f"{count} parts" for count in range(2, 6))}
        assert ground.school is not None
        assert ground.school.lessons(7, 0.5) == schooling(settings.seed, *settings.warm.follow, edition=LARGE)(7, 0.5)
        shown = max(len(brief(one.task, one.pool.cards).split()) for one in ground.judged if one.pool is not None)
        assert shown < settings.model.longest - settings.grpo.longest
        assert ground.beside is not None
        found = await ground.beside()
        assert list(found) == ["generalist", "random", "keyword router", "rules", "optimum"]
        assert found["optimum"] > found["rules"] - 0.2 > found["random"]
