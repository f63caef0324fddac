"""Which text of an answer is taken for its program."""

import pytest

from shikisha_code.program_extraction import (
    LONGEST_PROGRAM,
    defines_name,
    extract_program,
    prompt_preamble,
    syntax_problem,
)

HELPERS = "from math import pi\n\ndef aid(x):\n    return x\n\n"
PROMPT = f'{HELPERS}def area(r: float) -> float:\n    """The area of a circle."""\n'
WHOLE = "def area(r):\n    return pi * r * r"
BODY = "    return pi * r * r\n"


def fence(source: str, label: str = "python") -> str:
    return f"```{label}\n{source}\n```"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (fence("x = 1"), "x = 1"),
        (fence("x = 1", "py"), "x = 1"),
        (fence("x = 1", "Python3"), "x = 1"),
        (fence("x = 1", "{.python}"), "x = 1"),
        (fence("x = 1", "python title=a.py"), "x = 1"),
        (fence("x = 1", ""), "x = 1"),
        (f"First:\n{fence('x = 1')}\nBetter:\n{fence('x = 2')}\nDone.", "x = 2"),
        (f"{fence('x = 1')}\nIt prints:\n{fence('3', '')}", "x = 1"),
        (f"{fence('x = 1')}\nRun it:\n{fence('pip install it', 'bash')}", "x = 1"),
        (f"{fence('x = 1', '')}\nor\n{fence('x = 2', 'cpp')}", "x = 1"),
        (f"{fence('print(1)')}\n{fence('print(1', '')}", "print(1)"),
        (f"{fence('x = 1', '')}\n{fence('x = (2')}", "x = 1"),
        ("1. A list:\n   ```python\n   if 1:\n       x = 1\n   ```", "if 1:\n    x = 1"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
        ("```python\nx = 1\nprint(x)", "x = 1\nprint(x)"),
        (f"{fence('x = 1')}<|im_end|>", "x = 1"),
        ("x = 1\nprint(x)</s>", "x = 1\nprint(x)"),
        ("x = 1\nprint(x)\n<|eot_id|><|start_header_id|>user", "x = 1\nprint(x)\n"),
        ("```python\nx = 1\n<|endoftext|>Question: next", "x = 1\n"),
        (fence("x = '</s>' + f'{1}</s>'"), "x = '</s>' + f'{1}</s>'"),
        ("import sys\nprint(sys.argv)", "import sys\nprint(sys.argv)"),
        ("Here it is:\n\nimport sys\nprint(1)\n\nI hope that this helps.", "import sys\nprint(1)"),
        ("Sure!\ndef f(x):\n    return x\n\n\nIt returns x.\n\nAlways.", "def f(x):\n    return x\n"),
        ("print(input())", "print(input())"),
    ],
)
def test_a_program_is_found(answer: str, program: str) -> None:
    assert extract_program(answer) == program


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "42",
        "yes",
        "Answer: no",
        "I do not know how to do this.",
        "import duties are high, and from what I hear they rise",
        fence("42", ""),
        fence("#include <cstdio>\nint main() { return 0; }", "cpp"),
        fence('{"a": 1}', "json"),
        fence("", "python"),
        "x = 1\n" * LONGEST_PROGRAM,
        fence("x = 1\n" * LONGEST_PROGRAM),
    ],
)
def test_nothing_that_looks_like_code_is_no_program(answer: str) -> None:
    assert extract_program(answer) is None


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (fence("def f(:\n    pass"), "def f(:\n    pass"),
        ("Look:\ndef f(x):\n    return (x\n", "def f(x):\n    return (x\n"),
        (fence("def f(:\n    pass", ""), "def f(:\n    pass"),
    ],
)
def test_a_mistake_in_the_grammar_is_a_program_still(answer: str, program: str) -> None:
    assert extract_program(answer) == program
    assert str(syntax_problem(program)).startswith("SyntaxError: ")


def test_the_last_block_that_defines_the_function_is_taken() -> None:
    first, last = "def f(x):\n    return 1", "def f(x):\n    return 2"
    answer = "\n".join(map(fence, (first, last, "print(f(3))")))
    assert extract_program(answer, "f") == last
    assert extract_program(answer) == "print(f(3))"
    assert extract_program(answer, "g") == "print(f(3))"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def f(): pass", "f"),
        ("async def f(): pass", "f"),
        ("class Solution:\n    def f(self): pass", "f"),
        ("f = lambda x: x", "f"),
        ("from math import sqrt as f", "f"),
        ("class f: pass", "f"),
    ],
)
def test_a_name_is_defined(source: str, name: str) -> None:
    assert defines_name(source, name)
    assert not defines_name(source, "g")
    assert not defines_name("def f(", "f")


@pytest.mark.parametrize("answer", [BODY, "return pi * r * r", fence(BODY), fence("return pi * r * r", ""), BODY * 2])
def test_a_completion_is_joined_to_the_prompt(answer: str) -> None:
    program = extract_program(answer, "area", PROMPT)
    assert program is not None
    assert program.startswith(PROMPT)
    assert syntax_problem(program) is None
    assert "return pi * r * r" in program


def test_a_whole_function_is_given_the_prompt_s_imports_and_helpers() -> None:
    assert extract_program(fence(WHOLE), "area", PROMPT) == HELPERS + WHOLE


@pytest.mark.parametrize("answer", ["42", "I cannot do that.", "", '"""Done."""', "It is pi * r * r"])
def test_what_completes_nothing_is_no_program(answer: str) -> None:
    assert extract_program(answer, "area", PROMPT) is None


@pytest.mark.parametrize(
    ("prompt", "before"),
    [
        ("import re\ndef f(x):\n", "import re\n"),
        ("import re\n@cache\ndef f(x):\n    'Text.'\n", "import re\n"),
        ("def g(): pass\n", ""),
        ("Write f.", ""),
    ],
)
def test_a_prompt_s_preamble_ends_before_the_function(prompt: str, before: str) -> None:
    assert prompt_preamble(prompt, "f") == before


@pytest.mark.parametrize("hostile", ["(" * 5_000, "-" * 50_000 + "1", "x = '\\d'", "a\x00b = 1", "\ud800 = 1"])
def test_hostile_texts_are_read_without_a_warning_or_an_error(hostile: str) -> None:
    extract_program(hostile)
    extract_program(fence(hostile))
    syntax_problem(hostile)
