"""Functions of every kind that a user may name as a grader, the bad ones too."""

import asyncio
import time
from dataclasses import dataclass

from shikisha.evals.graders import Grade, GradeMark, grade_from_score, ungraded_grade

NUMBER = 5


def same(answer: str, prompt: str, gold: str) -> bool:
    return answer == gold and prompt == "Say it."


async def same_later(answer: str, prompt: str, gold: str) -> bool:
    await asyncio.sleep(0.001)
    return same(answer, prompt, gold)


def as_number(answer: str, prompt: str, gold: object) -> float | None:  # noqa: ARG001 - what every grader is given
    return float(answer) if answer else None


def as_grade(answer: str, prompt: str, gold: object) -> Grade:  # noqa: ARG001
    match answer:
        case "nothing":
            return ungraded_grade("mine", "I do not know", judged=True)
        case "nonsense":
            return Grade("mine", GradeMark.RIGHT, None)
        case "beyond":
            return Grade("mine", GradeMark.RIGHT, 7.0)
        case _:
            return grade_from_score("mine", 0.5, answer, "half of it")


def of_any_type(answer: str, prompt: str, gold: object) -> object:  # noqa: ARG001
    return {"text": "yes", "list": [1], "scalar": Scalar(True), "wide": Scalar(2)}[answer]


def lazily(answer: str, prompt: str, gold: str) -> object:
    return same_later(answer, prompt, gold)


def failing(answer: str, prompt: str, gold: object) -> bool:  # noqa: ARG001
    raise {"exit": SystemExit, "stop": StopIteration, "mute": MuteError}.get(answer, ValueError)(answer)


async def failing_later(answer: str, prompt: str, gold: object) -> bool:  # noqa: ARG001
    await asyncio.sleep(0)
    if answer == "cancel":
        raise asyncio.CancelledError
    raise {"exit": SystemExit}.get(answer, ValueError)(answer)


def endless(answer: str, prompt: str, gold: object) -> bool:  # noqa: ARG001
    while True:
        time.sleep(0.1)


async def endless_later(answer: str, prompt: str, gold: object) -> bool:  # noqa: ARG001
    await asyncio.sleep(10_000)
    return True


def of_one(answer: str) -> bool:
    return bool(answer)


class Checks:
    @staticmethod
    def same(answer: str, prompt: str, gold: str) -> bool:
        return same(answer, prompt, gold)


@dataclass
class Scalar:
    """What an array library returns for a single value."""

    value: object
    shape: tuple[int, ...] = ()

    def item(self) -> object:
        return self.value


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")
