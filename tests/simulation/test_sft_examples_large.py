"""The large edition's lessons, best plans and rules, and the recipe that trains on it."""

from collections import Counter
from functools import cache
from itertools import islice, product
from math import sqrt
from pathlib import Path

import pytest
from paths import ROOT

from shikisha.config.training_environment import open_environment
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import compact_prompt
from shikisha.simulation import plan_templates, sft_examples
from shikisha.simulation.baseline_conductors import (
    KEYWORD_ROUTER,
    OPTIMAL,
    RANDOM_LARGE,
    best_plan,
    profiles_of,
    read_description,
    read_parts,
    rules_baseline,
    single_worker,
)
from shikisha.simulation.chain_of_thought import thought_tokens, true_chain_of_thought
from shikisha.simulation.demo_run import run_tasks, summarize_runs
from shikisha.simulation.editions import LARGE
from shikisha.simulation.plan_templates import LongPlanForm, PlanForm, WorkerAssignment, edition_forms, plan_of_form
from shikisha.simulation.sft_examples import (
    LARGE_MIXTURE,
    SFTMixture,
    SimulatedExample,
    example_schedule,
    generate_example,
    plan_subtasks,
)
from shikisha.simulation.task_generator import LARGE_TASKS, SimulatedTask, generate_tasks, shape_groups
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import JUDGE, WorkerProfile
from shikisha.training.settings import load_settings
from shikisha.training.sft_data import UNKNOWN_TOKEN, plan_pieces, word_tokenizer

MANY, LONGEST = 600, 128
RECIPE = ROOT / "recipes" / "rehearsal-large.toml"
CONDUCTORS = (OPTIMAL, rules_baseline(LARGE), KEYWORD_ROUTER, RANDOM_LARGE)
READINGS = SFTMixture(0, 0, 0, 0, noise=0, sizes=(6,), parts=(0, 0, 0, 0, 1), edition=LARGE)


@cache
def taught(curriculum: SFTMixture = LARGE_MIXTURE, count: int = MANY) -> tuple[SimulatedExample, ...]:
    return tuple(generate_example(3, index, curriculum) for index in range(count))


@cache
def drawn() -> tuple[SimulatedTask, ...]:
    return tuple(generate_tasks(WordingSplit.HELDOUT, 21, LARGE_TASKS, 400))


@pytest.mark.full
def test_a_lesson_hangs_on_seed_and_index_alone() -> None:
    assert all(
        generate_example(3, index, LARGE_MIXTURE) == one for index, one in reversed(list(enumerate(taught()[:30])))
    )
    lessons = example_schedule(3, 1.0, 0.0, edition=LARGE)
    assert [lessons(index, 0.5) for index in range(30)] == [lessons(index, 0.0) for index in range(30)]


def test_every_plan_can_be_parsed_and_forms_come_in_equal_shares() -> None:
    plans = [parse_plan(one.shown + one.taught, 10) for one in taught() if one.whole and "came" not in one.taught]
    lengths = Counter(len(plan) for plan in plans)
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert len(edition_forms(LARGE)) == 11
    assert 0.04 < lengths[1] / len(plans) < 0.15  # one of eleven
    assert {plan.topology() for plan in plans} == {"one-shot", "chain", "fan-out+join", "mixed"}


@pytest.mark.parametrize("form", [*PlanForm, *LongPlanForm])
def test_forms_are_plans_of_the_workers_given(form: PlanForm | LongPlanForm) -> None:
    plan = plan_of_form(form, WorkerAssignment(LARGE.families[:5], [2, 3, 4, 5, 6], judge=7, readings=3, arm=2))
    assert {step.worker for step in plan.steps} <= {2, 3, 4, 5, 6, 7}
    assert all(step.subtask in plan_subtasks(LARGE) for step in plan.steps)


def test_a_long_join_has_two_arms() -> None:
    plan = plan_of_form(LongPlanForm.JOIN_5, WorkerAssignment(LARGE.families[:5], [0, 1, 2, 3, 4], arm=3))
    assert [step.access for step in plan.steps] == [(), (0,), (1,), (), (2, 3)]


def test_thoughts_have_room_for_five_kinds_and_tell_two_arms_apart() -> None:
    works = [one.taught.partition("\nwork ")[2].partition("\n")[0] for one in taught() if "\nwork " in one.taught]
    assert {line.count("=") for line in works} == {5}
    assert any(line.count(" and ") == 1 and line.count(" then ") == 3 for line in works)
    assert all(line.count(" and ") <= 1 for line in works)


def test_pieces_spell_every_thought_and_plan_and_none_is_long() -> None:
    known = [
        *thought_tokens(LARGE),
        *plan_templates.form_tokens(LARGE),
        *sft_examples.OUTCOME_TOKENS,
        *plan_pieces(plan_subtasks(LARGE)),
    ]
    tokenizer = word_tokenizer((one.prompt for one in taught()), known, 1)
    for one in taught():
        said = tokenizer.encode(one.shown + one.taught)
        assert UNKNOWN_TOKEN not in said.tokens
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
    assert true_chain_of_thought(shape_groups(1)[0].shapes[0], casting, LARGE).text().startswith("0=none\n1=judge\n")


async def test_the_optimum_reaches_what_was_computed() -> None:
    chances = [best_plan(one.question, profiles_of(one.pool.cards)).success for one in drawn()]
    spread = sqrt(sum(chance * (1 - chance) for chance in chances))
    trials = await run_tasks(drawn(), OPTIMAL)
    assert abs(sum(trial.right for trial in trials) - sum(chances)) < 4 * spread


async def test_yardsticks_stand_in_their_order() -> None:
    shares = [summarize_runs(await run_tasks(drawn(), one)).share for one in reversed(CONDUCTORS)]
    alone = summarize_runs(
        await run_tasks([one.with_workers(LARGE.generalist) for one in drawn()], single_worker(LARGE.generalist))
    ).share
    assert shares[0] < 0.05 < shares[1] < alone < 0.55 < shares[2] <= shares[3] + 0.02


@pytest.mark.parametrize("profile", LARGE.everyone, ids=lambda profile: profile.name)
def test_rules_read_every_description(profile: WorkerProfile) -> None:
    for words in islice(product(*(wordings.all for wordings in profile.descriptions)), 150):
        said = read_description(" and ".join(words))
        assert said.families == frozenset(profile.skills), words
        assert (said.is_model, said.judges) == (profile.is_model, profile.name == JUDGE)
        assert (said.strong, said.weak) == (profile.name == LARGE.generalist, profile.name == LARGE.novice)


def test_rules_read_most_questions_rightly() -> None:
    read = [(read_parts(one.task.prompt), one) for one in drawn()]
    right = [kinds == one.kinds and uses == [part.uses for part in one.question.parts] for (kinds, uses), one in read]
    assert sum(right) > 0.8 * len(right)


@pytest.mark.parametrize(
    "text", ["", "What now?", "Get it as one. Get it as two. Find it.", "sum of one. two means x."]
)
def test_rules_have_something_for_any_text(text: str) -> None:
    kinds, uses = read_parts(text)
    assert len(kinds) == len(uses) <= 5


async def test_the_recipe_stands_on_it(tmp_path: Path) -> None:
    settings = load_settings(RECIPE)
    short = settings.model_copy(update={"tasks": settings.tasks.model_copy(update={"judged": 40})})
    async with open_environment(short, tmp_path, None) as ground:
        assert ground.identity["taskset"] == "rehearsal-large"
        assert {one.difficulty for one in ground.validation_tasks} == {
            "1 part",
            *(f"{count} parts" for count in range(2, 6)),
        }
        assert ground.sft_source is not None
        assert ground.sft_source.examples(7, 0.5) == example_schedule(
            settings.seed, *settings.warm.follow, edition=LARGE
        )(7, 0.5)
        shown = max(
            len(compact_prompt(one.task, one.pool.cards).split())
            for one in ground.validation_tasks
            if one.pool is not None
        )
        assert shown < settings.model.longest - settings.grpo.longest
        assert ground.baselines is not None
        found = await ground.baselines()
        assert list(found) == ["generalist", "random", "keyword router", "rules", "optimum"]
        assert found["optimum"] > found["rules"] - 0.2 > found["random"]
