"""Tests as steps, without a sandbox: what goes in and what stays out; and reports, read whatever is in them."""

import json

import pytest
from code_tasks import CHECK, PROMPT, SPECS
from hypothesis import given, settings
from hypothesis import strategies as some

from shikisha_code.code_grader import CodeSettings, Report, blocked_outcome, steps_outcome, suite_outcome
from shikisha_code.code_tests import COMPARISON_HOOK, CodeTests, CodeTestStep, read_code_tests
from shikisha_code.harness_solution import encode_result
from shikisha_code.instrumented_tests import HOOKS


def trial(style: str, **more: object) -> CodeTests:
    return read_code_tests(CodeSettings.model_validate({"style": style, **SPECS[style], **more}))


@pytest.mark.parametrize(
    ("statement", "wire", "expected"),
    [
        ("assert f(1) == [2, (3,)]", {"value": "f(1)"}, [2, (3,)]),
        ("assert -1.5 == f(1), 'why'", {"value": "f(1)"}, -1.5),
        ("assert f(1) == {'a': {1}}", {"value": "f(1)"}, {"a": {1}}),
        ("assert f(1) == None", {"value": "f(1)"}, None),
        ("assert f(1) == set()", {"value": "f(1)"}, set()),
    ],
)
def test_what_is_compared_with_a_literal_is_compared_outside(
    statement: str, wire: dict[str, str], expected: object
) -> None:
    (step,) = trial("asserts", asserts=[statement]).steps
    assert (step.wire, step.valued, step.expected) == (wire, True, expected)
    assert step.passes(expected, None)
    assert not step.passes("something else", None)


@pytest.mark.parametrize(
    ("statement", "inside"),
    [
        ("assert f(1) == g(2)", f"assert {COMPARISON_HOOK}(f(1)) == {COMPARISON_HOOK}(g(2))"),
        ("assert f(x) > 2", f"assert {COMPARISON_HOOK}(f(x)) > {COMPARISON_HOOK}(2)"),
        ("assert 1 < f(1) < 3", f"assert {COMPARISON_HOOK}(1) < {COMPARISON_HOOK}(f(1)) < {COMPARISON_HOOK}(3)"),
        ("assert f(1)", "assert f(1)"),
    ],
)
def test_what_is_compared_is_kept_for_evidence(statement: str, inside: str) -> None:
    (step,) = trial("asserts", asserts=[statement]).steps
    assert (step.wire["do"].splitlines()[1].strip(), step.valued) == (inside, False)


@pytest.mark.parametrize(
    ("statement", "direct"),
    [
        ("assert f([1], {2}) == 3", True),
        ("assert f(1) == g(2)", False),
        ("assert (f(1) == 3) == True", False),
        ("assert len(f(1)) == 3", False),
        ("assert f(x=1) == 3", False),
    ],
)
def test_only_calls_with_data_that_must_return_data_are_direct(statement: str, direct: bool) -> None:
    assert trial("asserts", asserts=[statement]).direct is direct


def test_a_check_is_taken_apart() -> None:
    made = trial("check")
    assert [step.shown.partition(",")[0] for step in made.steps] == ["test 1 of 3", "test 2 of 3", "test 3 of 3"]
    assert [step.valued for step in made.steps] == [True, False, True]
    assert (made.entry, made.candidate) == ("norm", "candidate")
    assert "def check" not in made.before
    assert "METADATA" in made.before
    assert made.setup.startswith(PROMPT.partition("def norm")[0])
    assert made.uses.modules == ("math",)


@pytest.mark.parametrize("ending", ["return", "yield 1", "global x", "def g():\n        nonlocal y"])
def test_one_that_means_something_else_outside_its_function_is_not(ending: str) -> None:
    (step,) = trial("check", source=f"def check(f):\n    y = 1\n    assert f(1) == 1\n    {ending}").steps
    assert step.wire == {"do": "check(f)"}


def test_a_function_within_it_does_not_keep_a_check_together() -> None:
    source = "def check(f):\n    def near(x, y):\n        return abs(x - y) < 1\n    assert near(f(1), 2)"
    steps = trial("check", source=source).steps
    assert [step.test for step in steps] == [False, True]
    assert steps[0].shown.startswith("before test 1, def near")


@pytest.mark.parametrize(
    ("asserts", "entry"),
    [
        (["assert sorted(f(g(1))) == [1]"], "f"),
        (["import math", "assert math.isclose(f(1), 2)"], "f"),
        (["assert sum(1, 2) == 3"], "sum"),
        (["assert near(f(1), 2)"], "f"),
        (["assert x == 1"], None),
    ],
)
def test_the_first_call_that_is_python_s_or_the_setup_s_no_more_says_what_is_asked_for(
    asserts: list[str], entry: str | None
) -> None:
    assert trial("asserts", asserts=asserts, setup="def near(x, y): return x == y").entry == entry


def test_a_suite_counts_its_methods_and_seals_what_it_imports() -> None:
    made = trial("unittest")
    assert (made.methods, made.entry) == (2, "root")
    assert set(made.uses.modules) == {"math", "unittest"}
    assert "self.assertEqual(root(9), 3)" in made.suite


def test_a_pattern_is_left_as_it_is() -> None:
    statement = "match f(1):\n    case -1 | 1 + 2j:\n        assert False"
    (step,) = trial("asserts", asserts=[statement]).steps
    assert step.wire["do"].startswith("match f(1):\n    case -1 | 1 + 2j:\n        try:\n            assert False")


def test_the_tests_of_a_check_mean_the_same_when_nothing_is_cheated() -> None:
    passed: list[object] = []
    space: dict[str, object] = {
        COMPARISON_HOOK: lambda value, *_: value,
        "candidate": lambda a, b: (a * a + b * b) ** 0.5,
    }
    space["aid"] = lambda x: x
    space |= {HOOKS["passed"]: passed.append, HOOKS["before"]: lambda make: make, HOOKS["kept"]: lambda make, _: make()}
    done = [step for step in trial("check").steps if not step.valued]
    for step in done:
        exec(step.wire["do"], space)  # noqa: S102 - our own text, CHECK
    assert len(done) == CHECK.count("for")
    assert set(passed) == {site for _, *sites in trial("check").required for site in sites}


VALUED = CodeTestStep({"value": "f(1)"}, "test 1 of 2", valued=True, expected=[1])
DONE = CodeTestStep({"do": "assert f(2)"}, "test 2 of 2")
STEPS = (VALUED, DONE)


@pytest.mark.parametrize(
    ("report", "passed", "why"),
    [
        ({"steps": [{"value": [1]}, {}]}, True, "2 tests passed"),
        ({"steps": [{"value": [2]}, {}]}, False, "test 1 of 2: expected [1], got [2]"),
        ({"steps": [{"value": [1]}]}, False, "1 of 2 parts of the tests were run"),
        ({"steps": []}, False, "0 of 2 parts of the tests were run"),
        ({"steps": [{}, {}]}, False, "test 1 of 2: nothing that can be read was reported"),
        ({"steps": [{"value": {"odd": 1}}, {}]}, False, "test 1 of 2: a value that cannot be read"),
        (
            {"steps": [{"value": [1]}, {"error": "E: x", "compared": [1, {"tuple": []}]}]},
            False,
            "E: x (compared: 1, ())",
        ),
        ({"steps": [{"value": [1]}, {"error": "E", "compared": 5}]}, False, "test 2 of 2: a value that cannot be read"),
        ({"steps": "all"}, False, "0 of 2 parts"),
        ({}, False, "0 of 2 parts"),
        ({"missing": ["numpy"]}, None, "the sandbox lacks what the tests need: numpy"),
        ({"broken": "E: x"}, None, "the setup of the tests fails: E: x"),
        ({"unloaded": "E: x"}, False, "the program cannot be loaded: E: x"),
    ],
)
def test_a_report_is_read(report: Report, passed: bool | None, why: str) -> None:
    finding = steps_outcome(STEPS, report, None)
    assert finding.passed is passed
    assert why in finding.why


@pytest.mark.parametrize(
    ("report", "passed", "why"),
    [
        ({"passed": 2, "first": []}, True, "2 tests passed"),
        ({"passed": 1, "first": ["test_a", "E: x"]}, False, "test_a: E: x"),
        ({"passed": 0, "first": []}, False, "no test was run to its end"),
        ({"passed": 2}, False, "no test was run to its end"),
        ({"passed": "2", "first": []}, False, "no test was run to its end"),
        ({"missing": ["numpy"]}, None, "numpy"),
    ],
)
def test_a_suite_s_report_is_read(report: Report, passed: bool | None, why: str) -> None:
    finding = suite_outcome(report)
    assert finding.passed is passed
    assert why in finding.why


KEYS = ["steps", "value", "error", "compared", "tuple", "set", "dict", "int", "decimal", "fraction", "passed", "first"]
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(KEYS), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(some.dictionaries(some.sampled_from(["steps", "passed", "first", "missing", "broken"]), JSON))
def test_no_report_is_more_than_a_finding(report: dict[str, object]) -> None:
    assert isinstance(steps_outcome(STEPS, report, 1e-6).why, str)
    assert isinstance(suite_outcome(report).why, str)
    assert blocked_outcome({}) is None


PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text() | some.binary(),
    lambda inner: some.lists(inner) | some.tuples(inner, inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_plain_data_passes_its_own_test(value: object) -> None:
    step = CodeTestStep({}, "test 1 of 1", valued=True, expected=value)
    outcome = json.loads(f'{{"value":{encode_result(value)}}}')
    assert steps_outcome([step], {"steps": [outcome]}, None).passed
