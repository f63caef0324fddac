"""The parser reads or refuses, and Python and json read the same plan: a third of 15,000 cases, with FUZZ=1 all.

The oracle knows nothing of the parser: it looks for three assignments (or one object) at the text's end, reads them
with `ast.literal_eval` (or `json`), and asks whether that is the accepted plan. The other cases: test_executor_fuzz.
"""

import json
import os
import re
import warnings
from ast import literal_eval
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import PlanFormat, render_plan, render_plan_lists

POOL, MOST = 4, 5
NAMES = ("model_id", "subtasks", "access_list")
NAME = re.compile(r"\b(?:model_id|subtasks|access_list)\b", re.ASCII)


def fuzz(cases: int) -> settings:
    """Settings for this many cases, without time limits that a busy machine would break; FUZZ=1 runs all of them."""
    cases = cases if os.environ.get("FUZZ") else cases // 3
    return settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))


# The oracle


def joined(text: str) -> str:
    """The text as characters: pairs of surrogates are one, line ends and spaces of any kind are the plain ones."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return re.sub(r"[^\S\n]", " ", whole.replace("\r\n", "\n").replace("\r", "\n"))


def literals(text: str, at: int) -> Iterator[tuple[list[object], int]]:
    """The list literal that begins at `at`, as Python reads it, and where it ends; nothing if there is none."""
    for end in (match.end() for match in re.finditer("]", text[at:])):
        try:
            yield literal_eval(text[at : at + end]), at + end
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return


def assignments(text: str, at: int) -> Iterator[tuple[dict[str, list[object]], int]]:
    """Assignments to the three names that stand side by side from `at` on, and where they end."""
    found: dict[str, list[object]] = {}
    while match := re.compile(r"\s*([a-z_]+)\s*=\s*(?=\[)").match(text, at):
        begun = at
        for value, end in literals(text, match.end()):
            found[match[1]] = value
            at = re.compile(r"(?:\s|#[^\n]*)*[,;]?(?:\s|#[^\n]*)*").match(text, end).end()  # type: ignore[union-attr]  # matches ""
            if sorted(found) == sorted(NAMES):
                yield found, end
        if at == begun:  # what stands here is no list, whatever stood under that name before
            return


def readings(text: str) -> Iterator[list[tuple[object, object, object]]]:
    """Every way to read the text's end as a plan: rows of worker, subtask, access."""
    for match in NAME.finditer(text):
        for found, end in assignments(text, match.start()):
            columns = [found[name] for name in NAMES]
            commented = text[: match.start()].rpartition("\n")[2].lstrip().startswith("#")
            if not commented and silent(text[end:]) and len({len(column) for column in columns}) == 1:
                yield list(zip(*columns, strict=True))
    for match in re.finditer(r"\{", text):
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
            if silent(text[end:]) and value.keys() <= {"steps", "reasoning"}:
                yield [(step["worker"], step["subtask"], step["access"]) for step in value["steps"] if len(step) == 3]
        except (ValueError, KeyError, AttributeError, RecursionError):
            continue


def silent(rest: str) -> bool:
    """Whether the rest of a text says nothing of the lists, and nothing on the plan's own line."""
    return not NAME.search(rest) and bool(re.match(r"[ ;`~]*(#|\n|\Z)", rest))


def read_access(access: object, index: int) -> tuple[list[int], int | None]:
    """The steps that an access list names, and the one whose list is gone through."""
    if access == ["all"]:
        return list(range(index)), None
    entries = list(cast("list[int | str]", access))
    known = {f"each {step}": step for step in range(MOST)}
    lists = [known[entry] for entry in entries if isinstance(entry, str) and entry in known]
    if len(lists) > 1:
        return [-1], None
    seen = [known.get(entry, -1) if isinstance(entry, str) else entry for entry in entries]
    return seen, next(iter(lists), None)


def same(plan: Plan, rows: list[tuple[object, object, object]]) -> bool:
    """Whether the rows are the plan's steps, and steps that may be performed."""
    if len(plan) != len(rows) or len(rows) > MOST:
        return False
    for index, (step, (worker, subtask, access)) in enumerate(zip(plan.steps, rows, strict=True)):
        seen, each = read_access(access, index)
        ours = (step.worker, joined(step.subtask), list(step.access), step.each)
        if ours != (worker, joined(str(subtask)), sorted(seen), each) or isinstance(worker, bool):
            return False
        if not (0 <= step.worker < POOL and step.subtask.strip() and set(step.access) <= set(range(index))):
            return False
        if "\0" in step.subtask:
            return False
    return True


def judge(text: str) -> bool:
    """Parse; say whether a plan came out; fail if it is not what the oracle reads there."""
    try:
        plan = parse_plan(text, POOL, MOST)
    except PlanError as refusal:
        assert refusal.what  # noqa: PT017 - a refusal is one of two right outcomes
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that escape nothing
        assert any(same(plan, rows) for rows in readings(joined(text))), plan
    return True


# What is put in

anything = st.text(st.characters(exclude_characters="\x00"))
subtasks = st.one_of(
    st.sampled_from(
        ["a", "it's", 'say "it"', "a]\nb", "model_id = [9]", "\\d \\\\", "指揮者 🎼", "# no", "'''", '"""']
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1).filter(str.strip),
)


@st.composite
def plans(draw: st.DrawFn, most: int = MOST) -> Plan:
    """Any plan for the pool."""
    count = draw(st.integers(0, most))
    masks = draw(st.lists(st.integers(0, 31), min_size=count, max_size=count))
    access = [tuple(seen for seen in range(index) if mask >> seen & 1) for index, mask in enumerate(masks)]
    each = [draw(st.sampled_from([None, *seen])) for seen in access]
    workers = [draw(st.integers(0, POOL - 1)) for _ in access]
    return Plan(tuple(Step(draw(subtasks), *rest) for rest in zip(workers, access, each, strict=True)))


STYLES = [
    "{}",
    "Two parts, I think.\n\n{}",
    "```python\n{}\n```\nThat is all.",
    "model_id = [3]\nsubtasks = ['draft']\naccess_list = [[]]\nNo:\n{}",
    'subtasks = ["broken]\n{}\n\n',
    '{{"steps": [}}\n{}',
    "So: {}",
    "# {}",
]
TAILS = [
    *[""] * 9, "\nmodel_id[0] = 1", "\naccess_list should be empty.", " + [[]]", "\nsubtasks = ['b']", "\n\nYes.",
    "  # a remark", "\nmodel_id = [1]\nsubtasks = ['b']", '\n{"steps": [{"worker": 0}]}', "\n# model_id = [1]",
]  # fmt: skip
LISTS = "{}\nmodel_id = [{}]\nsubtasks = [{}]\naccess_list = [{}]"
PIECES = [
    "[", "]", '"', "'", '"""', ",", ";", "=", "\n", " ", "\\", "#", "{", "}", ":", "-1", "0", "7", "True", "1.0",
    "model_id = [0]", "subtasks = ['b']", "access_list = [[]]", '["all"]', "[0]", " + ", " * 2", "99 % 7", "f", "\r",
    '{"steps": []}', '"worker"', '"access": ', "model_id", "access_list", "```", "\u3000", "\ud83c", "\x00", "`",
    '"each 0"', '["each 1", 0]', "each",
]  # fmt: skip


ODD_NUMBERS = [
    "-1", "4", "9", "True", "1.0", "'0'", "99 % 7", "[0]", "null", "0, 0", '["all"]', "007", "-0", "1e0", "",
    '0, "more": 0',
]  # fmt: skip
heaps = st.lists(st.one_of(st.sampled_from(PIECES), anything), max_size=20).map("".join)
wounds = st.tuples(st.integers(0), st.sampled_from(PIECES), st.integers(0, len(ODD_NUMBERS) - 1))


def wounded(text: str, wound: tuple[int, str, int]) -> str:
    """The text with one piece put in, or cut out, or exchanged, or with one number made odd."""
    at, piece, cut = wound
    numbers = [match.span() for match in re.finditer(r"\b\d\b", text)]
    if at % 3 == 0 and numbers:
        start, end = numbers[at % len(numbers)]
        return text[:start] + ODD_NUMBERS[cut] + text[end:]
    place = at % (len(text) + 1)
    return text[:place] + (piece if at % 2 else "") + text[place + cut :]


@st.composite
def near_valid(draw: st.DrawFn) -> str:
    """A valid text with up to three wounds."""
    text = draw(st.sampled_from(STYLES)).format(render_plan(draw(plans(MOST + 1)), draw(st.sampled_from(PlanFormat))))
    text += draw(st.sampled_from(TAILS))
    for wound in draw(st.lists(wounds, max_size=3)):
        text = wounded(text, wound)
    return text


@pytest.mark.full
@fuzz(8_000)
@given(near_valid())
def test_near_valid_texts_are_read_as_python_and_json_read_them_or_refused(text: str) -> None:
    judge(text)


@pytest.mark.full
@fuzz(2_000)
@given(heaps, st.tuples(heaps, heaps, heaps), st.booleans())
def test_lists_of_heaps_are_read_as_python_and_json_read_them_or_refused(
    before: str, inside: tuple[str, str, str], twin: bool
) -> None:
    form = '{}\n{{"steps": [{{"worker": {}, "subtask": {}, "access": {}}}]}}' if twin else LISTS
    judge(form.format(before, *inside))


@pytest.mark.full
@fuzz(2_500)
@given(heaps)
def test_heaps_of_pieces_are_read_as_python_and_json_read_them_or_refused(text: str) -> None:
    judge(text)


@pytest.mark.full
@fuzz(1_500)
@given(plans(), st.sampled_from(STYLES[:-1]), st.sampled_from(PlanFormat))
def test_every_plan_reads_back_from_both_forms_in_every_style(plan: Plan, style: str, form: PlanFormat) -> None:
    assert parse_plan(style.format(render_plan(plan, form)), POOL) == plan
    assert Plan.loads(plan.dumps()) == plan


def python_literals(plan: Plan) -> str:
    """The three lists as Python's own repr writes them, with commas, line ends and comments added."""
    columns = (
        [s.worker for s in plan.steps],
        [s.subtask for s in plan.steps],
        [s.access_entries() for s in plan.steps],
    )
    lists = ["[" + "".join(f"\n    {item!r},  # ]" for item in column) + "\n]" for column in columns]
    return "\n".join(f"{name}={text}" for name, text in zip(NAMES, lists, strict=True))


@pytest.mark.full
@fuzz(1_000)
@given(plans())
def test_every_plan_reads_back_from_what_python_writes(plan: Plan) -> None:
    assert parse_plan(python_literals(plan), POOL) == plan


def test_the_oracle_finds_faults() -> None:
    plan = Plan((Step("a", 1), Step("b", 2, (0,))))
    good = render_plan_lists(plan)
    assert judge(good)
    for bad in (good.replace("1", "3"), good.replace('"a"', '"A"'), good + "\nmodel_id", good + "]"):
        assert not any(same(plan, rows) for rows in readings(bad))


def test_the_oracle_ends_where_a_name_that_had_a_list_is_given_none() -> None:
    text = 'subtasks = ["a"]\naccess_list = [[]]\nmodel_id = [1]\nsubtasks = ["b"{'
    assert list(readings(text)) == []
    assert not judge(text)
