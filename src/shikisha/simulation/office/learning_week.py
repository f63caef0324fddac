"""A week of simulated traffic: each day's runs teach the next day's conductor, each thing learned switched on or off.

The conductor in force is `lm:` with the simulated planner. What the runs so far teach is made anew each night and
stands around it: notes on the cards, step values that choose workers, calls and checks, skills that save the planner's
call, lessons from failures. Tuned advice, which is searched for elsewhere, may be in the state as well.
A grader that knows the answers grades a share of the runs, as feedback would. Everything runs through the engine;
only workers, planner and questions are simulated, and named so. Invariant: a week is a function of its seed and
switches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from shikisha.conductors.advised import AdvisedConductor
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.noted import NotedConductor
from shikisha.conductors.skilled import SkilledConductor
from shikisha.conductors.value_conductor import ValueConductor
from shikisha.core.budget import Caps
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.prompts import PlanFormat, PromptStyle
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.learned_file import LearnedFile
from shikisha.learned.lessons import LessonBook, book_file, failure_lessons, judge_lessons, merge_lessons
from shikisha.learned.skills import Skill, mine_skills
from shikisha.learned.step_samples import RunSample, run_sample
from shikisha.learned.step_value import StepValue
from shikisha.learned.value_notes import ValueNotes
from shikisha.notes.step_outcomes import WorkerOutcome, step_outcomes
from shikisha.notes.worker_notes import EncodeTexts, WorkerNotes
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
from shikisha.simulation.office.simulated_planner import planner_member
from shikisha.simulation.seeded_random import hash_fraction

CAPS = Caps(steps=20, rounds=4)
WORTH = 0.05  # dollars that a right answer is worth, as in `best_plan`


@dataclass(frozen=True, slots=True)
class LearningSwitches:
    """What is learned and used; `explore` is by day the share of drawn plans."""

    steps: bool = True
    notes: bool = True
    skills: bool = True
    lessons: bool = True
    prompt: bool = True
    explore: tuple[float, ...] = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class DayResult:
    """One day: how many runs, how many right, and dollars for planning and for workers."""

    right: tuple[bool, ...]
    dollars: tuple[float, ...]
    planning: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """The share of right runs."""
        return sum(self.right) / max(1, len(self.right))

    @property
    def cost(self) -> float:
        """The mean dollars of a run."""
        return sum(self.dollars) / max(1, len(self.dollars))


@dataclass
class LearningState:
    """What the runs so far have taught; notes are by meaning where `encode` turns texts into vectors."""

    encode: EncodeTexts | None = None

    samples: list[RunSample] = field(default_factory=list)
    outcomes: list[WorkerOutcome] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    values: StepValue = field(default_factory=lambda: fit_step_value([]))
    notes: WorkerNotes | None = None
    skills: tuple[Skill, ...] = ()
    book: LessonBook | None = None
    advice: LearnedFile | None = None

    def learn(self, runs: Sequence[Run], switches: LearningSwitches) -> None:
        """Add a day's runs, and make again what is learned from all of them."""
        self.runs += runs
        self.samples += [sample for run in runs if (sample := run_sample(run)) is not None]
        self.outcomes += step_outcomes(runs)
        if switches.steps and self.samples:
            self.values = fit_step_value(self.samples)
        if switches.notes and not switches.steps and self.outcomes:
            self.notes = WorkerNotes.collect(self.outcomes, self.encode)
        if switches.skills:
            self.skills = (*self.skills, *mine_skills(self.runs, self.skills))
        if switches.lessons:
            known = () if self.book is None else self.book.lessons
            lessons = judge_lessons(merge_lessons(known, failure_lessons(self.runs)), self.runs)
            self.book = LessonBook(tuple(lessons), book_file(lessons, OPERATOR, 0.0)) if lessons else None


def planned_by_simulation(item: OfficeTask, luck: int = 0) -> LanguageModelConductor:
    """Return the prompted conductor of one question, whose planner is simulated."""
    member = planner_member(item.question, luck=luck)
    return LanguageModelConductor("lm:simulated", member, style=PromptStyle(PlanFormat.JSON), rounds=1)


def learned_conductor(
    item: OfficeTask, state: LearningState, switches: LearningSwitches, worth: float = WORTH, explore: float = 0.0
) -> Conductor:
    """Return the conductor of one question with everything learned that is switched on."""
    planner = planned_by_simulation(item)
    book, advice = state.book if switches.lessons else None, state.advice if switches.prompt else None
    inner: Conductor = planner if book is None and advice is None else AdvisedConductor(planner, advice, book)
    if switches.notes and switches.steps and state.values.workers:
        inner = NotedConductor(inner, ValueNotes(state.values))
    elif switches.notes and state.notes is not None:
        inner = NotedConductor(inner, state.notes)
    if switches.skills and state.skills:
        inner = SkilledConductor(inner, state.skills)
    if switches.steps:
        inner = ValueConductor("value", state.values, (inner,), worth, explore, free=(fixed_conductor("single"),))
    return inner


async def perform_day(
    items: Sequence[OfficeTask], conductor_of: Callable[[OfficeTask], Conductor], graded: float = 1.0
) -> tuple[list[Run], DayResult]:
    """Perform tasks; return their runs, of which a share `graded` has a grade, and what came of all."""
    recorder = MemoryRecorder()
    engine, runs = Engine(recorder), list[Run]()
    right, dollars, planning = list[bool](), list[float](), list[float]()
    for item in items:
        run = await engine.run(item.task, item.pool, conductor_of(item), CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        is_right = item.grade(run.answer)
        if hash_fraction("graded", item.task.id) < graded:
            mark = GradeMark.RIGHT if is_right else GradeMark.WRONG
            run.grades.append(
                AnswerGraded(
                    run=run.id, at=0.0, checker="feedback", mark=mark, score=float(is_right), actor="simulated"
                )
            )
        runs.append(run)
        right.append(is_right)
        dollars.append(run.charged.dollars or 0.0)
        planning.append(sum(one.charged.dollars or 0.0 for turn in run.rounds for one in turn.planning.attempts))
    return runs, DayResult(tuple(right), tuple(dollars), tuple(planning))


async def perform_week(
    traffic: RecurringTraffic,
    switches: LearningSwitches,
    days: int = 7,
    a_day: int = 43,
    encode: EncodeTexts | None = None,
) -> tuple[LearningState, list[DayResult]]:
    """Perform `days` of traffic, learning each night; return what was learned, and each day's result."""
    state, results = LearningState(encode), list[DayResult]()
    for day in range(days):
        items = traffic.tasks(day * a_day, a_day)
        explore = switches.explore[min(day, len(switches.explore) - 1)]
        conductor = partial(learned_conductor, state=state, switches=switches, explore=explore)
        runs, result = await perform_day(items, conductor)
        results.append(result)
        state.learn(runs, switches)
    return state, results
