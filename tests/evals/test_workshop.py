"""The world "workshop": splits share no part, graders are exact, and an answer is kept by its content."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import workshop_fill
from workshop_fill import AnswerCache, wanted
from workshop_items import FAMILIES, Part, grade
from workshop_tasks import HELD_FAMILIES, HELD_PAIRS, compose
from workshop_treatments import SMALL, Call, right_whole, tool_answer, treatments_of

from shikisha.workers import model_files

MORE: Mapping[str, Mapping[str, object]] = {
    "intents": {"labels": ["pay day", "pay"], "examples": [("when am I paid", "pay day"), ("send money", "pay")]},
    "tables": {"table": [["Name", "Goals"], ["Ann", "3"]]},
    "stories": {"story": "Tom had a dog. It was red.", "options": ["a dog", "a cat"]},
    "programs": {"stub": "def f():\n", "test": "", "entry": "f"},
}
KINDS = {
    "arithmetic": "number",
    "booleans": "boolean",
    "word problems": "number",
    "sorting": "words",
    "programs": "code",
}


def parts(count: int) -> dict[str, list[Part]]:
    return {
        family: [
            Part(family, f"{family} {i}", f"{i} + 1", KINDS.get(family, "value"), ("1",), MORE.get(family, {}))
            for i in range(count)
        ]
        for family in FAMILIES
    }


def test_no_part_is_in_two_splits_and_held_families_are_held_out() -> None:
    tasks = compose(parts(200))
    assert [sum(each.split == split for each in tasks) for split in ("train", "choose", "test")] == [600, 200, 700]
    assert [sum(len(each.parts) == count for each in tasks) for count in (1, 2, 3)] == [500, 600, 400]
    seen = {
        split: {p.name for t in tasks if t.split == split for p in t.parts} for split in ("train", "choose", "test")
    }
    assert not seen["train"] & seen["test"]
    assert not seen["choose"] & (seen["train"] | seen["test"])
    shown = [each.families for each in tasks if each.split != "test"]
    assert not any(families & set(HELD_FAMILIES) or any(pair <= families for pair in HELD_PAIRS) for families in shown)
    assert {family for each in tasks for family in each.families} == set(FAMILIES)
    assert compose(parts(200)) == tasks


@pytest.mark.parametrize(
    ("kind", "answers", "said", "right"),
    [
        ("number", ("-219",), "The answer is -219.", True),
        ("number", ("1234",), "So 5 of them make 1,234", True),
        ("number", ("12",), "The answer is 120", False),
        ("boolean", ("True",), "not False is true", True),
        ("boolean", ("True",), "The answer is True and False", False),
        ("words", ("a b",), "The answer is 'a, b'", True),
        ("words", ("a b",), "b a", False),
        ("value", ("05/01/2021",), "It is 05/01/2021.", True),
        ("value", ("3",), "It is 13", False),
        ("choice", ("pay day",), "It is about pay_day.", True),
        ("choice", ("pay day",), "pay or pay day? The answer is pay", False),
    ],
)
def test_an_answer_is_graded_by_its_end(kind: str, answers: tuple[str, ...], said: str, right: bool) -> None:
    part = Part("intents", "x", "?", kind, answers, MORE["intents"])
    assert grade(part, said) is right


def test_a_whole_answer_is_right_where_each_line_is_in_the_order_that_was_asked() -> None:
    one, two = (Part("arithmetic", name, "1", "number", (name,)) for name in ("12", "7"))
    assert right_whole([one, two], "The answer is 12.\nThe answer is 7.")
    assert not right_whole([one, two], "The answer is 7.\nThe answer is 12.")
    assert not right_whole([one, two], "The answer is 12.")


def test_exact_tools_answer_what_they_read() -> None:
    assert tool_answer(Part("arithmetic", "a", "((-3 + 5 * 8 * -4) - (9 - 8 * -7 + -9))", "number", ())) == "-219"
    assert tool_answer(Part("booleans", "b", "not ( True ) and ( True )", "boolean", ())) == "False"
    assert tool_answer(Part("sorting", "s", "b c a", "words", ())) == "a b c"
    assert tool_answer(Part("intents", "i", "when are we paid", "choice", (), MORE["intents"])) == "pay day"
    assert tool_answer(Part("dates", "d", "today", "value", ())) is None


def test_answers_are_kept_by_content_and_what_is_missing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = AnswerCache(tmp_path / "a.db")
    task = next(each for each in compose(parts(200)) if each.split == "test" and each.families == {"word problems"})
    first, *others = list(wanted([task], cache))
    assert first == treatments_of("word problems")[0].call(task.parts[0])
    cache.put(first, "print(1)", 1.5, (10, 3), "stop")
    assert AnswerCache(tmp_path / "a.db").get(first) == ("print(1)", 1.5)
    assert cache.get(replace(first, tokens=5)) is None
    assert cache.get(Call(first.worker, (("user", "else"),), first.tokens)) is None

    known = model_files.known_models()
    other = {**known, SMALL: known[SMALL].model_copy(update={"sha256": "0" * 64})}
    monkeypatch.setattr(workshop_fill, "known_models", lambda: other)
    assert cache.get(first) is None  # another quantization is another worker
    assert others
