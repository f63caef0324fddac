"""Canary against live, shadow against live: what trials find, how sure they are, and what follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shelves import ME, asking, shelf_of

from shikisha.conductors.learned_policy import registry_conductor
from shikisha.core.call import Reply
from shikisha.core.events import GradeBasis
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import grade_from_score
from shikisha.evals.reward import Reward
from shikisha.evals.reward import grade_events as grades
from shikisha.routing.fit.online_evaluation import (
    CanaryTrial,
    PromotionLimits,
    PromotionVerdict,
    TrialRun,
    decide_promotion,
    evaluate_shadow,
    evaluate_trial,
    shadowed_runs,
    trial_runs,
    trusted_bases,
)
from shikisha.routing.policy_registry import PolicyRegistry, update_registry
from support import engine, pool_of

LIVE, CANARY = "a" * 12, "b" * 12
RIGHT, WRONG = 1.0, 0.0
GRADED = trusted_bases(trust_judge=False)


def sample(number: int, version: str, score: float | None = None, **more: object) -> TrialRun:
    """A run of task `number` on which the two part, graded by a check, unless told otherwise."""
    basis = None if score is None else GradeBasis.EXECUTED
    plain = TrialRun(f"{version}{number}", version, True, score, basis, 1.0, failed=False)
    return replace(plain, **more)  # type: ignore[arg-type]  # each is of its field's type


def drawn(seed: int, tasks: int, right: tuple[float, float], share: float = 1.0, canary: float = 0.5) -> list[TrialRun]:
    """Runs of so many tasks, of which the canary has its share: live and canary are `right` so often, and part on a
    share of the tasks; elsewhere both are right on .7.
    """
    random = np.random.default_rng(seed)
    found = []
    for number in range(tasks):
        version = CANARY if random.random() < canary else LIVE
        differs = bool(random.random() < share)
        chance = right[version == CANARY] if differs else 0.7
        found.append(sample(number, version, float(random.random() < chance), differs=differs))
    return found


def tried(held: Sequence[TrialRun], counts: Sequence[GradeBasis] = GRADED) -> CanaryTrial:
    return evaluate_trial(held, LIVE, CANARY, counts)


@pytest.mark.parametrize(("share", "gain"), [(1.0, 0.2), (0.3, 0.2), (0.1, -0.3), (0.0, 0.0)])
def test_the_interval_of_a_difference_holds_the_truth_about_as_often_as_it_says(share: float, gain: float) -> None:
    truth, held = share * gain, 0
    for seed in range(120):
        found = tried(drawn(seed, 200, (0.5, 0.5 + gain), share)).right
        assert found is not None
        held += found.low <= truth <= found.high
    assert held >= 107  # of 120, of which 114 are expected


def test_where_the_two_do_the_same_nothing_is_left_to_chance_so_the_interval_is_narrower() -> None:
    held = drawn(1, 600, (0.5, 0.6), share=0.2)
    found, blind = tried(held).right, tried([replace(one, differs=True) for one in held]).right
    assert found is not None
    assert blind is not None
    assert found.high - found.low < 0.6 * (blind.high - blind.low)


def test_figures_and_counts_of_the_arms() -> None:
    held = [
        sample(1, CANARY, RIGHT, dollars=2.0),
        sample(2, CANARY, None, basis=None, dollars=None),
        sample(3, CANARY, WRONG, basis=GradeBasis.JUDGE, failed=True, dollars=4.0),
        sample(4, LIVE, 0.5, basis=GradeBasis.PERSON),
    ]
    found = tried(held)
    assert (found.canary.runs, found.canary.tasks, found.live.tasks) == (3, 3, 1)
    assert found.canary.graded == {GradeBasis.EXECUTED: 1, GradeBasis.PERSON: 0, GradeBasis.JUDGE: 1}
    assert found.canary.right is not None
    assert found.canary.dollars is not None
    assert (found.canary.right.mean, found.canary.right.tasks, found.canary.dollars.mean) == (1.0, 1, 3.0)
    assert set(found.by_basis) == set()  # nobody graded both in the same way


def test_a_task_counts_once_however_often_it_was_run() -> None:
    often = [sample(1, CANARY, RIGHT) for _ in range(50)] + [sample(2, CANARY, WRONG)]
    found = tried([*often, sample(3, LIVE, RIGHT)])
    assert found.canary.right is not None
    assert (found.canary.right.mean, found.canary.right.tasks, found.canary.runs) == (0.5, 2, 51)


def test_grades_are_told_apart_by_whose_word_they_are() -> None:
    held = [
        sample(number, version, score, basis=basis)
        for basis, gain in ((GradeBasis.EXECUTED, RIGHT), (GradeBasis.JUDGE, WRONG))
        for version, score in ((CANARY, gain), (LIVE, 1 - gain))
        for number in range(20 if basis is GradeBasis.JUDGE else 40)
    ]
    held = [replace(one, task=f"{one.task}{one.basis}") for one in held]
    strict, trusting = tried(held), tried(held, trusted_bases(trust_judge=True))
    assert [round(strict.by_basis[basis].mean) for basis in (GradeBasis.EXECUTED, GradeBasis.JUDGE)] == [1, -1]
    assert strict.right == strict.by_basis[GradeBasis.EXECUTED]
    assert trusting.right is not None
    assert trusting.right.mean == pytest.approx(1 / 3)


def many(count: int, canary: Mapping[float, int], live: Mapping[float, int], **more: object) -> list[TrialRun]:
    """`count` tasks of each on which they part: scores with their shares in tenths."""
    found = []
    for version, scores in ((CANARY, canary), (LIVE, live)):
        tenths = [score for score, share in scores.items() for _ in range(share)]
        extra = more if version == CANARY else {}
        found += [sample(number, version, tenths[number % 10], **extra) for number in range(count)]
    return found


SAME = {RIGHT: 8, WRONG: 2}


@pytest.mark.parametrize(
    ("held", "why", "missing"),
    [
        (
            many(20, {RIGHT: 10}, SAME),
            "20 tasks of the canary were graded by checks or people: at least 50 are needed",
            140,
        ),
        (many(200, {RIGHT: 3, WRONG: 7}, SAME), "it is right less often, by 50.0% (41.", None),
        (many(60, SAME, SAME), "it may be right less often, by up to 14.3%", 3000),
        (
            many(2000, SAME, SAME, dollars=1.5),
            "it is more expensive, by 50.0% (49.7% to 50.3%): 10.0% is allowed",
            None,
        ),
        (many(2000, {RIGHT: 10}, SAME, failed=True), "it is without an answer more often, by 100.0%", None),
    ],
)
def test_a_canary_is_not_promoted_while_harm_is_not_excluded(
    held: Sequence[TrialRun], why: str, missing: int | None
) -> None:
    found = decide_promotion(tried(held))
    assert not found.promote
    assert any(reason.startswith(why) for reason in found.reasons), found.reasons
    if missing is None:
        assert found.missing is None
    else:
        assert found.missing is not None
        assert missing <= found.missing < 2 * missing


@pytest.mark.parametrize(
    "held",
    [
        many(200, {RIGHT: 10}, SAME),
        many(4000, SAME, SAME),
        many(200, {RIGHT: 10}, SAME, dollars=0.5),
        many(200, {RIGHT: 10}, SAME, dollars=None),
        drawn(3, 3000, (0.5, 0.6), share=0.1, canary=0.3),
    ],
)
def test_a_canary_is_promoted_where_harm_is_excluded(held: Sequence[TrialRun]) -> None:
    assert decide_promotion(tried(held)).promote


@pytest.mark.parametrize("canary", [{RIGHT: 9, WRONG: 1}, SAME])
def test_the_missing_tasks_are_about_as_many_as_it_then_takes(canary: Mapping[float, int]) -> None:
    def seen(count: int) -> PromotionVerdict:
        return decide_promotion(tried(many(count, canary, SAME)))

    missing = seen(100).missing
    assert missing
    assert seen(100 + missing * 13 // 100 * 10).promote
    assert not seen(100 + missing * 5 // 100 * 10).promote


def test_a_language_models_word_alone_promotes_nobody_unless_one_is_told_to_trust_it() -> None:
    held = many(400, {RIGHT: 10}, SAME)
    judged = [replace(one, basis=GradeBasis.JUDGE) for one in held]
    found = decide_promotion(tried(judged))
    assert not found.promote
    assert found.reasons[0] == (
        "0 tasks of the canary were graded by checks or people: at least 50 are needed; 400 more were graded by a "
        "language model alone, which does not count"
    )
    assert decide_promotion(tried(judged, trusted_bases(trust_judge=True))).promote


def test_wider_margins_promote_earlier() -> None:
    held = many(100, SAME, SAME, dollars=1.2)
    assert not decide_promotion(tried(held)).promote
    assert decide_promotion(tried(held), PromotionLimits(margin=0.15, dearer=0.25, least=100)).promote


def test_a_canary_that_does_the_same_everywhere_is_harmless_once_enough_tasks_have_shown_it() -> None:
    def same(count: int) -> CanaryTrial:
        return tried([replace(one, differs=False) for one in many(count, SAME, SAME)])

    assert [decide_promotion(same(count)).promote for count in (50, 100)] == [False, True]
    found = same(100).right
    assert found is not None
    assert found.mean == 0
    assert found.high == pytest.approx(0.0188, abs=1e-3)


def test_without_runs_there_is_nothing_to_tell() -> None:
    found = tried([])
    assert (found.right, found.dollars, found.live.right, found.differing.high) == (None, None, None, 1.0)
    assert decide_promotion(found).missing == 50


# From here on: runs that the engine performed.


async def performed(folder: Path, task: Task, said: Mapping[str, str], score: float | None = None) -> Run:
    """A run by the shelf; ann costs $1, bob $2, cyd $4. The answer has this score."""
    prices = {"ann": 1.0, "bob": 2.0, "cyd": 4.0}
    pool = pool_of(**{name: Reply(said.get(name, name), dollars=dollars) for name, dollars in prices.items()})
    recorder = MemoryRecorder()
    run = await engine(recorder).run(task, pool, registry_conductor(str(folder)))
    told = await recorder.read(run.id)
    if score is None:
        return run
    return Run.fold([*told, *grades(run.id, grade_from_score("choice", score, None, ""), Reward({"correct": score}))])


def tasks_of(shelf: PolicyRegistry, version: str, count: int) -> list[Task]:
    """Tasks for which this version is drawn."""
    tasks = (Task(f"Question {number}?\nA. this\nB. that") for number in range(10_000))
    return [task for task in tasks if shelf.assign(task.content_hash) == version][:count]


async def test_runs_are_samples_of_who_acted_and_say_where_the_two_part(tmp_path: Path) -> None:
    live, canary = shelf_of(tmp_path / "s", asking("ann"), asking("ann", "bob"))
    shelf = update_registry(tmp_path / "s", lambda shelf: shelf.with_canary(canary, 0.4, ME))
    ours, theirs = (tasks_of(shelf, version, 2) for version in (canary, live))
    runs = [await performed(tmp_path / "s", task, {}, RIGHT) for task in (*ours, *theirs)]
    found = trial_runs(runs, live, canary)
    assert [(one.version, one.differs, one.score, one.basis, one.dollars) for one in found] == [
        *[(canary, True, 1.0, GradeBasis.EXECUTED, 3.0)] * 2,
        *[(live, True, 1.0, GradeBasis.EXECUTED, 1.0)] * 2,
    ]
    assert [one.task for one in found] == [task.content_hash for task in (*ours, *theirs)]
    assert trial_runs(runs, live, canary, since=runs[2].started.at) == found[2:]
    assert trial_runs(runs, live, "f" * 12) == []


async def test_a_task_on_which_the_two_do_the_same_is_no_difference(tmp_path: Path) -> None:
    live, canary = shelf_of(tmp_path / "s", asking("ann", "bob"), asking("ann", "bob"), asking("cyd", note="x"))[:2]
    assert live == canary
    twin = shelf_of(tmp_path / "s", asking("ann", "bob", note="another file, the same acts"))[0]
    update_registry(tmp_path / "s", lambda shelf: shelf.with_canary(twin, 0.5, ME))
    found = trial_runs([await performed(tmp_path / "s", Task("Which?"), {})], live, twin)
    assert [(one.differs, one.score, one.basis) for one in found] == [(False, None, None)]


async def test_a_run_that_the_canary_could_not_have_begun_is_no_part_of_the_trial(tmp_path: Path) -> None:
    live, canary = shelf_of(tmp_path / "s", asking("ann"), asking("bob"))
    update_registry(tmp_path / "s", lambda shelf: shelf.with_canary(canary, 0.5, ME))
    (tmp_path / "s" / f"{canary}.policy").unlink()
    assert trial_runs([await performed(tmp_path / "s", Task("Which?"), {})], live, canary) == []


@pytest.mark.parametrize(
    ("shadow", "score", "expected"),
    [
        (("ann", "bob"), RIGHT, (True, 1.0)),  # the very same
        (("ann",), RIGHT, (False, None)),  # it stops earlier
        (("cyd",), RIGHT, (False, None)),  # it asks somebody who was not asked
        (("ann", "bob", "cyd"), None, (False, None)),
    ],
)
async def test_what_is_known_of_a_shadow_from_one_run(
    tmp_path: Path, shadow: Sequence[str], score: float | None, expected: tuple[bool, float | None]
) -> None:
    live, other = shelf_of(tmp_path / "s", asking("ann", "bob"), asking(*shadow, note="shadow"))
    update_registry(tmp_path / "s", lambda shelf: shelf.with_shadow(other, ME))
    run = await performed(tmp_path / "s", Task("Which?\nA. this\nB. that"), {}, score)
    (found,) = shadowed_runs([run], live, other)
    assert ((found.same, found.score), found.live) == (expected, score)
    assert shadowed_runs([run], other, live) == []


async def test_what_nobody_knows_of_a_shadow_is_bounded_by_the_worst_and_the_best(tmp_path: Path) -> None:
    live, alike, asks = shelf_of(tmp_path / "s", asking("ann", "bob"), asking("ann", "bob", note="x"), asking("cyd"))
    update_registry(tmp_path / "s", lambda shelf: shelf.with_shadow(alike, ME).with_shadow(asks, ME))
    tasks = [Task(f"Question {number}?\nA. this\nB. that") for number in range(20)]
    runs = [await performed(tmp_path / "s", task, {"ann": "B", "bob": "B"}, RIGHT) for task in tasks]
    known, unknown = (evaluate_shadow(shadowed_runs(runs, live, version), version) for version in (alike, asks))
    assert known.runs == 20
    assert (known.low, known.high) == pytest.approx((-0.126, 0.126), abs=1e-3)  # all alike, but only twenty
    assert known.same is not None
    assert known.known is not None
    assert (known.same.mean, known.known.mean) == (1.0, 1.0)
    assert unknown.low == -1.0
    assert unknown.high == pytest.approx(0.126, abs=1e-3)
