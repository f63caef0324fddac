"""What a conductor reads, and plans as text: nothing escapes its place, everything reads back."""

import json
from collections.abc import Mapping
from typing import cast

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.errors import Fault, FaultKind, PlanError
from shikisha.core.events import CheckStatus
from shikisha.core.messages import Attachment, ChatMessage, Json, MediaKind, Speaker, ToolCall, ToolExchange, ToolResult
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import (
    QUOTE,
    SHOWN_CHARACTERS,
    PlanFormat,
    PromptStyle,
    parse_error_message,
    plan_schema,
    planner_instructions,
    planner_message,
    quote_lines,
    render_plan,
    render_plan_lists,
)
from shikisha.core.run import CheckVerdict, Result, RoundResult
from shikisha.core.task import Task
from shikisha.workers.chat import response_format, strict_schema

POOL = 7
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan of up to five steps."""
    steps = []
    for index in range(draw(st.integers(0, 5))):
        access = tuple(seen for seen in range(index) if draw(st.booleans()))
        subtask = draw(texts.filter(lambda text: bool(text.strip())))
        steps.append(Step(subtask, draw(st.integers(0, POOL - 1)), access))
    return Plan(tuple(steps))


@given(plans(), st.sampled_from(PlanFormat))
def test_every_plan_reads_back_from_its_text(plan: Plan, form: PlanFormat) -> None:
    assert parse_plan(render_plan(plan, form), POOL) == plan


@pytest.mark.parametrize(
    "hard", ["say \"it\" and 'that'", "two\nlines", "a\\nb", "指揮者 🎼", "]", "model_id = [0]", "a\u2028b"]
)
def test_hard_subtasks_read_back_after_prose(hard: str) -> None:
    plan = Plan((Step(hard, 1), Step(hard, 0, (0,))))
    assert parse_plan(f"I think so.\n\n{render_plan_lists(plan)}", 2) == plan


def test_seeing_every_earlier_step_is_written_all() -> None:
    plan = Plan((Step("a", 0), Step("b", 0, (0,)), Step("c", 1, (1,))))
    assert render_plan_lists(plan).splitlines()[-1] == 'access_list = [[], ["all"], [1]]'


def test_the_empty_plan_is_three_empty_lists() -> None:
    assert render_plan_lists(Plan()) == "model_id = []\nsubtasks = []\naccess_list = []"


@pytest.mark.parametrize("form", PlanFormat)
def test_every_plan_among_the_examples_parses(form: PlanFormat) -> None:
    blocks = planner_instructions(style=PromptStyle(form=form)).split("Your reasoning and plan:\n")[1:]
    shapes = [parse_plan(block.split("\n\nQuestion:")[0], 5).topology() for block in blocks]
    assert sorted(shapes) == ["chain", "fan-out+join", "mixed", "one-shot"]


def test_examples_can_be_left_out_and_fit_the_step_cap() -> None:
    assert "Examples" not in planner_instructions(style=PromptStyle(examples=False))
    assert planner_instructions(1).count("\nQuestion:") == 1
    assert "at most 1 step." in planner_instructions(1)


def _ours(prompt: str) -> list[str]:
    return [line for line in prompt.splitlines() if not line.startswith(QUOTE)]


def _everywhere(text: str) -> str:
    """Put one foreign text into every place of the prompt that takes any."""
    result = Result("a", text, None, (CheckVerdict(text, CheckStatus.FAIL, text),))
    past = RoundResult(Plan((Step(f"do {text}", 0),)), (result,))
    task = Task(
        f"ask {text}",
        f"see {text}",
        history=(ChatMessage(Speaker.SYSTEM, text), ChatMessage(Speaker.ASSISTANT, "", (ToolCall("1", text, text),))),
        attachments=(Attachment(MediaKind.FILE, "text/plain", text, "aGVsbG8="),),
        exchanges=(ToolExchange((ToolCall("2", text, text),), (ToolResult("2", text),), text),),
        tools=({"type": "function", "function": {"name": f"tool {text}"}},),
        answer_schema={"title": text},
    )
    return planner_message(task, [Card("a", f"can {text}")], [past])


@given(texts)
def test_invariant_5_foreign_text_never_leaves_its_quoted_lines(text: str) -> None:
    assert _ours(_everywhere(text)) == _ours(_everywhere("harmless"))


@given(texts)
def test_foreign_text_is_shown_line_by_line(text: str) -> None:
    assert [line.removeprefix(QUOTE) for line in quote_lines(text).split("\n")] == (text.splitlines() or [""])


def test_what_a_client_said_before_and_wants_is_shown_in_its_place() -> None:
    task = Task(
        "And tomorrow?",
        history=(
            ChatMessage(Speaker.USER, "Is it wet?"),
            ChatMessage(Speaker.ASSISTANT, "", (ToolCall("1", "weather", "{}"),)),
        ),
        attachments=(Attachment(MediaKind.IMAGE, url="https://example.org/a.png"),),
        tools=({"type": "function", "function": {"name": "weather"}},),
    )
    prompt = planner_message(task, [Card("a", takes=(MediaKind.IMAGE,)), Card("b", tools=True)])
    assert prompt.startswith(
        "Conversation so far:\n| user: Is it wet?\n| assistant: (calls weather: {})\n\nQuestion:\n| And tomorrow?\n\n"
        "Attached to the question, and shown to every model:\n| image by link\n\n"
        "Tools of the client's, which the last step's model may call if it can:\n| weather\n\n"
        "Models:\nModel 0 (free; cannot call tools)\nModel 1 (free; cannot be shown the image)\n"
    )
    bare = planner_message(task, [Card("a"), Card("b")], style=PromptStyle(described=False))
    assert "Models: Model 0 (cannot be shown the image, cannot call tools), Model 1 (cannot" in bare


def test_names_of_workers_are_never_shown() -> None:
    past = RoundResult(Plan((Step("go", 0),)), (Result("famous-model-9", "done"),))
    prompt = planner_message(Task("q"), [Card("famous-model-9", "a worker")], [past])
    assert "famous" not in prompt


def test_bare_ordinals_show_neither_description_nor_price() -> None:
    cards = [Card("a", "knows birds", price=Price(1, 2)), Card("b", "knows trees")]
    prompt = planner_message(Task("q"), cards, style=PromptStyle(described=False))
    assert "Models: Model 0, Model 1\n" in prompt
    assert "birds" not in prompt
    assert "$" not in prompt


@pytest.mark.parametrize(
    ("price", "shown"),
    [
        (None, "price unknown"),
        (Price(), "free"),
        (Price(0.5, 2), "$0.5 in, $2 out per million tokens"),
        (Price(call=0.01), "$0.01 a call"),
    ],
)
def test_a_price_is_shown_in_words(price: Price | None, shown: str) -> None:
    assert f"Model 0 ({shown})" in planner_message(Task("q"), [Card("a", price=price)])


def test_an_earlier_round_shows_faults_and_stand_ins() -> None:
    plan = Plan((Step("one", 0), Step("two", 0)))
    past = RoundResult(plan, (Result("b", "42"), Result("a", None, Fault(FaultKind.TIMEOUT, "secret detail"))))
    prompt = planner_message(Task("q"), [Card("a"), Card("b")], [past])
    assert "Step 0, Model 1 in place of Model 0:\n| 42\n" in prompt
    assert "Step 1, Model 0: no answer (timeout)" in prompt
    assert "three empty lists" in prompt


def test_a_huge_answer_is_shortened_and_says_so() -> None:
    past = RoundResult(Plan((Step("go", 0),)), (Result("a", "x" * (SHOWN_CHARACTERS + 1234)),))
    prompt = planner_message(Task("q"), [Card("a")], [past])
    assert "(1,234 characters are left out here)" in prompt
    assert len(prompt) < SHOWN_CHARACTERS + 1000


def test_a_complaint_quotes_what_and_where() -> None:
    assert "\n| model_id[0]: no worker 9\n" in parse_error_message(PlanError("no worker 9", "model_id[0]"))


def test_the_schema_takes_what_the_parser_takes() -> None:
    plan = Plan((Step("a", 2, kind="sums"), Step("b", 0, (0,), kind="law")))
    instance = json.loads(plan.dumps()) | {"reasoning": "because"}
    jsonschema.validate(instance, plan_schema(3))
    assert parse_plan(json.dumps(instance), 3) == plan


def test_the_schema_bounds_a_plan_to_earlier_steps_and_to_so_many_words() -> None:
    def fits(*steps: tuple[str, list[int]], first: bool = False) -> bool:
        given = [{"worker": 0, "subtask": text, "access": access, "kind": ""} for text, access in steps]
        schema = plan_schema(3, 3, first=first, characters=9)
        return bool(jsonschema.Draft202012Validator(schema).is_valid({"reasoning": "", "steps": given}))

    assert fits(("a", []), ("b", [0]), ("c", [0, 1]))
    assert fits()
    assert not fits(first=True)
    assert not fits(("a", [0]))
    assert not fits(("a", []), ("b", [1]))
    assert not fits(("a", []), ("b", [0, 0]))
    assert not fits(("a", []), ("b", []), ("c", [1, 1]))
    assert not fits(("a", []), ("b", []), ("c", [1, 0]))
    assert not fits(("a" * 10, []))
    assert not fits(("", []))
    assert not fits(*[("a", [])] * 4)
    six = [{"worker": 0, "subtask": "a", "access": [place], "kind": "k"} for place in (5, 0, 0, 0, 0, 0)]
    long = {"reasoning": "", "steps": six}
    assert jsonschema.Draft202012Validator(plan_schema(1, 8)).is_valid(long)  # the parser sees the rest


@pytest.mark.parametrize("wrong", [{"worker": 3}, {"access": [4]}, {"subtask": 1}, {"extra": 1}, {"kind": "k" * 41}])
def test_the_schema_refuses_what_no_plan_can_be(wrong: dict[str, object]) -> None:
    step = {"worker": 0, "subtask": "a", "access": [], "kind": ""} | wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"reasoning": "", "steps": [step]}, plan_schema(3))


def test_map_steps_are_spoken_of_only_where_they_are_allowed() -> None:
    assert "each 0" not in planner_instructions()
    assert '"each 0"' in planner_instructions(map_items=30)
    assert "at most 30 items" in planner_instructions(map_items=30)
    instance = json.loads(Plan((Step("a", 2, kind="a"), Step("b", 0, (0,), 0, "b"))).dumps()) | {"reasoning": ""}
    jsonschema.validate(instance, plan_schema(3, maps=True))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(instance, plan_schema(3))


def test_openai_is_held_to_a_plans_schema_in_strict_mode() -> None:
    for first in (True, False):
        form = response_format(cast("Mapping[str, Json]", strict_schema(plan_schema(3, first=first))))
        assert cast("dict[str, object]", form["json_schema"])["strict"] is True
        assert '"enum"' not in json.dumps(form)  # no enum there has lists
