"""Lessons from failures: one sentence each, with the runs that taught it, shown on trial and kept only while it helps.

The journal is the memory; a book of lessons is an index over it and never a second truth. A lesson is written after a
failed grade or check, by a reflector or from the record alone, and finds its way to tasks that are like its own. Tasks
that it fits are shown it or not by a draw that the journal has, so that both sides can be compared: a lesson that helps
is kept, one that harms, or does not help after many tasks, is retired. Two lessons that contradict each other are both
on trial until outcomes tell.

Invariants: no lesson without evidence; a book is made again without a run that was erased; lessons are shown only to
tasks of their runs' tenant that bear their labels; a lesson is one line of at most MAX_LESSON characters, is quoted as
data wherever it is shown, and is no refusal and no order to the model.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from math import log, sqrt
from pathlib import Path

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.events import CheckStatus
from shikisha.core.messages import Json
from shikisha.core.run import Run
from shikisha.core.task import Scope
from shikisha.evals.statistics import wilson
from shikisha.learned.learned_file import LearnedFile, LearnedGain, read_learned, write_learned
from shikisha.learned.step_encoder import text_features
from shikisha.learned.step_samples import run_sample
from shikisha.notes.step_outcomes import subtask_terms

LESSONS = "lessons"
LESSONS_SHOWN = "lessons"  # in `PlanProposed.beside`: ids that fitted, those withheld with a minus
MAX_LESSON = 400
MAX_LESSONS = 5_000
_RECALLED = 3
_LEAST_ALIKE = 0.2  # cosine of a task and a lesson's own task
_SAME = 0.95  # cosine from which two lessons say the same
_MOST_WORK = 50  # kinds of work of one lesson
_FEWEST = 20  # graded tasks of each side before a lesson is judged
_MOST = 80  # of each side, after which a lesson that was not shown to help is retired
_LEAST_FAILURES = 3
# A lesson is judged every night, and the luckiest night counts: the interval to be kept is wider by this (lessons.py).
_LOOKS = 1.35
# What a reflector says in place of a lesson: nothing, a refusal, talk of a person or of its role, an order, a key.
_NO_LESSON = re.compile(
    r"(n/?a|none|nothing|no lesson|unknown)\W*$|\W*(i|i['’]m|i['’]ve|sorry|as an? (ai|assistant|language))\b"
    r"|(you are|you're|the user)\b|.*\b(ignore|disregard|forget|override|bypass)\b.*\b(instruction|rule|prompt|system)"
    r"|.*(\bsk-\w|\bmy (\w+ )?(key|password|token)\b|<\||https?://)",
    re.IGNORECASE | re.DOTALL,
)
_LABEL = re.compile(r"[^:\n]{0,30}\blesson\b[^:\n]{0,30}:\s*", re.IGNORECASE)  # "The lesson above says: "
_ADVICE_WORDS = re.compile(  # which say nothing of what the advice is about
    "an?|the|of|in|on|at|to|for|and|or|is|are|be|it|its|this|that|these|you|your|we|before|after|first|last|always|never|"
    "please|then|when|if|with|check|verify|ensure|make|sure|remember|answer|answering|give|giving|result"
)
_RESTATED = 0.8  # share of a text's words that are the task's own, from which it only restates that
_ID = re.compile("[0-9a-f]{12}")
_SPACE = re.compile(r"\s+")


class LessonState(StrEnum):
    """Whether a lesson is shown."""

    TRIAL = "trial"  # to a share of the tasks
    KEPT = "kept"  # to all: it was shown to help
    RETIRED = "retired"  # to none: it harmed, or did not help


@dataclass(frozen=True, slots=True)
class Lesson:
    """One sentence, the work that it is about (a line each), its evidence, and (tasks, right) with and without it."""

    id: str
    text: str
    about: str
    evidence: tuple[str, ...]
    shown: tuple[int, float] = (0, 0.0)
    withheld: tuple[int, float] = (0, 0.0)
    state: LessonState = LessonState.TRIAL

    @property
    def gain(self) -> LearnedGain:
        """The difference in the share of right tasks between both sides, by Newcombe's interval."""
        rates = [right / max(1, tasks) for tasks, right in (self.shown, self.withheld)]
        (low, high), (other_low, other_high) = (wilson(right, tasks) for tasks, right in (self.shown, self.withheld))
        difference = rates[0] - rates[1]
        below = sqrt((rates[0] - low) ** 2 + (other_high - rates[1]) ** 2)
        above = sqrt((high - rates[0]) ** 2 + (rates[1] - other_low) ** 2)
        tasks = self.shown[0] + self.withheld[0]
        basis = "measured in a randomized trial"
        return LearnedGain("share of right runs", difference, difference - below, difference + above, tasks, basis)


class TextPostings:
    """Texts by their word parts: how alike each is to another text, by cosine over rarity."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings = defaultdict[int, list[int]](list)
        features = [text_features(text) for text in texts]
        for place, found in enumerate(features):
            for feature in found:
                self._postings[feature].append(place)
        count = len(texts)
        self._rarity = {feature: log(1.5 + count / len(places)) for feature, places in self._postings.items()}
        self._unknown = log(1.5 + count)
        self._norms = [sqrt(sum(self._rarity[one] ** 2 for one in found)) or 1.0 for found in features]

    def alike(self, text: str) -> dict[int, float]:
        """Return the cosine with each text that has something in common."""
        sums, norm = defaultdict[int, float](float), 0.0
        for feature in text_features(text):
            weight = self._rarity.get(feature, self._unknown)
            norm += weight**2
            for place in self._postings.get(feature, ()):
                sums[place] += weight**2
        return {place: total / self._norms[place] / sqrt(norm) for place, total in sums.items()}


@dataclass(eq=False)
class LessonBook:
    """Lessons with an index over what they are about; `source` has their file's version and scope."""

    lessons: tuple[Lesson, ...]
    source: LearnedFile
    _index: TextPostings = field(init=False)
    _owners: list[int] = field(init=False)

    def __post_init__(self) -> None:
        rows = [(at, line) for at, lesson in enumerate(self.lessons) for line in lesson.about.split("\n")]
        self._owners = [at for at, _ in rows]
        self._index = TextPostings([line for _, line in rows])

    def recall(self, prompt: str, reader: Scope, count: int = _RECALLED) -> list[Lesson]:
        """Return the lessons on work most like this task's, the likest first; none that is retired.

        None either where the task's scope, `reader`, may not be shown them.
        """
        if not self.source.scope.admits(reader):
            return []
        near = defaultdict[int, float](float)
        for row, alike in self._index.alike(prompt).items():
            near[self._owners[row]] = max(near[self._owners[row]], alike)
        order = sorted((at for at in near if near[at] >= _LEAST_ALIKE), key=lambda at: (-near[at], self.lessons[at].id))
        fitting = [lesson for at in order if (lesson := self.lessons[at]).state is not LessonState.RETIRED]
        # Of one text that was kept for one kind of work and is on trial for another, the kept one counts.
        kept_first = sorted(fitting, key=lambda lesson: lesson.state is not LessonState.KEPT)
        chosen = {lesson.text: lesson for lesson in reversed(kept_first)}
        return [lesson for lesson in fitting if chosen[lesson.text] is lesson][:count]


def make_lesson(text: str, about: str, evidence: Sequence[str]) -> Lesson:
    """Return a lesson on trial; ValueError for one without text or evidence."""
    said = _SPACE.sub(" ", text).strip()[:MAX_LESSON]
    if not said or not evidence:
        raise ValueError("a lesson has a text and the runs that teach it")
    lines = "\n".join(line for one in about.split("\n") if (line := _SPACE.sub(" ", one).strip()))
    return Lesson(sha256(said.encode()).hexdigest()[:12], said, lines, tuple(dict.fromkeys(evidence)))


def reflected_lesson(text: str, prompt: str, run: str) -> Lesson | None:
    """Return the lesson that a reflector wrote after a run; None for what is none, such as a refusal or an order."""
    said = _LABEL.sub("", _SPACE.sub(" ", text).strip(), count=1)
    words, asked = ({*re.findall(r"\w+", one.casefold())} for one in (said, prompt))
    if len(words) < 3 or _NO_LESSON.match(said) or len(words & asked) >= _RESTATED * len(words):
        return None
    return make_lesson(said, _SPACE.sub(" ", prompt).strip(), [run])


def _subject(text: str) -> frozenset[str]:
    """Return what a lesson is about, without the words of any advice: two with the same subject say the same."""
    return frozenset(
        word.rstrip("s") for word in re.findall(r"\w+", text.casefold()) if not _ADVICE_WORDS.fullmatch(word)
    )


def failure_lessons(runs: Iterable[Run]) -> list[Lesson]:
    """Return lessons from the record alone: which worker's answers failed checks or wrong runs at a kind of subtask.

    Only a worker that was wrong in most of at least three certain cases (a failed check, a run of one step) is named.
    """
    cases = defaultdict[tuple[str, tuple[str, ...]], list[tuple[str, bool, str]]](list)
    for run in runs:
        sample = run_sample(run)
        if sample is None:
            continue
        for unit in sample.units:
            alone = len(sample.units) == 1 and len(unit.answers) == 1
            for one in unit.answers:
                if one.failed or (alone and sample.right is not None):
                    wrong = one.failed or not sample.right
                    cases[one.worker, subtask_terms(unit.subtask)[:4]].append((run.id, wrong, unit.subtask))
    found = []
    for (worker, terms), seen in sorted(cases.items()):
        wrong_runs = [run for run, wrong, _ in seen if wrong]
        if len(wrong_runs) >= _LEAST_FAILURES and 2 * len(wrong_runs) > len(seen) and terms:
            about = " ".join(terms)
            text = f"{worker} was wrong in {len(wrong_runs)} of {len(seen)} subtasks about {about}: prefer another."
            about_wrong = [subtask for _, wrong, subtask in seen if wrong]
            found.append(make_lesson(text, about_wrong[-1], wrong_runs))
    return found


def failed_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that something can be learned from: a wrong grade, or a failed check."""
    found = []
    for run in runs:
        if run.erased is not None or run.finished is None:
            continue
        grade = run.grade
        wrong = grade is not None and grade.score is not None and grade.score < 1
        checks = [check for turn in run.rounds for step in turn.steps.values() for check in step.checks]
        if wrong or any(check.status is CheckStatus.FAIL for check in checks):
            found.append(run)
    return found


def merge_lessons(old: Sequence[Lesson], new: Sequence[Lesson]) -> list[Lesson]:
    """Return all lessons, each once: one that says what an earlier one says adds its evidence and work to that."""
    kept = list(old)
    for lesson in new:
        near = TextPostings([one.text for one in kept]).alike(lesson.text)
        at = max(near, key=near.__getitem__, default=-1)
        if at >= 0 and near[at] < _SAME and (subject := _subject(lesson.text)):
            at = next((place for place, one in enumerate(kept) if _subject(one.text) == subject), -1)
        elif at >= 0 and near[at] < _SAME:
            at = -1
        if at >= 0:
            runs = tuple(dict.fromkeys((*kept[at].evidence, *lesson.evidence)))
            lines = dict.fromkeys((*kept[at].about.split("\n"), *lesson.about.split("\n")))
            kept[at] = replace(kept[at], evidence=runs, about="\n".join(list(lines)[:_MOST_WORK]))
        else:
            kept.append(lesson)
    return kept[:MAX_LESSONS]


def widen_lessons(lessons: Sequence[Lesson], runs: Iterable[Run]) -> list[Lesson]:
    """Return the lessons, and a copy on trial of each that was kept, for failed work that it does not fit.

    What helped at one kind of work may help at others, and only a trial there can say so. One copy is on trial at a
    time, and none is made of a lesson of which a copy was retired.
    """
    found, failed = list(lessons), [run for run in failed_runs(runs) if run.started.parent is None]
    for text in dict.fromkeys(lesson.text for lesson in lessons if lesson.state is LessonState.KEPT):
        same = [lesson for lesson in lessons if lesson.text == text]
        if any(lesson.state is not LessonState.KEPT for lesson in same):
            continue
        near = TextPostings([line for lesson in same for line in lesson.about.split("\n")])
        new = [run for run in failed if max(near.alike(run.started.prompt).values(), default=0.0) < _LEAST_ALIKE]
        if len(new) >= _LEAST_FAILURES:
            newest = new[-_MOST_WORK:]
            about = "\n".join(" ".join(run.started.prompt.split()) for run in newest)
            taught = [run for one in same for run in one.evidence]  # whose words the text has
            copy = make_lesson(text, about, [*taught, *(run.id for run in newest)])
            found.append(replace(copy, id=sha256(f"{text}\n{about}".encode()).hexdigest()[:12]))
    return found[:MAX_LESSONS]


def judge_lessons(lessons: Sequence[Lesson], runs: Iterable[Run]) -> list[Lesson]:
    """Return the lessons with what runs say of them, and their state by that; counts are made anew from all runs."""
    counts = defaultdict[str, list[float]](lambda: [0, 0.0, 0, 0.0])
    there, gone = set[str](), set[str]()
    for run in runs:
        if run.erased is not None:
            gone.add(run.id)
            continue
        there.add(run.id)
        grade = run.grade
        if grade is None or grade.score is None:
            continue
        for turn in run.rounds[:1]:
            said = turn.proposed.beside.get(LESSONS_SHOWN, "") if turn.proposed is not None else ""
            for name in filter(None, said.split(",")):
                side = 2 if name.startswith("-") else 0
                counts[name.removeprefix("-")][side] += 1
                counts[name.removeprefix("-")][side + 1] += grade.score
    found = []
    for lesson in lessons:
        evidence = tuple(run for run in lesson.evidence if run in there)
        if not evidence or not gone.isdisjoint(lesson.evidence):
            continue  # any of its runs may have had its words
        tasks, right, others, others_right = counts[lesson.id]
        told = replace(lesson, evidence=evidence, shown=(int(tasks), right), withheld=(int(others), others_right))
        found.append(replace(told, state=judged_state(told)))
    return found


def judged_state(lesson: Lesson) -> LessonState:
    """Return what becomes of a lesson, given what runs with and without it came to."""
    tasks, others = lesson.shown[0], lesson.withheld[0]
    if lesson.state is LessonState.RETIRED:
        return LessonState.RETIRED
    if min(tasks, others) < _FEWEST:
        # A lesson that was kept is shown to all, so its other side grows no more: it stays as it was judged.
        return lesson.state
    gain = lesson.gain
    if gain.mean - _LOOKS * (gain.mean - gain.low) > 0:
        return LessonState.KEPT
    if gain.high < 0 or min(tasks, others) >= _MOST:
        return LessonState.RETIRED
    return LessonState.TRIAL


def change_lesson(file: Path, name: str, state: LessonState, made: float) -> tuple[Lesson, LearnedFile]:
    """Write a lesson's state into its file; return both. UnknownName unless just one lesson's id begins so."""
    book = load_book(file)
    changed = replace(named_lesson(book, name), state=state)
    written = book_file([changed if one.id == changed.id else one for one in book.lessons], book.source.scope, made)
    write_learned(file, written)
    return changed, written


def named_lesson(book: LessonBook, name: str) -> Lesson:
    """Return the lesson whose id begins so; UnknownName for none, or several."""
    fitting = [one for one in book.lessons if one.id.startswith(name)]
    if len(fitting) != 1:
        raise UnknownName("lesson", name, [one.id for one in book.lessons[:20]])
    return fitting[0]


def book_file(lessons: Sequence[Lesson], scope: Scope, made: float) -> LearnedFile:
    """Return a book as a learned file."""
    rows: list[Json] = [
        {
            "id": one.id,
            "text": one.text,
            "about": one.about,
            "evidence": list(one.evidence),
            "shown": list(one.shown),
            "withheld": list(one.withheld),
            "state": str(one.state),
        }
        for one in lessons
    ]
    evidence = tuple(dict.fromkeys(run for one in lessons for run in one.evidence))
    return LearnedFile(LESSONS, {"lessons": rows}, evidence, scope, None, made)


def load_book(file: Path) -> LessonBook:
    """Read a book; ConfigError where there is none, it was changed, or a lesson has no evidence."""
    learned = read_learned(file, LESSONS)
    rows = learned.content.get("lessons")
    try:
        if not isinstance(rows, list) or len(rows) > MAX_LESSONS:
            raise ValueError(f"expected a list of at most {MAX_LESSONS:,} lessons")
        lessons = tuple(_read_lesson(row) for row in rows if isinstance(row, Mapping))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no lessons: {error}") from None
    return LessonBook(lessons, learned)


def _read_lesson(row: Mapping[str, Json]) -> Lesson:
    evidence, shown, withheld = row["evidence"], row["shown"], row["withheld"]
    if not isinstance(evidence, list) or not isinstance(shown, list) or not isinstance(withheld, list):
        raise TypeError("evidence, shown and withheld are lists")
    own_id = str(row["id"])
    if not _ID.fullmatch(own_id):
        raise ValueError("the id of a lesson has 12 hexadecimal digits")
    made = replace(make_lesson(str(row["text"]), str(row["about"]), [str(run) for run in evidence]), id=own_id)
    counts = [(int(str(side[0])), float(str(side[1]))) for side in (shown, withheld)]
    return replace(made, shown=counts[0], withheld=counts[1], state=LessonState(str(row["state"])))
