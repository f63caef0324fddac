"""Subtasks as short instructions, and how workers understand whatever subtask they get.

Invariant: `parse_instruction` is a function of the subtask's words alone. It knows the canonical phrases and most plain
English that means the same. What says none of this means "answer the question".
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from shikisha.simulation.questions import FAMILIES
from shikisha.simulation.vocabulary import word_set


class InstructionKind(StrEnum):
    """What a worker is asked to do."""

    ANSWER = "answer"  # the whole question, from nothing
    PARTS = "parts"  # parts named by kind of work or by number
    NEXT = "next"  # the one part that follows what is granted
    FINISH = "finish"  # all that is left
    VOTE = "vote"  # the most common of the granted results
    CHECK = "check"  # do the part of the last granted result again
    PLAN = "plan"  # say what kinds of work the question needs


@dataclass(frozen=True, slots=True)
class SubtaskInstruction:
    """A parsed subtask. `previous`: it refers to results that the worker must have been granted."""

    verb: InstructionKind
    families: frozenset[str] = frozenset()
    number: int | None = None
    previous: bool = False


CANONICAL_PHRASES: dict[InstructionKind, tuple[str, ...]] = {
    InstructionKind.ANSWER: ("answer the question", "solve the whole question"),
    InstructionKind.NEXT: ("go on with the previous result", "take the next step from the previous result"),
    InstructionKind.FINISH: ("finish with the previous result", "complete the rest from the previous result"),
    InstructionKind.VOTE: ("take the most common result", "give the majority of the results"),
    InstructionKind.CHECK: ("check the previous result", "verify the previous result"),
    InstructionKind.PLAN: ("plan the work", "outline the steps"),
}
NUMBERED_PHRASES = ("do the first part", "do the second part", "do the third part", "do the fourth part")

_WORD = re.compile(r"[a-z]+")
_ORDINALS = ("first", "second", "third", "fourth")
_VOTE = word_set("vote majority common consensus agree judge answers")
_CHECK = word_set("check verify review confirm recheck")
_PLAN = word_set("plan outline")
_CARRY_OUT = word_set("follow carry execute")
_FINISH = word_set("finish complete remaining rest")
_PREVIOUS = word_set("previous earlier prior granted result results")
_WHOLE = word_set("answer question final solve")
_ON = word_set("next continue go")


@lru_cache(maxsize=4096)
def parse_instruction(subtask: str) -> SubtaskInstruction:
    """Return what the subtask asks for."""
    words = frozenset(_WORD.findall(subtask.lower()))
    previous = bool(words & _PREVIOUS)
    number = next((place for place, word in enumerate(_ORDINALS) if word in words), None)
    families = frozenset(name for name, family in FAMILIES.items() if words & family.keywords)
    if words & _VOTE:
        return SubtaskInstruction(InstructionKind.VOTE, previous=True)
    if words & _CHECK:
        return SubtaskInstruction(InstructionKind.CHECK, previous=True)
    if words & _PLAN and not words & _CARRY_OUT:
        return SubtaskInstruction(InstructionKind.PLAN)
    if words & _FINISH or (previous and words & _WHOLE):
        return SubtaskInstruction(InstructionKind.FINISH, previous=True)
    if number is not None and words & {"part", "step"}:
        return SubtaskInstruction(InstructionKind.PARTS, number=number, previous=previous)
    if families and not words & _WHOLE:
        return SubtaskInstruction(InstructionKind.PARTS, families, previous=previous)
    if previous or words & _ON:
        return SubtaskInstruction(InstructionKind.NEXT, previous=True)
    return SubtaskInstruction(InstructionKind.ANSWER)
