"""Skills: plans with holes that right runs had in common, replayed before they are used, as folders that people read.

A skill is mined from right runs whose tasks are the same but for some words: what differs becomes holes, and the plan's
subtasks are written with the same holes. It is admitted only if filling it for runs that were held out gives the plan
that was right there. A folder holds `SKILL.md` (the open format: name and description above the text) and `plan.json`,
a learned file with its evidence and the hash of both.

Invariants: a skill is data: workers by name, subtasks, access lists; one that was edited by hand is refused, and one
from elsewhere is not used until it was replayed here; matching takes time linear in the task and the skill; it is
used only for tasks of its scope.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import sha256
from math import sqrt
from pathlib import Path

from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.messages import Json
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Scope
from shikisha.evals.statistics import wilson
from shikisha.learned.fit_step_value import PHRASES
from shikisha.learned.learned_file import LearnedFile, read_learned, write_learned
from shikisha.learned.step_samples import PLANNED_ACCESS, check_subtask, split_merged
from shikisha.learned.step_value import split_phrases

SKILL = "skill"
SKILL_NOTE = "skill "  # before a skill's name in the note of its plan
COMPOSED_NOTE = "composed of skills "  # before the names of several
MIN_TASKS = 3  # that a skill is generalized over
MIN_HELD_OUT = 1  # further ones that it must reproduce
MAX_HOLES = 12
MAX_PROMPT = 4_000  # characters of a task that is mined or matched
_MAX_RUNS = 400  # right runs that are compared with one another
_HOLE_WORDS = 12  # that fill a hole at most
_OWN_CHARACTERS = 4  # that a subtask has at least for each further word that was seen in one of its holes
_MORE_WORDS = 2  # than were seen in a hole of several words
_LEAST_COMMON = 0.5  # share of words that two tasks of one kind have in common
HOLE = re.compile(r"\{(\d+)\}")
_WORD = re.compile(r"\s*\S+")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_RIGHT = 0.999
_FEWEST_JUDGED = 10  # graded runs of a skill, and of planners on tasks that it fits, before it can be retired
_LOOKS = 1.35  # as for lessons: the interval is wider by this, since the unluckiest look counts
_ENDS_WITHIN = re.compile(r"[.?!]\s|\n")


@dataclass(frozen=True, slots=True)
class SkillStep:
    """One step: a subtask with holes, a worker by name, an access list."""

    subtask: str
    worker: str
    access: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Skill:
    """`pieces` are the task's fixed texts; between two neighbors is a hole. `replays` are (tried, reproduced).

    `widths` are the most words that fill each hole: a task that says more there asks for more.
    """

    name: str
    pieces: tuple[str, ...]
    steps: tuple[SkillStep, ...]
    evidence: tuple[str, ...]
    replays: tuple[int, int]
    scope: Scope
    widths: tuple[int, ...] = ()
    retired: str = ""  # why, if its right rate has dropped

    def width(self, hole: int) -> int:
        """Return the most words that fill a hole."""
        return self.widths[hole] if hole < len(self.widths) else _HOLE_WORDS

    @property
    def admitted(self) -> bool:
        """Whether it was replayed here, every replay gave what was right, and it has not drifted since."""
        return not self.retired and self.replays[0] >= MIN_HELD_OUT and self.replays[0] == self.replays[1]

    def match(self, prompt: str) -> tuple[str, ...] | None:
        """Return what fills the holes in this task; None where it is another kind of task."""
        if len(prompt) > MAX_PROMPT or not prompt.startswith(self.pieces[0]):
            return None
        at, values = len(self.pieces[0]), list[str]()
        for piece in self.pieces[1:-1]:
            found = prompt.find(piece, at + 1)
            if found < 0:
                return None
            values.append(prompt[at:found])
            at = found + len(piece)
        last = self.pieces[-1]
        if len(self.pieces) > 1:
            end = len(prompt) - len(last)
            if end <= at or not prompt.endswith(last):
                return None
            values.append(prompt[at:end])
        elif at != len(prompt):
            return None
        fit = all(is_value(value, self.width(hole)) for hole, value in enumerate(values))
        return tuple(values) if fit else None

    def plan(self, prompt: str, workers: Sequence[str]) -> Plan | None:
        """Return the plan for a task; None where it does not fit, or a worker is not in the pool."""
        values = self.match(prompt)
        if values is None or any(step.worker not in workers for step in self.steps):
            return None
        try:
            return Plan(
                tuple(
                    Step(fill_holes(step.subtask, values), workers.index(step.worker), step.access)
                    for step in self.steps
                )
            )
        except (PlanError, IndexError):
            return None

    def to_file(self, made: float) -> LearnedFile:
        """Return the skill as a learned file; the hash of its page is part of it."""
        steps: list[Json] = [
            {"subtask": step.subtask, "worker": step.worker, "access": list(step.access)} for step in self.steps
        ]
        content: Mapping[str, Json] = {
            "name": self.name,
            "pieces": list(self.pieces),
            "steps": steps,
            "widths": list(self.widths),
            "retired": self.retired,
            "replays": list(self.replays),
            "page": sha256(self.page().encode()).hexdigest(),
        }
        return LearnedFile(SKILL, content, self.evidence, self.scope, None, made)

    def page(self) -> str:
        """Return `SKILL.md`."""
        task = "".join(
            piece + ("" if at + 1 == len(self.pieces) else f"{{{at}}}") for at, piece in enumerate(self.pieces)
        )
        lines = [f"{at + 1}. {step.worker}: {step.subtask}" for at, step in enumerate(self.steps)]
        description = " ".join(task.split())[:200].replace('"', "'")
        return (
            f'---\nname: {self.name}\ndescription: "Tasks like: {description}"\n---\n\n'
            f"# {self.name}\n\nA task of the form\n\n> {task}\n\nis done in {len(self.steps)} steps. "
            f"Numbers in braces are what fills the holes.\n\n" + "\n".join(lines) + "\n"
        )


@dataclass(frozen=True, slots=True)
class _RightRun:
    run: str
    prompt: str
    plan: Plan
    workers: tuple[str, ...]
    scope: Scope


def mine_skills(runs: Iterable[Run], known: Sequence[Skill] = ()) -> list[Skill]:
    """Return the skills that right runs have in common and that hold-out runs confirm; none that is known already."""
    right = [one for run in runs if (one := _right_run(run)) is not None][-_MAX_RUNS:]
    left = [one for one in right if not any(one.scope == s.scope and s.match(one.prompt) is not None for s in known)]
    found = list[Skill]()
    while left:
        first = left.pop(0)
        like = [one for one in left if _is_alike(first, one)]
        if len(like) + 1 < MIN_TASKS + MIN_HELD_OUT:
            continue
        name = f"skill-{len(known) + len(found) + 1}"
        closest = sorted(like, key=lambda one: -_common_words(first, one))
        for others in (like, closest):  # those that came next may be of another kind in similar words
            skill = _generalize([first, *others[: MIN_TASKS - 1]], name)
            tried = None if skill is None else replay_skill(skill, others[MIN_TASKS - 1 :])
            if tried is not None and tried.admitted:
                found.append(tried)
                left = [one for one in left if one.scope != tried.scope or tried.match(one.prompt) is None]
                break
    return found


def replay_skill(skill: Skill, held_out: Sequence[_RightRun]) -> Skill:
    """Return the skill with how many held-out right runs it fits, and for how many it gives the plan that was right."""
    tried = reproduced = 0
    for one in held_out:
        if skill.match(one.prompt) is None:
            continue
        tried += 1
        names = sorted({step.worker for step in skill.steps})
        plan = skill.plan(one.prompt, names)
        same = plan is not None and [(step.subtask, step.access) for step in plan.steps] == [
            (step.subtask, step.access) for step in one.plan.steps
        ]
        reproduced += same
    return replace(skill, replays=(tried, reproduced))


def replay_on_runs(skill: Skill, runs: Iterable[Run]) -> Skill:
    """Return a skill from elsewhere after a replay on this journal's right runs."""
    return replay_skill(skill, [one for run in runs if (one := _right_run(run)) is not None])


def retire_drifted(skill: Skill, runs: Iterable[Run]) -> Skill:
    """Return the skill, retired if it is right less often than planners were on tasks that it fits.

    Its own runs are those whose plan's note names it alone. The upper end of Newcombe's interval of the difference,
    widened because it is looked at again and again, has to be below 0.
    """
    counts = {True: [0, 0.0], False: [0, 0.0]}
    for run in runs:
        grade, first = run.grade, next(iter(run.rounds), None)
        note = first.proposed.note if first is not None and first.proposed is not None else ""
        by_skill = note == f"{SKILL_NOTE}{skill.name}"
        if run.erased is not None or grade is None or grade.score is None:
            continue
        if note.startswith((SKILL_NOTE, COMPOSED_NOTE)) and not by_skill:
            continue  # another skill's: it says nothing of planners
        if skill.scope.admits(run.scope) and skill.match(run.started.prompt) is not None:
            counts[by_skill][0] += 1
            counts[by_skill][1] += grade.score
    own, others = ((int(count), right) for count, right in (counts[True], counts[False]))
    if not is_drifted(own, others):
        return skill
    now, before = (right / count for count, right in (own, others))
    said = f"right in {now:.2f} of {own[0]} runs, where planners were in {before:.2f} of {others[0]}"
    return replace(skill, retired=said)


def is_drifted(own: tuple[int, float], others: tuple[int, float]) -> bool:
    """Whether a skill's (graded runs, right ones) are shown to be worse than those of planners at the same work."""
    if min(own[0], others[0]) < _FEWEST_JUDGED:
        return False
    now, before = own[1] / own[0], others[1] / others[0]
    above = sqrt((wilson(own[1], own[0])[1] - now) ** 2 + (before - wilson(others[1], others[0])[0]) ** 2)
    return now - before + _LOOKS * above < 0


def _right_run(run: Run) -> _RightRun | None:
    """Return what a right run of one round shows; None for others."""
    grade, end = run.grade, run.finished
    if run.erased is not None or end is None or grade is None or grade.score is None or grade.score < _RIGHT:
        return None
    turns = [turn for turn in run.rounds if turn.plan is not None and turn.plan.steps]
    prompt = run.started.prompt
    if len(turns) != 1 or len(prompt) > MAX_PROMPT or turns[0].plan is None or run.started.parent is not None:
        return None
    beside = turns[0].proposed.beside if turns[0].proposed is not None else {}
    plan = plain_plan(turns[0].plan, beside.get(PLANNED_ACCESS, ""))
    if any(step.each is not None for step in plan.steps):
        return None
    return _RightRun(run.id, prompt, plan, run.started.pool, run.scope)


def plain_plan(plan: Plan, planned_access: str = "") -> Plan:
    """Return a plan without checks, second workers, shared calls and standing phrases: what a planner would write.

    `planned_access` are the access lists of what the planner wrote, where several steps shared a call.
    """
    steps, gives = list[Step](), dict[int, int]()
    used = {seen for step in plan.steps for seen in step.access} | {len(plan.steps) - 1}
    for at, step in enumerate(plan.steps):
        checked = [seen for seen in step.access if step.subtask == check_subtask(plan.steps[seen].subtask)]
        if checked:
            gives[at] = gives[checked[-1]]
            continue
        if at not in used and any(other.subtask == step.subtask for other in plan.steps[at + 1 :]):
            continue
        access = tuple(sorted({gives[seen] for seen in step.access if seen in gives}))
        for subtask in split_merged(step.subtask):
            gives[at] = len(steps)
            steps.append(replace(step, subtask=split_phrases(subtask, PHRASES)[0], access=access))
            access = tuple(sorted({*access, gives[at]}))
    lists = planned_access.split(";")
    if planned_access and len(lists) == len(steps):
        steps = [replace(step, access=tuple(map(int, seen.split()))) for step, seen in zip(steps, lists, strict=True)]
    return Plan(tuple(steps))


def _is_alike(one: _RightRun, two: _RightRun) -> bool:
    shape = [step.access for step in one.plan.steps] == [step.access for step in two.plan.steps]
    if not shape or one.scope != two.scope:
        return False
    return _common_words(one, two) >= _LEAST_COMMON


def _common_words(one: _RightRun, two: _RightRun) -> float:
    """Return the share of words that two tasks have in common."""
    words, others = one.prompt.split(), two.prompt.split()
    return sum((Counter(words) & Counter(others)).values()) / max(1, len(words), len(others))


def _generalize(runs: Sequence[_RightRun], name: str) -> Skill | None:
    """Return the skill that these runs have in common; None where they have too little, or plans that differ."""
    words = [_WORD.findall(one.prompt) for one in runs]
    fixed = [True] * len(words[0])
    for other in words[1:]:
        same = [False] * len(words[0])
        for block in SequenceMatcher(None, words[0], other, autojunk=False).get_matching_blocks():
            same[block.a : block.a + block.size] = [True] * block.size
        fixed = [a and b for a, b in zip(fixed, same, strict=True)]
    pieces = _pieces(words[0], fixed)
    if not 1 < len(pieces) <= MAX_HOLES + 1 or sum(map(len, pieces)) < _LEAST_COMMON * len(runs[0].prompt):
        return None
    draft = Skill(name, pieces, (), (), (0, 0), runs[-1].scope)
    plans, filled = [], list[tuple[str, ...]]()
    for one in runs:
        values = draft.match(one.prompt)
        if values is None:
            return None
        filled.append(values)
        plans.append([_holed(step.subtask, values) for step in one.plan.steps])
    if any(plan != plans[0] for plan in plans[1:]):
        return None
    last = runs[-1]
    steps = tuple(
        SkillStep(subtask, last.workers[step.worker], step.access)
        for subtask, step in zip(plans[0], last.plan.steps, strict=True)
    )
    seen = [max(len(values[hole].split()) for values in filled) for hole in range(len(pieces) - 1)]
    widths = tuple(most if most == 1 else most + _MORE_WORDS for most in seen)
    if any(_is_vague(step.subtask, seen) for step in steps):
        return None
    return replace(draft, steps=steps, evidence=tuple(one.run for one in runs), widths=widths)


def _is_vague(subtask: str, seen: Sequence[int]) -> bool:
    """Whether a subtask is little but holes: it would fit work of other kinds, which its worker may not be able to."""
    words = sum(seen[int(hole)] - 1 for hole in HOLE.findall(subtask) if int(hole) < len(seen))
    return len(HOLE.sub("", subtask)) < _OWN_CHARACTERS * words


def _pieces(words: Sequence[str], fixed: Sequence[bool]) -> tuple[str, ...]:
    """Return the fixed texts between holes; the first and the last may be empty."""
    pieces, hole = [""], False
    for word, stays in zip(words, fixed, strict=True):
        if stays:
            pieces[-1] += word
            hole = False
        elif not hole:
            space = word[: len(word) - len(word.lstrip())]
            pieces[-1] += space
            pieces.append("")
            hole = True
    return tuple(pieces)


def _holed(subtask: str, values: Sequence[str]) -> str:
    """Return a subtask with each hole's value replaced by the hole's number, longest values first."""
    order = sorted(range(len(values)), key=lambda at: -len(values[at]))
    marks = {at: f"\x00{at}\x00" for at in order}
    for at in order:
        stripped = values[at].strip().rstrip("?.!,;:")
        if stripped:
            subtask = subtask.replace(stripped, marks[at])
    for at, mark in marks.items():
        subtask = subtask.replace(mark, f"{{{at}}}")
    return subtask


def is_value(text: str, most: int) -> bool:
    """Whether a text can fill a hole: at most so many words, and no end of a sentence, behind which more is asked."""
    return bool(text.strip()) and len(text.split()) <= most and _ENDS_WITHIN.search(text.strip()) is None


def fill_holes(subtask: str, values: Sequence[str]) -> str:
    """Return a subtask with the values in its holes, without punctuation after them."""
    return HOLE.sub(lambda hole: values[int(hole[1])].strip().rstrip("?.!,;:"), subtask)


def write_skill(folder: Path, skill: Skill, made: float) -> Path:
    """Write a skill's folder; return it."""
    target = folder / skill.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / "SKILL.md").write_text(skill.page(), "utf-8")
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from None
    write_learned(target / "plan.json", skill.to_file(made))
    return target


def read_skill(folder: Path, *, ours: bool = True) -> Skill:
    """Read a skill's folder; ConfigError where it is none or was changed. Not `ours`: its replays do not count."""
    learned = read_learned(folder / "plan.json", SKILL)
    content = learned.content
    try:
        pieces, rows, replays = content["pieces"], content["steps"], content["replays"]
        if not isinstance(pieces, list) or not isinstance(rows, list) or not isinstance(replays, list):
            raise TypeError("pieces, steps and replays are lists")
        name = str(content["name"])
        if not _NAME.fullmatch(name) or not 1 <= len(pieces) <= MAX_HOLES + 1:
            raise ValueError("a name has a-z, 0-9 and -, and a skill at most 12 holes")
        steps = tuple(_read_step(row, len(pieces) - 1) for row in rows)
        found = content.get("widths", [])
        widths = tuple(int(str(most)) for most in found) if isinstance(found, list) else ()
        counts = (int(str(replays[0])), int(str(replays[1])))
        skill = Skill(name, tuple(map(str, pieces)), steps, learned.evidence, counts, learned.scope, widths)
        skill = replace(skill, retired=str(content.get("retired", "")))
        page = (folder / "SKILL.md").read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{folder / 'SKILL.md'}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(f"{folder}: no skill: {error}") from None
    if sha256(page.encode()).hexdigest() != content.get("page"):
        raise ConfigError(f"{folder / 'SKILL.md'}: it was changed after it was written: mine or import it again")
    return skill if ours else replace(skill, replays=(0, 0))


def _read_step(row: Json, holes: int) -> SkillStep:
    if not isinstance(row, Mapping):
        raise TypeError("a step is an object")
    access = row["access"]
    if not isinstance(access, list):
        raise TypeError("an access list is a list")
    subtask = str(row["subtask"])
    if any(int(number) >= holes for number in HOLE.findall(subtask)):
        raise ValueError("a subtask names a hole that the task does not have")
    return SkillStep(subtask, str(row["worker"]), tuple(int(str(seen)) for seen in access))


def read_skills(folder: Path) -> list[Skill]:
    """Read all skills of a folder; none where there is no folder."""
    return [read_skill(path.parent) for path in sorted(folder.glob("*/plan.json"))]
