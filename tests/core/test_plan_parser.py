"""The plan parser reads what design.md allows, refuses everything else with what and where, and never guesses."""

import json
import re
from ast import literal_eval
from contextlib import suppress
from time import process_time

import pytest

from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import MAX_CHARACTERS, parse_plan
from shikisha.core.prompts import render_plan_lists

POOL = 7
PLAN = Plan((Step("find the year", 2), Step("add 3 to it", 0, (0,))))
LISTS = 'model_id = [2, 0]\nsubtasks = ["find the year", "add 3 to it"]\naccess_list = [[], ["all"]]'
DRAFT = 'model_id = [6]\nsubtasks = ["draft"]\naccess_list = [[]]'
TWIN = PLAN.dumps()


def one_step(subtask: str = '"a"', ordinal: str = "0", access: str = "[]") -> str:
    """Three lists of one entry, each as written."""
    return f"model_id = [{ordinal}]\nsubtasks = [{subtask}]\naccess_list = [{access}]"


def twin(*steps: str, more: str = "") -> str:
    return f'{{"steps": [{", ".join(steps)}]{more}}}'


def subtask_of(literal: str) -> str:
    return parse_plan(one_step(literal), POOL).steps[0].subtask


def refusal(text: str, pool_size: int = POOL) -> str:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, pool_size)
    assert caught.value.what
    assert caught.value.where
    assert len(str(caught.value)) < 300
    return str(caught.value)


ACCEPTED = {
    "bare": LISTS,
    "reasoning before": f"First the year [not 1999], then 3 more: {{easy}}.\n\n{LISTS}",
    "reasoning on the same line": f"So: {LISTS}",
    "a draft before": f"{DRAFT}\nNo, two steps are better.\n{LISTS}",
    "a draft right before": f"{DRAFT}\n{LISTS}",
    "a broken draft before": f"model_id = [1, \nsubtasks = ['oops]\n{LISTS}",
    "a draft with an open triple quote": f'subtasks = ["""unclosed, and so\n{LISTS}',
    "a draft nested too deep": f"access_list = [[[[[[[0]]]]]]]\n{LISTS}",
    "a hundred broken drafts": "model_id = [?]\n" * 100 + LISTS,
    "a draft as JSON": f"{twin()}\n{LISTS}",
    "a draft as broken JSON": f'{{"steps": [}}\n{LISTS}',
    "a draft as deep JSON": '{"steps": ' + "[" * 5_000 + f"\n{LISTS}",
    "a code fence": f"```python\n{LISTS}\n```",
    "a fence and a closing remark": f"```python\n{LISTS}\n```\nThis plan keeps the cost low.",
    "a fence that closes on the last line": f"```\n{LISTS}```",
    "a tilde fence": f"~~~\n{LISTS}\n~~~\n",
    "thinking before": f"<think>{DRAFT}</think>\n{LISTS}",
    "CRLF line ends": LISTS.replace("\n", "\r\n") + "\r\n\r\nDone.\r\n",
    "one line": LISTS.replace("\n", "; "),
    "one line with commas": LISTS.replace("\n", ", "),
    "no spaces": LISTS.replace(" = ", "="),
    "single quotes": LISTS.replace('"', "'"),
    "triple quotes": LISTS.replace('"find the year"', '"""find the year"""').replace('"all"', "'''all'''"),
    "trailing commas": LISTS.replace("]\n", ",]\n").replace('["all"]]', '["all",],]'),
    "several lines": LISTS.replace(", ", ",\n    ").replace("= [", "= [\n    "),
    "comments inside and after": LISTS.replace(", ", ",  # it's [one], then\n ").replace(
        "]\n", "]  # or model_id = 3\n"
    ),
    "a comment line between": LISTS.replace("\nsubtasks", "\n# what each does\nsubtasks"),
    "indices for all": LISTS.replace('"all"', "0"),
    "another order": "\n".join(reversed(LISTS.split("\n"))),
    "a trailing semicolon": LISTS + ";",
    "a trailing comment": LISTS + "  # two steps",
    "prose after": LISTS + "\n\nThe second model is shown the first one's year.",
    "Japanese right before": f"計画は{LISTS}",
    "an ideographic space": LISTS.replace(", ", ",\u3000"),
    "twin": TWIN,
    "twin in prose and a fence": f"Two steps, {{as asked}}:\n```json\n{TWIN}\n```\nThat is all.",
    "twin with reasoning first": TWIN.replace("{", '{"reasoning": "model_id = [3], {x}", ', 1),
    "twin with reasoning last": TWIN[:-1] + ', "reasoning": "two parts"}',
    "twin over several lines": json.dumps(json.loads(TWIN), indent=2),
    "twin with all": TWIN.replace("[0]", '["all"]'),
    "twin after lists": f"{DRAFT}\nBetter:\n{TWIN}",
    "twin after a comma": f"In short, {TWIN}",
    "twin given a name": f"plan = {TWIN}",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_a_plan_is_read_in_every_form_that_is_allowed(text: str) -> None:
    assert parse_plan(text, POOL) == PLAN


@pytest.mark.parametrize("text", ["model_id = []\nsubtasks = []\naccess_list = []", '{"steps": []}'])
def test_the_empty_plan_ships(text: str) -> None:
    assert parse_plan(text, POOL).ships


def test_an_access_list_is_a_set_of_steps_in_any_order() -> None:
    text = 'model_id = [0, 0, 0]\nsubtasks = ["a", "b", "c"]\naccess_list = [["all"], [], [1, 0]]'
    assert [step.access for step in parse_plan(text, 1).steps] == [(), (), (0, 1)]


STRINGS = [
    r'"say \"it\""',
    r"'it\'s'",
    '"it\'s"',
    "'say \"it\"'",
    '"""a "quoted" word"""',
    '"""two\nlines"""',
    r'"""ends in a quote\""""',
    "'''it's'''",
    r'"a\tb\\n\x41\u00e9\U0001F3BC\101"',
    '"over \\\ntwo lines"',
    '"指揮者 → 🎼 \u2028 \xa0"',
    '"# no comment, [no, list], model_id = [9]"',
    '"{\\"steps\\": []}"',
    '"\u200bzero width"',
]


@pytest.mark.parametrize("literal", STRINGS)
def test_a_string_means_what_it_means_in_python(literal: str) -> None:
    assert subtask_of(literal) == literal_eval(literal)


def test_a_backslash_that_escapes_nothing_stays_as_in_python() -> None:
    assert subtask_of(r'"\d and \("') == r"\d and \("


def test_escaped_surrogates_make_one_character() -> None:
    assert subtask_of(r'"\ud83c\udfbc"') == "🎼"
    assert parse_plan(twin(r'{"worker": 0, "subtask": "\ud83c\udfbc", "access": []}'), 1).steps[0].subtask == "🎼"


STEP = '{"worker": 0, "subtask": "a", "access": []}'

REFUSED = {
    # nothing to read
    "": "expected model_id",
    "I would rather not.": "expected model_id",
    "model_id = 0\nsubtasks = 'a'\naccess_list = []": "lack model_id",
    "model_id: list[int] = [0]\nsubtasks: list[str] = ['a']\naccess_list: list = [[]]": "expected model_id",
    "Model_ID = [0]\nSubtasks = ['a']\nAccess_List = [[]]": "expected model_id",
    '{"model_id": [0], "subtasks": ["a"], "access_list": [[]]}': "expected model_id",
    "model_id = [0]\nsubtasks = ['a']": "lack access_list",
    "model_id = [0]\nmodel_id = [0]\nsubtasks = ['a']": "lack access_list",
    "x.model_id = [0]\nsubtasks = ['a']\naccess_list = [[]]": "lack model_id",
    "model_id == [0]\nsubtasks = ['a']\naccess_list = [[]]": "lack model_id",
    # lengths
    "model_id = [0, 1]\nsubtasks = ['a']\naccess_list = [[]]": "model_id 2, subtasks 1, access_list 1",
    "model_id = [0]\nsubtasks = []\naccess_list = [[]]": "model_id 1, subtasks 0, access_list 1",
    f"model_id = {[0] * 6}\nsubtasks = {['a'] * 6}\naccess_list = {[[]] * 6}": "plan: 6 steps are too many",
    twin(*[STEP] * 6): "plan: 6 steps are too many",
    # ordinals
    one_step(ordinal="7"): "model_id[0]: no worker 7: the pool has ordinals 0 to 6",
    one_step(ordinal="-1"): "model_id[0]: no worker -1",
    one_step(ordinal="-0"): "no ordinal is written '-0'",
    one_step(ordinal="007"): "no ordinal is written '007'",
    one_step(ordinal="9" * 5_000): "no ordinal is written '999",
    one_step(ordinal="True"): "model_id[0]: expected a whole number, not True",
    one_step(ordinal="true"): "not 'true'",
    one_step(ordinal="None"): "not 'None'",
    one_step(ordinal="0.0"): "line 1, column 13: expected a whole number or a quoted string, not '0.0'",
    one_step(ordinal="1e0"): "not '1e0'",
    one_step(ordinal="1_0"): "not '1_0'",
    one_step(ordinal="0x1"): "not '0x1'",
    one_step(ordinal="+1"): "not '+1'",
    one_step(ordinal="２"): "not '２'",
    one_step(ordinal="'0'"): "model_id[0]: expected a whole number, not the string '0'",
    one_step(ordinal="[0]"): "model_id[0]: expected a whole number, not a list",
    one_step(ordinal="99 % 7"): "expected ',' or ']'",
    one_step(ordinal="0 for _ in x"): "expected ',' or ']'",
    one_step(ordinal="int('0')"): "not 'int'",
    one_step(ordinal="__import__('os')"): "not '__import__'",
    # subtasks
    one_step('""'): "subtasks[0]: the subtask is empty",
    one_step('" \\n\\t\u3000"'): "subtasks[0]: the subtask is empty",
    one_step("5"): "subtasks[0]: expected a string, not 5",
    one_step("['a']"): "subtasks[0]: expected a string, not a list",
    one_step("'a' 'b'"): "expected ',' or ']'",
    one_step("'a' + 'b'"): "expected ',' or ']'",
    one_step("('a')"): "expected a list, a quoted string or a whole number",
    one_step("f'a'"): "not 'f'",
    one_step("b'a'"): "not 'b'",
    one_step("r'a'"): "not 'r'",
    one_step("'a"): "this one has no end",
    one_step("'a\nb'"): "this one has no end",
    one_step("'a\rb'"): "this one has no end",
    one_step('"""a"'): "expected ',' or ']'",
    one_step('"say "it""'): "expected ',' or ']'",
    one_step("“a”"): "expected a list, a quoted string or a whole number",
    one_step(r"'\x4'"): "names no character",
    one_step(r"'\u12'"): "names no character",
    one_step(r"'\N{DASH}'"): "names no character",
    one_step(r"'\U99999999'"): "names no character",
    one_step(r"'\ud83c'"): "subtasks[0]: half of a surrogate pair",
    one_step("'\udfbc'"): "subtasks[0]: half of a surrogate pair",
    one_step(r"'\udfbc\ud83c'"): "subtasks[0]: half of a surrogate pair",
    one_step(r"'a\0'"): "subtasks[0]: a NUL character",
    one_step("'a\0'"): "subtasks[0]: a NUL character",
    # access lists
    one_step(access="[0]"): "access_list[0][0]: step 0 can only see earlier steps, not step 0",
    one_step(access="[3]"): "access_list[0][0]: step 0 can only see earlier steps, not step 3",
    one_step(access="[-1]"): "not step -1",
    one_step(access="[True]"): "access_list[0][0]: expected a whole number, not True",
    one_step(access="'all'"): "access_list[0]: expected [], [\"all\"] or a list of earlier steps, not the string 'all'",
    one_step(access="['ALL']"): "access_list[0][0]: expected a whole number, not the string 'ALL'",
    one_step(access="['all', 'all']"): "access_list[0][0]: expected a whole number, not the string 'all'",
    one_step(access="[[0]]"): "access_list[0][0]: expected a whole number, not a list",
    one_step(access="0"): "not 0",
    LISTS.replace('"all"', "0, 0"): "access_list[1][1]: step 0 is named twice",
    LISTS.replace('"all"', '0, "all"'): "access_list[1][1]: expected a whole number",
    LISTS.replace('"all"', "5, 0"): "access_list[1][0]: step 1 can only see earlier steps, not step 5",
    # lists that do not end, or are not plain lists
    "model_id = [0": "expected ',' or ']'",
    LISTS[:-1]: "access_list, line 3, column 27: expected ',' or ']'",
    one_step(ordinal=",0"): "expected a list",
    one_step(ordinal="0,,"): "expected a list",
    one_step(ordinal="*[0]"): "expected a list",
    one_step(ordinal="{0}"): "expected a list",
    "access_list = " + "[" * 10_000 + "]" * 10_000: "column 18: nested deeper than 3 lists",
    # where one plan ends
    LISTS.replace("]\nsub", "][0:1]\nsub"): "text stands between model_id and subtasks",
    LISTS.replace("]\nsub", "] * 1\nsub"): "text stands between model_id and subtasks",
    LISTS.replace("\nsub", "\nmodel_id += [1]\nsub"): "text stands between model_id and subtasks",
    LISTS.replace("\nsub", "\nand then\nsub"): "text stands between",
    f"# {LISTS}": "model_id is in a comment",
    LISTS + " + [[]]": "line 3, column 28: text follows the plan on its line",
    LISTS + " if x else []": "text follows the plan on its line",
    LISTS + "\nmodel_id[0] = 5": "spoken of again",
    LISTS + "\n\nOn second thought, access_list should be empty.": "line 5, column 20: the plan is spoken of again",
    LISTS + "  # subtasks could be shorter": "spoken of again",
    LISTS + "\nsubtasksを変える": "spoken of again",
    LISTS + "\nMODEL_ID = [5]": "spoken of again",
    LISTS + "\n{'steps': []}": "spoken of again",
    LISTS + '\n{"note": 1, "steps": []}': "spoken of again",
    LISTS + "\nmodel_id = [1]\nsubtasks = ['b']": "these lists belong to two plans",
    f"<think>\n{LISTS}\n</think>\nI cannot help with that.": "among the reasoning",
    f"plan(\n{LISTS.replace('] ', '],')}\n)": "part of something larger",
    # the twin
    '{"steps": []': "Expecting ',' delimiter",
    '{"steps": [],}': "steps, line 1, column",
    '{"steps": null}': "steps: expected a list of steps, not null",
    '{"steps": {}}': "steps: expected a list of steps, not an object",
    '{"steps": [], "steps": []}': "plan: the key 'steps' is given twice",
    '{"steps": [], "notes": ""}': "plan: unknown key 'notes'",
    '{"notes": "", "steps": []}': "expected model_id",
    '{"reasoning": "none"}': "plan: 'steps' is missing",
    '{"reasoning": [], "steps": []}': "reasoning: expected a string, not a list",
    twin("0"): "steps[0]: expected an object, not 0",
    twin("{}"): "steps[0]: 'worker' is missing",
    twin(STEP, STEP.replace('"worker": 0', '"worker": 9')): "steps[1].worker: no worker 9",
    twin(STEP.replace(": 0", ": 0.0")): "steps[0].worker: expected a whole number, not 0.0",
    twin(STEP.replace(": 0", ": 1e400")): "steps[0].worker: expected a whole number, not inf",
    twin(STEP.replace(": 0", ": -0")): "steps[0].worker: expected a whole number, not -0.0",
    twin(STEP.replace(": 0", ": NaN")): "steps[0].worker: expected a whole number, not nan",
    twin(STEP.replace(": 0", ": -Infinity")): "steps[0].worker: expected a whole number, not -inf",
    twin(STEP.replace(": 0", ": true")): "steps[0].worker: expected a whole number, not True",
    twin(STEP.replace(": 0", ": " + "9" * 5_000)): "steps[0].worker: expected a whole number, not inf",
    twin(STEP.replace(": 0", ": 0, \"worker\": 1")): "steps[0]: the key 'worker' is given twice",
    twin(STEP.replace('"a"', '" "')): "steps[0].subtask: the subtask is empty",
    twin(STEP.replace('"a"', '"a\nb"')): "Invalid control character",
    twin(STEP.replace('"a"', r'"\ud83c"')): "steps[0].subtask: half of a surrogate pair",
    twin(STEP.replace("[]", "[0]")): "steps[0].access[0]: step 0 can only see earlier steps",
    twin(STEP.replace("[]", "null")): "steps[0].access: expected []",
    twin(STEP.replace("}", ', "model": 1}')): "steps[0]: unknown key 'model'",
    twin(STEP) + " trailing": "text follows the plan on its line",
    '{"steps": ' + "[" * 10_000 + "]" * 10_000 + "}": "steps",  # too deep for some Pythons, a list of lists for others
    '{"steps": x ' * 100: "more than 64 broken JSON plans",
    f'[\n{twin(STEP)},\n{twin()}\n]': "part of something larger",
    f'{{"plan":\n{twin(STEP)}\n}}': "part of something larger",
    f'{{"plan": {twin(STEP)}': "part of something larger",
    # too much
    "x" * (MAX_CHARACTERS + 1): "text: 1,000,001 characters are too many",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSED.items(), ids=[text[:40] for text in REFUSED])
def test_everything_else_is_refused_with_what_and_where(text: str, said: str) -> None:
    assert said in refusal(text)


def test_an_empty_pool_has_no_ordinals() -> None:
    assert refusal(one_step(), 0) == "model_id[0]: no worker 0: the pool is empty"


def test_a_smaller_cap_of_steps_holds() -> None:
    with pytest.raises(PlanError, match="2 steps are too many: at most 1 are allowed"):
        parse_plan(LISTS, POOL, max_steps=1)


@pytest.mark.parametrize("ordinal", ["3", "-4", "99", "1000000000000"])
def test_invariant_1_no_text_makes_an_ordinal_outside_the_pool(ordinal: str) -> None:
    assert "line" in refusal(one_step(ordinal=ordinal), 3) or "no worker" in refusal(one_step(ordinal=ordinal), 3)


N = MAX_CHARACTERS
LONG = {
    "a string without end": 'model_id = ["' + "a" * (N - 20),
    "open strings on one line": 'subtasks = ["' * (N // 13),
    "both quotes": "subtasks = [\"'" * (N // 14),
    "open triple quotes": "subtasks = ['''x\n" * (N // 17),
    "broken lists": "model_id = [x " * (N // 14),
    "lists of lists": "model_id = [[[" * (N // 14),
    "escapes": 'subtasks = ["' + "\\" * (N - 20),
    "names and spaces": ("model_id" + " " * 92) * (N // 100),
    "one name and spaces": "model_id" + " " * (N - 8),
    "braces": "{" * N,
    "braces and spaces": "{ " * (N // 2),
    "open objects": '{"steps":' * (N // 9),
    "open reasoning": '{"reasoning": "' * (N // 15),
    "comments": "model_id = [#\n" * (N // 14),
    "one comment": "model_id = [" + "#\n" * (N // 2 - 10),
    "many plans": f"{DRAFT}\n" * (N // len(DRAFT) - 20_000),
    "many items": f"model_id = [{'0,' * (N // 2 - 10)}]",
    "many keys": '{"steps": {' + ",".join(f'"{i:06}":1' for i in range(N // 12)) + "}}",
}


@pytest.mark.full
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_megabytes_are_read_or_refused_at_once(text: str) -> None:
    begun = process_time()
    with suppress(PlanError):
        parse_plan(text, POOL)
    assert process_time() - begun < 5  # a quadratic reader takes minutes


EACH = """
model_id = [0, 1, 2]
subtasks = ["list the files", "review this one", "sum up"]
access_list = [[], ["each 0"], [1]]
"""


def test_each_makes_a_map_step_in_lists_and_in_json() -> None:
    plan = parse_plan(EACH, 3)
    assert (plan.steps[1].access, plan.steps[1].each, plan.topology()) == ((0,), 0, "map")
    assert parse_plan(plan.dumps(), 3) == plan
    assert parse_plan(render_plan_lists(plan), 3) == plan
    assert Plan.loads(plan.dumps()) == plan


@pytest.mark.parametrize(
    ("access", "what"),
    [
        ('["each 1"]', "step 1 can only see earlier steps, not step 1"),
        ('["each 0", 0]', "step 0 is named twice"),
        ('["each 00"]', "expected a whole number, not the string 'each 00'; a map step says"),
        ('["each"]', "expected a whole number, not the string 'each'; a map step says"),
        ('["every 0"]', "expected a whole number, not the string 'every 0'"),
        ('["each 100"]', "expected a whole number, not the string 'each 100'; a map step says"),
    ],
)
def test_a_map_step_that_is_written_otherwise_is_refused(access: str, what: str) -> None:
    with pytest.raises(PlanError, match=re.escape(what)):
        parse_plan(EACH.replace('["each 0"]', access), 3)


def test_a_step_goes_through_one_list() -> None:
    with pytest.raises(PlanError, match="a step goes through one list, not those of steps 0 and 1"):
        parse_plan(EACH.replace("[1]", '["each 0", "each 1"]'), 3)
