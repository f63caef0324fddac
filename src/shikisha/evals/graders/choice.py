"""Grade multiple-choice answers: one letter, or exactly one option's own text.

Invariant: an answer that chooses nothing, two options, or an option that does not exist is NO_ANSWER. A letter stated
as the answer takes precedence over any text. Deliberately absent: several right letters, and partial credit.
"""

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import field_validator

from shikisha.core.errors import ConfigError
from shikisha.core.kinds import Kind
from shikisha.core.toml import Table
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade
from shikisha.evals.graders.answer_extraction import normalize_words, stated_answers, strip_reasoning
from shikisha.evals.graders.canonical_form import AnswerForm, extract_choice

# Characters; longer answers cannot be one option's text.
_SHORT = 2_000
_CONTESTED = re.compile(  # after an option's text, without punctuation
    r"(?: \w+){0,3}? (?:or|not|no|nor|isnt|wasnt|cant|cannot|wont|doesnt|wrong|incorrect|false|impossible"
    r"|unless|either)(?: |$)"
)
_LETTERS = range(2, 27)
_MMLU_PRO_FIRST = re.compile(r"answer is \(?([A-J])\)?")
_MMLU_PRO_NAMED = re.compile(r"[aA]nswer:\s*([A-J])")
_MMLU_PRO_ANY = re.compile(r"\b[A-J]\b")


class ChoiceSettings(Table):
    """The right letter; how many options there are, or their texts in order; the `rule` by which a letter is read.

    `mmlu-pro` is that set's own evaluator: the first "answer is (X)", else the last "answer: X" of a line, else
    the last letter of all. Its scores are defined by it.
    """

    answer: str
    options: int | tuple[str, ...] | None = None
    rule: Literal["stated", "mmlu-pro"] = "stated"

    @field_validator("options", mode="plain")
    @classmethod
    def _count_or_texts(cls, given: object) -> int | tuple[str, ...] | None:
        if given is None or (isinstance(given, int) and not isinstance(given, bool) and given in _LETTERS):
            return given
        if isinstance(given, list | tuple) and len(given) in _LETTERS and all(isinstance(one, str) for one in given):
            return tuple(given)
        raise ValueError("expected their number (2 to 26) or their texts")


def build_choice_grader(settings: ChoiceSettings, tools: GraderTools) -> "ChoiceGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; ConfigError when the right answer is not the letter of an option."""
    return ChoiceGrader(settings.answer, settings.options, settings.rule)


KIND = Kind(settings=ChoiceSettings, build=build_choice_grader)


class ChoiceGrader:
    """Grades the letter that an answer chooses."""

    __slots__ = ("_letter", "_rule", "_texts", "options")
    name = "choice"
    form = AnswerForm.CHOICE

    def __init__(self, letter: str, options: int | Sequence[str] | None = None, rule: str = "stated") -> None:
        self.options = len(options) if isinstance(options, Sequence) else options
        self._texts = tuple(options) if isinstance(options, Sequence) else ()
        chosen = extract_choice(letter, self.options) if len(letter) < _SHORT else None
        if chosen is None:
            last = "Z" if self.options is None else chr(64 + self.options)
            raise ConfigError(f"answer: expected a letter from A to {last}")
        self._letter, self._rule = chosen, rule

    async def grade(self, answer: str) -> Grade:
        """Compare the letter found with the right one."""
        if self._rule == "mmlu-pro":
            found = mmlu_pro_letter(answer)
        else:
            found = extract_choice(answer, self.options) or self._quoted(answer)
        if found is None:
            beyond = extract_choice(answer)
            what = f"{beyond} is none of the {self.options} options" if beyond else "no single choice found"
            return no_answer_grade(self.name, f"{what}, expected {self._letter}")
        right = found == self._letter
        evidence = f"found {found}, as expected" if right else f"found {found}, expected {self._letter}"
        return grade_from_score(self.name, float(right), found, evidence)

    def _quoted(self, answer: str) -> str | None:
        """Return the letter of the only option whose text is the answer or begins the stated answer."""
        said = [place.text for place in stated_answers(strip_reasoning(answer))] or [answer] if self._texts else []
        for one in said:
            found = _only_option(normalize_words(one[:_SHORT]), [normalize_words(text) for text in self._texts])
            if found is not None and len(one) <= _SHORT:
                return chr(65 + found)
        return None


def mmlu_pro_letter(text: str) -> str | None:
    """Return the letter that MMLU-Pro's own evaluator reads, `compute_accuracy.py`; None where it would guess."""
    if first := _MMLU_PRO_FIRST.search(text):
        return first[1]
    named = None
    for found in _MMLU_PRO_NAMED.finditer(text):  # the last one of the first line that has one
        if named is not None and "\n" in text[named.start() : found.start()]:
            break
        named = found
    letters = _MMLU_PRO_ANY.findall(text) if named is None else [named[1]]
    return letters[-1] if letters else None


def _only_option(said: str, texts: Sequence[str]) -> int | None:
    """Return the index of the option that the answer begins with; None when another option's text is in it too."""
    fits = [place for place, text in enumerate(texts) if text and f"{said} ".startswith(f"{text} ")]
    best = max(fits, key=lambda place: len(texts[place]), default=None)
    if best is None or texts.count(texts[best]) > 1:
        return None
    if _CONTESTED.match(said[len(texts[best]) :]):
        return None
    others = (text for text in texts if text and f" {text} " not in f" {texts[best]} ")
    return None if any(f" {other} " in f" {said} " for other in others) else best
