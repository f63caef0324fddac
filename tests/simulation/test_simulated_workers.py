"""What the rehearsal workers do, say and leave alone."""

from collections import defaultdict
from itertools import product
from math import sqrt

import pytest

from shikisha.core.budget import Usage
from shikisha.core.task import Task
from shikisha.engine.worker import GrantedStep, Request
from shikisha.simulation.instructions import CANONICAL_PHRASES, NUMBERED_PHRASES, InstructionKind, parse_instruction
from shikisha.simulation.questions import FAMILIES, OPERATIONS, ComposedQuestion, PartReference, parse_question
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.simulation.simulated_workers import FactNotFound, SimulatedWorker, apply_with_tool, simulated_usage
from shikisha.simulation.task_generator import draw_question, generate_tasks, shape_groups
from shikisha.simulation.values import format_value, normalize_answer
from shikisha.simulation.vocabulary import WordingSplit, fact_table, split_names
from shikisha.simulation.worker_profiles import GENERALIST, JUDGE, NOVICE, PROFILES

PLACE = split_names()[0][WordingSplit.TRAIN][0]
CHAIN = f"Find 4 times the tally listed for {PLACE} plus 12."
TALLY = fact_table()[PLACE].tally
GAUGE = f"Find the level on the gauge of {PLACE}."
TRIPLE = f"Find the gap from 4 times the tally listed for {PLACE} plus 12 to the nearest of 10 or 20 or 90."
JOIN = f"Find the sum of the tally listed for {PLACE} and the gap from 50 to the nearest of 10 or 20 or 90."


def say(name: str, prompt: str, subtask: str, *granted: tuple[str, str | None], luck: int = 1, key: str = "") -> str:
    shown = tuple(GrantedStep(index, told, text) for index, (told, text) in enumerate(granted))
    return SimulatedWorker(PROFILES[name], luck).answer(Request(Task(prompt), subtask, shown, key=key))


def often(name: str, prompt: str, subtask: str, *granted: tuple[str, str | None]) -> list[str]:
    """What the worker says with the luck of 40 seeds."""
    return [say(name, prompt, subtask, *granted, luck=luck) for luck in range(40)]


def mostly(answers: list[str]) -> str:
    return max(set(answers), key=answers.count)


def question(prompt: str) -> ComposedQuestion:
    found = parse_question(prompt)
    assert found is not None
    return found


def test_told_to_do_the_first_part_a_worker_returns_the_first_parts_value() -> None:
    for subtask in ("look up the fact", "do the first part", f"Look up the tally of {PLACE}"):
        assert mostly(often("fact", CHAIN, subtask)) == str(TALLY)
        assert mostly(often(GENERALIST, CHAIN, subtask)) == str(TALLY)


def test_told_to_finish_a_worker_uses_the_result_that_it_was_granted() -> None:
    for told in ("look up the fact", "do the first part", "go on with the previous result"):
        assert mostly(often("arithmetic", CHAIN, "finish with the previous result", (told, "1000"))) == "4012"


def test_told_to_finish_what_is_finished_a_tool_finds_nothing_to_do_and_a_model_hands_it_on() -> None:
    def told(name: str) -> str:
        return say(name, CHAIN, "finish with the previous result", ("answer the question", "1000"))

    assert told("fact") == told(JUDGE) == "I cannot find anything that is left to do."
    assert told(GENERALIST) == told(NOVICE) == "1000"


def test_a_wrong_granted_result_makes_a_wrong_result_and_is_not_put_right() -> None:
    answers = often(GENERALIST, CHAIN, "finish with the previous result", ("look up the fact", str(TALLY + 1)))
    assert mostly(answers) == str(4 * (TALLY + 1) + 12)
    assert str(4 * TALLY + 12) not in answers


@pytest.mark.parametrize("subtask", ["finish with the previous result", "go on with the previous result"])
@pytest.mark.parametrize("name", ["arithmetic", GENERALIST, NOVICE, JUDGE])
def test_told_to_use_a_result_that_it_was_not_granted_a_worker_says_so(name: str, subtask: str) -> None:
    assert say(name, CHAIN, subtask) == "I lack the previous result."
    assert say(name, CHAIN, subtask, ("look up the fact", None)) == "I lack the previous result."


@pytest.mark.parametrize("name", ["arithmetic", "arithmetic-date", GENERALIST, NOVICE])
def test_told_to_do_a_later_part_without_its_input_a_worker_says_so(name: str) -> None:
    assert say(name, CHAIN, "do the arithmetic") == "I lack the result of the fact part."
    assert say(name, CHAIN, "do the second part") == "I lack the result of the fact part."


def test_a_specialist_says_that_it_cannot_do_other_work() -> None:
    for prompt, subtask in ((CHAIN, "answer the question"), (CHAIN, "look up the fact"), (GAUGE, "read the gauge")):
        assert say("text", prompt, subtask).startswith("I cannot do the ")


def test_a_refusal_is_no_result_for_the_next_worker() -> None:
    said = say("arithmetic", CHAIN, "finish with the previous result", ("do the text work", "I cannot do this part."))
    assert said == "I lack the previous result."


def test_a_result_of_the_wrong_sort_is_not_used() -> None:
    said = say("arithmetic", CHAIN, "finish with the previous result", ("look up the fact", "kalo"))
    assert said == "I cannot use the previous result: it is no number."


def test_a_part_that_the_question_does_not_have_is_not_invented() -> None:
    assert say("gauge", CHAIN, "read the gauge") == "I cannot do that part: the question has no gauge part."
    assert say("fact", CHAIN, "do the third part") == "I cannot do that part: there is none."


def test_the_middle_of_a_chain_is_done_with_the_result_before_it() -> None:
    value = 4 * TALLY + 12
    first, middle = ("look up the fact", str(TALLY)), ("do the arithmetic", str(value))
    assert mostly(often("arithmetic", TRIPLE, "do the arithmetic", first)) == str(value)
    assert mostly(often("arithmetic", TRIPLE, "go on with the previous result", first)) == str(value)
    assert mostly(often("comparison", TRIPLE, "finish with the previous result", middle)) == str(value - 90)


def test_a_two_skilled_worker_finishes_both_parts_that_are_left() -> None:
    told = "finish with the previous result"
    answers = often("arithmetic-comparison", TRIPLE, told, ("look up the fact", str(TALLY)))
    assert mostly(answers) == str(4 * TALLY + 12 - 90)
    assert say("comparison", TRIPLE, told, ("look up the fact", str(TALLY))) == "I cannot do the arithmetic part."


def test_a_result_that_the_subtask_states_can_be_used() -> None:
    assert mostly(often("arithmetic", CHAIN, "finish with the previous result: 1000.")) == "4012"


def test_a_join_needs_both_results() -> None:
    fact, gap = ("look up the fact", str(TALLY)), ("make the comparison", "30")
    assert mostly(often("arithmetic", JOIN, "finish with the previous results", fact, gap)) == str(TALLY + 30)
    assert say("arithmetic", JOIN, "do the arithmetic", fact) == "I lack the result of the comparison part."


def test_independent_readings_differ_and_a_repeated_call_does_not() -> None:
    keys = [f"run-0-{step}-0" for step in range(60)]
    readings = [say("gauge", GAUGE, "read the gauge", key=key) for key in keys]
    assert readings == [say("gauge", GAUGE, "read the gauge", key=key) for key in keys]
    right = format_value(question(GAUGE).solve()[-1])
    assert 0.5 < readings.count(right) / len(readings) < 0.85
    assert mostly(readings) == right


def test_asking_a_model_or_a_specialist_again_brings_the_same_answer() -> None:
    for name in ("fact", GENERALIST, NOVICE):
        for luck in range(20):
            first, again = (say(name, CHAIN, "look up the fact", luck=luck, key=key) for key in ("a", "b"))
            assert first == again


def test_the_judge_takes_the_most_common_result_and_sometimes_spoils_it() -> None:
    read = [("read the gauge", text) for text in ("500", "508", "500", "I cannot do the gauge part.")]
    answers = often(JUDGE, GAUGE, "take the most common result", *read) + often(JUDGE, GAUGE, "vote", *read[:3])
    assert mostly(answers) == "500"
    assert 0 < sum(answer != "500" for answer in answers) < 12


def test_a_tie_is_drawn_by_lot() -> None:
    read = [("read the gauge", "500"), ("read the gauge", "508")]
    assert {"500", "508"} <= set(often(JUDGE, GAUGE, "take the most common result", *read))


def test_a_vote_counts_results_of_the_last_part_only() -> None:
    prompt = f"Find the level on the gauge of the keeper listed for {PLACE}."
    granted = [("look up the fact", "kalo"), ("read the gauge", "500"), ("read the gauge", "500")]
    assert mostly(often(JUDGE, prompt, "take the most common result", *granted)) == "500"


def test_a_tool_cannot_judge_and_a_judge_cannot_work() -> None:
    granted = [("read the gauge", "500"), ("read the gauge", "508")]
    assert say("gauge", GAUGE, "take the most common result", *granted) == "I cannot judge between results."
    assert say(JUDGE, GAUGE, "read the gauge") == "I cannot do the gauge part."


def test_a_needless_check_by_a_model_sometimes_spoils_a_right_answer() -> None:
    right = format_value(question(CHAIN).solve()[-1])
    checked = often(NOVICE, CHAIN, "check the previous result", ("answer the question", right))
    assert mostly(checked) == right
    assert any(normalize_answer(answer) != right for answer in checked)


def test_a_check_by_the_specialist_repeats_its_part() -> None:
    fact = ("look up the fact", str(TALLY + 1))
    assert mostly(often("fact", CHAIN, "check the previous result", fact)) == str(TALLY)
    assert say("text", CHAIN, "check the previous result", fact).startswith("I cannot")


def test_a_plan_names_the_kinds_of_work_and_is_no_result() -> None:
    plan = mostly(often(GENERALIST, CHAIN, "plan the work"))
    assert plan == "fact, then arithmetic"
    assert say("fact", CHAIN, "finish with the previous result", ("plan the work", plan)).startswith("I lack")
    told = ("plan the work", plan)
    assert mostly(often(GENERALIST, CHAIN, "carry out this plan and answer the question", told)).isdigit()


def test_a_question_repeated_in_the_subtask_is_no_instruction() -> None:
    assert mostly(often("fact-arithmetic", CHAIN, CHAIN)) == str(4 * TALLY + 12)


def test_texts_from_outside_are_answered_with_a_sentence() -> None:
    assert say(GENERALIST, "What is the weather?", "answer the question") == "I cannot make sense of this question."
    for name in ("fact", GENERALIST):
        assert "entry" in say(name, "Find the tally listed for nowhere.", "answer the question")


@pytest.mark.parametrize("name", PROFILES)
def test_no_instruction_whatever_makes_a_worker_fail(name: str) -> None:
    told = [
        *NUMBERED_PHRASES,
        *(phrase for phrases in CANONICAL_PHRASES.values() for phrase in phrases),
        "compare",
        "sum",
        "?",
        "读",
    ]
    granted = [(), (("?", "-5"),), (("vote", "kalo"), ("look up the fact", "12"), ("finish", "x" * 99))]
    for item, subtask, shown in product(generate_tasks(WordingSplit.DEV, 4, count=12), told, granted):
        assert say(name, item.task.prompt, subtask, *shown)


def test_canonical_phrases_are_understood_as_meant() -> None:
    for verb, phrases in CANONICAL_PHRASES.items():
        assert {parse_instruction(phrase).verb for phrase in phrases} == {verb}
    for number, phrase in enumerate(NUMBERED_PHRASES):
        assert (parse_instruction(phrase).verb, parse_instruction(phrase).number) == (InstructionKind.PARTS, number)
    for name, family in FAMILIES.items():
        assert [parse_instruction(tell).families for tell in family.instructions] == [{name}] * len(family.instructions)


@pytest.mark.parametrize(
    ("subtask", "verb"),
    [
        ("Answer the question.", InstructionKind.ANSWER),
        ("Carry out this plan and answer the question.", InstructionKind.ANSWER),
        ("Use the earlier results to answer the question", InstructionKind.FINISH),
        ("Compare these answers and give the best one", InstructionKind.VOTE),
        ("Make a short plan", InstructionKind.PLAN),
        ("Continue from there", InstructionKind.NEXT),
        ("Verify the answer against the question", InstructionKind.CHECK),
    ],
)
def test_plain_english_is_understood_too(subtask: str, verb: InstructionKind) -> None:
    assert parse_instruction(subtask).verb is verb


def test_tools_really_compute_what_the_generator_computes() -> None:
    draw = seeded_generator("tools")
    for group in (*shape_groups(1), *shape_groups(2), *shape_groups(3)[::4]):
        made, _ = draw_question(group.shapes[0], WordingSplit.DEV, draw)
        values = made.solve()
        for part, value in zip(made.parts, values, strict=True):
            given = [values[one.part] if isinstance(one, PartReference) else one for one in part.inputs]
            assert apply_with_tool(part.operation, given, part.constants) == value


def test_the_table_is_searched_with_one_quoted_word() -> None:
    with pytest.raises(FactNotFound):
        apply_with_tool(OPERATIONS["fact.tally"], [f'{PLACE}" OR place:"{PLACE}'], ())


def test_models_count_the_words_that_they_are_shown_and_say() -> None:
    request = Request(Task("Find 4 times 5 plus 12."), "answer the question")
    shown = ["Find", "4", "times", "5", "plus", "12", ".", "Your", "part", "now", ":", "answer", "the", "question"]
    assert simulated_usage(request, "32") == Usage(len(shown), 1)


async def test_tools_use_no_tokens_and_models_say_who_they_are() -> None:
    request = Request(Task(CHAIN), "look up the fact")
    assert (await SimulatedWorker(PROFILES["fact"]).perform(request)).usage == Usage()
    assert (await SimulatedWorker(PROFILES[NOVICE]).perform(request)).model == NOVICE


@pytest.mark.parametrize("name", ["fact", "arithmetic", "gauge", "text-gauge", "fact-text", GENERALIST, NOVICE, JUDGE])
def test_a_worker_alone_is_right_as_often_as_its_nominal_skill_says_and_no_more(name: str) -> None:
    profile, groups_of = PROFILES[name], defaultdict[float, list[bool]](list)
    for item in generate_tasks(WordingSplit.TRAIN, 11, count=2_000):
        said = SimulatedWorker(profile, luck=5).answer(Request(item.task, "answer the question", key=item.task.id))
        groups_of[round(profile.skill(item.kinds), 6)].append(item.grade(said))
    for skill, right in groups_of.items():
        bound = 4 * sqrt(len(right) * skill * (1 - skill)) + (0.5 if 0 < skill < 1 else 0)
        assert abs(sum(right) - len(right) * skill) <= bound, (name, skill, len(right))
