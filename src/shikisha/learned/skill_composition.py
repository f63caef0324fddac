"""Compose a plan from several skills where no single one fits the task but each of its parts fits a part of one.

A skill is cut into its parts: the stretch of the task's text that a step is about, the step, and how many earlier
results it takes. A step is about the stretch that its subtask quotes, or about the sentence at its place where both
have the same holes. A task is composed if parts cover its text from the first word to the last, and every part's result
but the last one's is taken by a later part, as it was in the skill. A skill that cannot be cut is a part as a whole.

Invariants: two coverings that give different plans give none, and so does a word that no part covers; workers and who
sees what are as in the skills; work is bounded whatever the task's text is. Deliberately absent: guessing what a left
over sentence may mean; that is a planner's work.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Scope
from shikisha.learned.skills import HOLE, MAX_PROMPT, Skill, SkillStep, fill_holes, is_value

_MOST_WORK = 20_000  # parts that are tried at places of a task's text
_HOLE_CHARACTERS = 120
_OWN_CHARACTERS = 4  # that a part has at least for each word that may be in its holes
_AFTER_HOLE = re.compile(r"(\{\d+\})[?.!,;:]+(?=\s|$)")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")
_VALUE_END = re.compile(r"\S(?=\s|$)")


@dataclass(frozen=True, slots=True)
class SkillPart:
    """A stretch of a skill's text with its steps; numbers below `takes` in access lists are the results it takes."""

    pieces: tuple[str, ...]
    widths: tuple[int, ...]
    steps: tuple[SkillStep, ...]
    takes: int
    scope: Scope
    skills: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComposedPlan:
    """A plan, and the skills whose parts it consists of, in their order."""

    plan: Plan
    skills: tuple[str, ...]


def cut_skills(skills: Iterable[Skill]) -> tuple[SkillPart, ...]:
    """Return the parts of the admitted skills; one that several skills have stands once, with their names."""
    found = dict[SkillPart, list[str]]()
    for skill in skills:
        if skill.admitted:
            for part in _parts(skill):
                found.setdefault(part, []).append(skill.name)
    return tuple(replace(part, skills=tuple(dict.fromkeys(names))) for part, names in found.items())


def compose_plan(
    parts: Sequence[SkillPart], prompt: str, workers: Sequence[str], reader: Scope, most: int
) -> ComposedPlan | None:
    """Return the one plan of at most `most` steps that parts give for a task; None where they give none, or several."""
    prompt = prompt.strip()
    if not prompt or len(prompt) > MAX_PROMPT:
        return None
    usable = [
        part for part in parts if part.scope.admits(reader) and all(step.worker in workers for step in part.steps)
    ]
    return _Cover(prompt, usable, workers, most).only_plan()


class _Cover:
    """The coverings of one text; the search ends at the second plan, or when its work is used up."""

    def __init__(self, prompt: str, parts: Sequence[SkillPart], workers: Sequence[str], most: int) -> None:
        self.prompt, self.parts, self.workers, self.most = prompt, parts, workers, most
        self.work = 0
        self.found: ComposedPlan | None = None
        self.over = False  # ambiguous, or too much work

    def only_plan(self) -> ComposedPlan | None:
        self._go_on(0, (), (), ())
        return None if self.over else self.found

    def _go_on(self, at: int, steps: tuple[Step, ...], ends: tuple[int, ...], skills: tuple[str, ...]) -> None:
        """Cover the text from `at` on; `ends` are the steps whose results nothing took so far."""
        if at == len(self.prompt):
            if len(ends) == 1:
                self._keep(steps, skills)
            return
        for part in self.parts:
            self.work += 1
            if self.over or self.work > _MOST_WORK:
                self.over = True
                return
            if len(steps) + len(part.steps) > self.most or part.takes > len(ends):
                continue
            for end, values in _fits(part, self.prompt, at):
                self.work += 1
                taken = ends[len(ends) - part.takes :]
                more = tuple(self._step(step, values, taken, len(steps)) for step in part.steps)
                left = (*ends[: len(ends) - part.takes], len(steps) + len(more) - 1)
                name = skills[-1] if skills and skills[-1] in part.skills else part.skills[0]
                self._go_on(end, (*steps, *more), left, (*skills, name))

    def _step(self, step: SkillStep, values: Sequence[str], taken: Sequence[int], first: int) -> Step:
        access = {taken[seen] if seen < len(taken) else first + seen - len(taken) for seen in step.access}
        return Step(fill_holes(step.subtask, values), self.workers.index(step.worker), tuple(sorted(access)))

    def _keep(self, steps: tuple[Step, ...], skills: tuple[str, ...]) -> None:
        try:
            plan = Plan(steps)
        except PlanError:
            return
        if self.found is not None and self.found.plan != plan:
            self.over = True
        elif self.found is None:
            self.found = ComposedPlan(plan, tuple(dict.fromkeys(skills)))


def _fits(part: SkillPart, text: str, at: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield where a part that begins at `at` may end (the next part's first character), with what fills its holes."""
    pieces = part.pieces
    if not text.startswith(pieces[0], at):
        return
    at += len(pieces[0])
    values = list[str]()
    for place, (piece, width) in enumerate(zip(pieces[1:], part.widths, strict=True)):
        if not piece:
            if place + 1 == len(part.widths):  # a hole at the end: each word may be its last
                for word in _VALUE_END.finditer(text, at, at + _HOLE_CHARACTERS):
                    if not is_value(text[at : word.end()], width):
                        return
                    if word.end() == len(text) or text[word.end()].isspace():
                        yield _next_word(text, word.end()), (*values, text[at : word.end()])
            return
        found = text.find(piece, at + 1, at + _HOLE_CHARACTERS + len(piece))
        if found < 0 or not is_value(text[at:found], width):
            return
        values.append(text[at:found])
        at = found + len(piece)
    if at == len(text) or text[at].isspace():
        yield _next_word(text, at), tuple(values)


def _next_word(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _parts(skill: Skill) -> Iterator[SkillPart]:
    """Yield a skill's parts without names: one for each step, or the skill as a whole where it cannot be cut."""
    whole = _template(skill)
    holes = HOLE.findall(whole)
    if len(holes) + 1 != len(skill.pieces) or any(set(HOLE.findall(step.subtask)) - set(holes) for step in skill.steps):
        return  # the task's own words look like holes
    stretches, takes = _stretches(whole, skill.steps), _taken(skill.steps)
    if stretches is None or takes is None:
        yield _part(whole, skill.steps, 0, skill)
        return
    for stretch, step, count in zip(stretches, skill.steps, takes, strict=True):
        part = _part(stretch, (SkillStep(step.subtask, step.worker, tuple(range(count))),), count, skill)
        if sum(map(len, part.pieces)) >= _OWN_CHARACTERS * sum(part.widths):
            yield part  # one with fewer words of its own would fit too much


def _part(stretch: str, steps: Sequence[SkillStep], takes: int, skill: Skill) -> SkillPart:
    """Return a part whose holes are numbered from 0, so that the same part of two skills is the same."""
    holes = [int(number) for number in HOLE.findall(stretch)]
    places = {hole: place for place, hole in enumerate(holes)}
    renumbered = tuple(
        SkillStep(HOLE.sub(lambda hole: f"{{{places[int(hole[1])]}}}", step.subtask), step.worker, step.access)
        for step in steps
    )
    widths = tuple(skill.width(hole) for hole in holes)
    return SkillPart(tuple(HOLE.split(stretch)[::2]), widths, renumbered, takes, skill.scope, ())


def _taken(steps: Sequence[SkillStep]) -> list[int] | None:
    """Return how many results each step takes, if it takes those that were left last, and all are taken in the end."""
    ends, counts = list[int](), list[int]()
    for at, step in enumerate(steps):
        count = len(step.access)
        if list(step.access) != ends[len(ends) - count :]:
            return None
        ends[len(ends) - count :] = [at]
        counts.append(count)
    return counts if len(ends) == 1 else None


def _template(skill: Skill) -> str:
    return "".join(
        piece + ("" if at + 1 == len(skill.pieces) else f"{{{at}}}") for at, piece in enumerate(skill.pieces)
    ).strip()


def _stretches(whole: str, steps: Sequence[SkillStep]) -> list[str] | None:
    """Return the stretch of the task's text that each step is about; None where that is not plain."""
    quoted = [_AFTER_HOLE.sub(r"\1", step.subtask.strip()) for step in steps]
    if " ".join(quoted).split() == _AFTER_HOLE.sub(r"\1", whole).split():
        return quoted
    sentences = _SENTENCE_END.split(whole)
    if len(sentences) != len(steps):
        return None
    same = all(
        sorted(HOLE.findall(said)) == sorted(set(HOLE.findall(step.subtask)))
        for said, step in zip(sentences, steps, strict=True)
    )
    return sentences if same else None
