"""How tasks are put to workers: the words around a set's own question, all in this one place.

Invariant: what is ours is a last paragraph of its own, so that `bare` gives the set's own words back (comparing tasks
must not find ours in each). The words ask for the form that the checkers of `grade` read best. Deliberately absent:
examples (few-shot) and instructions on how to think; those are a conductor's to add.
"""

from collections.abc import Sequence

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

CHOICE = 'End with a line "The answer is (X)", where X is the letter of the right option.'
BOXED = r"End with the final answer in \boxed{}."
NUMBER = 'End with a line "The answer is N", where N is a number without its unit.'
PROGRAM = (
    "Write a Python program that reads its input from standard input and prints the result to standard output. "
    "Answer with the whole program in one ```python block."
)
FUNCTION = "Write this in Python. Answer with all of the code, imports included, in one ```python block."
PATCH = "Answer with a patch to the repository in the unified diff format, and nothing else."

_INSTRUCTIONS = (CHOICE, BOXED, NUMBER, PROGRAM, FUNCTION, PATCH)


def format_choice(question: str, options: Sequence[str]) -> str:
    """Put a question with lettered options."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return format_lettered("\n".join([question.strip(), *lines]))


def format_lettered(question: str) -> str:
    """Put a question that has its lettered options in it."""
    return _with_instruction(question, CHOICE)


def format_boxed(question: str) -> str:
    r"""Put a question whose answer is a mathematical expression, wanted in \boxed{}."""
    return _with_instruction(question, BOXED)


def format_number(question: str) -> str:
    """Put a question whose answer is a number."""
    return _with_instruction(question, NUMBER)


def format_program(question: str) -> str:
    """Put a question that a program answers, from standard input to standard output."""
    return _with_instruction(question, PROGRAM)


def format_function(question: str, code: str = "", tests: Sequence[str] = ()) -> str:
    """Put a question that a function answers; with the code to begin from, and the tests that name it."""
    parts = [question.strip()]
    if code.strip():
        parts.append(f"Begin from this:\n```python\n{code.strip()}\n```")
    if tests:
        parts.append("Your code must pass these tests:\n" + "\n".join(tests))
    return _with_instruction("\n\n".join(parts), FUNCTION)


def format_patch(question: str) -> str:
    """Put a question that a patch answers."""
    return _with_instruction(question, PATCH)


def strip_instruction(prompt: str) -> str:
    """Return a prompt without the paragraph that is ours."""
    for ours in _INSTRUCTIONS:
        prompt = prompt.removesuffix(ours)
    return prompt.rstrip()


def _with_instruction(question: str, ours: str) -> str:
    return f"{question.strip()}\n\n{ours}"
