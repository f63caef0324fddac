"""Lessons: what they teach, and what they keep to themselves."""

import re
from collections import Counter
from functools import cache

import pytest

from shikisha.core.plan_parser import parse_plan
from shikisha.simulation.chain_of_thought import (
    SLOTS,
    ChainOfThought,
    best_worker_for,
    thought_tokens,
    true_chain_of_thought,
)
from shikisha.simulation.instructions import CANONICAL_PHRASES, InstructionKind
from shikisha.simulation.plan_templates import PlanForm, WorkerAssignment, plan_of_form
from shikisha.simulation.sft_examples import (
    MASKED_WORD,
    SFTMixture,
    SimulatedExample,
    example_schedule,
    generate_example,
    plan_subtasks,
)
from shikisha.simulation.task_generator import HELD_OUT_PAIR, PoolWorkers, shape_groups
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import HELD_OUT_NAMES, PROFILES

MANY = 600


STANDARD = SFTMixture()


@cache
def drawn(curriculum: SFTMixture = STANDARD) -> tuple[SimulatedExample, ...]:
    return tuple(generate_example(3, index, curriculum) for index in range(MANY))


def test_a_lesson_hangs_on_seed_and_index_alone() -> None:
    assert all(generate_example(3, index) == one for index, one in reversed(list(enumerate(drawn()[:30]))))
    assert generate_example(4, 0) != generate_example(3, 0)


def test_every_plan_can_be_parsed_and_has_one_of_the_forms_in_equal_shares() -> None:
    plans = [parse_plan(one.shown + one.taught, 9) for one in drawn() if one.whole and "came" not in one.taught]
    topologies = Counter(plan.topology() for plan in plans)
    assert set(topologies) == {"one-shot", "chain", "fan-out+join", "mixed"}
    assert 0.14 < topologies["one-shot"] / len(plans) < 0.25  # one of seven, or of four where nobody takes votes


def test_votes_are_taken_where_somebody_takes_them_and_need_three_readings() -> None:
    voted = 0
    for one in drawn():
        if one.whole and "came" not in one.taught:
            plan = parse_plan(one.taught, 9)
            readings = [
                len(step.access) for step in plan.steps if step.subtask == CANONICAL_PHRASES[InstructionKind.VOTE][0]
            ]
            assert not readings or "\njudge=-\n" not in one.shown + one.taught
            assert all(count >= 3 for count in readings)
            voted += bool(readings)
    assert voted


def test_workers_of_plans_are_drawn_whatever_the_thought_says() -> None:
    never = [one for one in drawn(SFTMixture(drills=0, plans=1, follow=0)) if "work " in one.taught]
    first = [one.taught.partition("model_id = [")[2][0] for one in never]
    fits = [one.taught.partition("work ")[2].partition("=")[2][0] for one in never]
    agreeing = sum(a == b for a, b in zip(first, fits, strict=True)) / len(never)
    assert agreeing < 0.25  # a pool of five: one of five by lot, less where nobody fits


def test_a_drill_follows_the_thought_that_it_shows() -> None:
    drills = [one for one in drawn(SFTMixture(drills=1, plans=0)) if re.search(r"work fact=\d", one.shown)]
    assert drills
    for one in drills:
        fit = one.shown.partition("work fact=")[2][0]
        assert int(fit) in {step.worker for step in parse_plan(one.taught, 9).steps}


def test_words_of_descriptions_that_say_nothing_are_struck_out_oftener() -> None:
    struck = {True: [0, 0], False: [0, 0]}
    plain, noisy = (drawn(SFTMixture(drills=0, plans=0, encores=0, noise=noise)) for noise in (0, 0.06))
    for one, other in zip(plain, noisy, strict=True):
        for line, left in zip(one.prompt.splitlines()[1:-1], other.prompt.splitlines()[1:-1], strict=True):
            for word, now in zip(line.split(), left.split(), strict=True):
                if word in {"good", "handles", "works", "letters", "sums", "dates", "gauges"}:
                    count = struck[word in {"good", "handles", "works"}]
                    count[0], count[1] = count[0] + (now == MASKED_WORD), count[1] + 1
    empty, telling = (hit / of for hit, of in (struck[True], struck[False]))
    assert empty > 3 * telling > 0


@pytest.mark.parametrize("kept", sorted(HELD_OUT_NAMES))
def test_no_worker_of_the_held_out_split_is_in_a_lesson(kept: str) -> None:
    offers = [offer.all for offer in PROFILES[kept].descriptions]
    for one in drawn(SFTMixture(noise=0)):
        for line in one.prompt.splitlines()[1:-1]:
            assert not all(any(words in line for words in offer) for offer in offers)


def test_a_second_round_reads_what_came_of_the_first_and_keeps_half_of_the_time() -> None:
    encores = drawn(SFTMixture(drills=0, plans=0, encores=1))
    kept = [parse_plan(one.taught, 9).ships for one in encores]
    assert 0.4 < sum(kept) / len(kept) < 0.6
    seen: Counter[str] = Counter()
    for one in encores:
        told = one.taught.partition("\n")[0].removeprefix("came ").split("+")
        done = [line for line in one.prompt.splitlines() if line.startswith("did ")]
        assert [": I cannot " in line for line in done] == [label == "cannot" for label in told]
        assert [": I lack " in line for line in done] == [label == "lack" for label in told]
        results = [line.partition(": ")[2] for line in done]
        for place, (said, label) in enumerate(zip(results, told, strict=True)):
            alike = results[:place].count(said)
            voted = "take the most common result" in done[place]
            assert (" =" in done[place].partition(": ")[0]) == (alike > 0)
            if label not in ("cannot", "lack"):
                assert label == ("torn" if alike < 2 else "agreed") if voted else label == ("same" if alike else "ok")
            seen[label] += 1
    assert min(seen[label] for label in ("ok", "same", "agreed", "torn", "cannot", "lack")) > len(encores) / 40


def test_a_reading_ends_before_the_line_break_that_a_form_begins_with() -> None:
    assert not [one for one in drawn() if not one.whole and one.taught.endswith("\n")]


def test_no_question_brings_the_held_out_pair_together() -> None:
    lines = [one.taught.rpartition("work ")[2].partition("\n")[0] for one in drawn(SFTMixture(drills=0))]
    assert not [line for line in lines if all(f"{name}=" in line for name in HELD_OUT_PAIR)]


def test_follow_falls_late() -> None:
    lessons = example_schedule(1, 1.0, 0.0)
    early, late = ([lessons(index, done) for index in range(MANY)] for done in (0.0, 1.0))
    assert early != late
    assert early == [example_schedule(1, 1.0, 0.0)(index, 0.5) for index in range(MANY)]


def test_a_thought_names_the_fittest_and_its_pieces_spell_it() -> None:
    shape = next(group for group in shape_groups(2) if group.families == {"fact", "date"}).shapes[0]
    casting = tuple(
        (name, next(iter(PROFILES[name].descriptions[0].by_split[WordingSplit.TRAIN]))) for name in ("date", "judge")
    )
    told = true_chain_of_thought(shape, casting)
    assert told.text().endswith("judge=1\nwork fact=- then date=0, none=-, last alone\nso 2, in a row, steady\n")
    rest = told.text()
    for piece in sorted(thought_tokens(), key=len, reverse=True):
        rest = rest.replace(piece, "")
    assert not rest


def pool(*names: str) -> PoolWorkers:
    """Return these workers, each described by the first wording of every skill."""
    return tuple(
        (name, " and ".join(next(iter(offer.by_split[WordingSplit.TRAIN])) for offer in PROFILES[name].descriptions))
        if name in PROFILES
        else (name, "does something")
        for name in names
    )


def test_a_thought_sums_up_how_many_kinds_hang_together_how_and_which_is_noisy() -> None:
    said: dict[str, int] = {}
    for count in (1, 2, 3):
        for group in shape_groups(count):
            for shape in group.shapes:
                last = true_chain_of_thought(shape, pool("gauge", "judge")).text().splitlines()[-1]
                linked = "joined" if shape.operations[-1].joins else "in a row"
                noise = f"noisy {shape.families.index('gauge') + 1}" if "gauge" in shape.families else "steady"
                assert last == f"so {count}, {linked if count > 1 else 'alone'}, {noise}"
                assert f"\n{last}" in thought_tokens()
                said[last] = said.get(last, 0) + 1
    assert len(said) == 11  # no question of two parts is joined, and no gauge is read last of three


@pytest.mark.parametrize(
    ("names", "noise"),
    [
        (("gauge", "judge", "date"), "noisy 1"),
        (("judge", "date-gauge"), "dear 1"),  # who reads it does more, and costs more
        (("date-gauge", "judge", "gauge"), "noisy 1"),
        (("gauge", "date"), "steady"),  # nobody takes votes
        (("date", "judge"), "steady"),  # nobody reads it
    ],
)
def test_noise_is_what_can_be_voted_on_and_dear_where_a_reading_is(names: tuple[str, ...], noise: str) -> None:
    kinds = ("gauge", "date")
    shape = next(shape for group in shape_groups(2) for shape in group.shapes if shape.families == kinds)
    told = true_chain_of_thought(shape, pool(*names))
    assert told.text().endswith(f"so 2, in a row, {noise}\n")
    assert f"\nso 2, in a row, {noise}" in thought_tokens()
    assert bool(told.votable) == (noise != "steady")


@pytest.mark.parametrize(
    ("can", "told"),
    [
        ((4,), "last alone"),
        ((4, 2), "last alone"),
        ((2, 2), "last with 1"),
        ((None, None), "last alone"),  # nobody does them, which is not the same one
        ((2, 3, 2), "last with 1"),
        ((3, 2, 2), "last with 2"),
        ((2, 2, 2), "last with 1 2"),
        ((2, 2, 3), "last alone"),
    ],
)
def test_a_thought_says_which_kinds_whoever_does_the_last_does_too(can: tuple[int | None, ...], told: str) -> None:
    kinds = ("fact", "date", "arithmetic")[: len(can)]
    text = ChainOfThought((), kinds, joined=False, can=can).text()
    assert text.partition("\nwork ")[2].partition("\n")[0].endswith(f", {told}")
    assert [piece for piece in thought_tokens() if piece == f", {told}"]


def test_drills_show_all_forms_about_as_often() -> None:
    forms = Counter(one.taught.splitlines()[1] for one in drawn(SFTMixture(drills=1, plans=0)))
    assert len(forms) == len(PlanForm)
    assert min(forms.values()) > 0.6 * max(forms.values())


def test_a_share_of_the_questions_can_be_voted_on() -> None:
    sums = [one.taught.rpartition("\nso ")[2] for one in drawn(SFTMixture(drills=0, plans=0, encores=0, turns=0))]
    votable = sum("noisy" in one or "dear" in one for one in sums) / len(sums)
    assert 0.12 < votable < 0.35  # one in twelve, where nothing is done about it


def test_the_fittest_does_it_and_little_else() -> None:
    names = ("fact-text", "date", "fact", "text")
    assert [best_worker_for(kind, names) for kind in ("fact", "text", "date", "gauge")] == [2, 3, 1, None]


@pytest.mark.parametrize("form", PlanForm)
def test_forms_are_plans_of_the_workers_given(form: PlanForm) -> None:
    plan = plan_of_form(form, WorkerAssignment(["fact", "gauge", "date"], [3, 4, 5], judge=6, readings=3))
    assert {step.worker for step in plan.steps} <= {3, 4, 5, 6}
    assert all(step.subtask in plan_subtasks() for step in plan.steps)
    assert len(plan) <= 5
    assert SLOTS == 3
