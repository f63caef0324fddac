"""Step values: what grades of whole runs teach of single steps, read back from a file, and shown to gain or not."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from shikisha.config.learned_parts import load_note_source
from shikisha.core.errors import ConfigError
from shikisha.core.task import OPERATOR
from shikisha.learned.fit_step_value import answer_states, fit_step_value, run_chance
from shikisha.learned.learned_file import LearnedFile, write_learned
from shikisha.learned.step_encoder import fit_encoder
from shikisha.learned.step_samples import DRAWN, STANDS_BY, RunSample, StepAnswer, StepUnit, step_text
from shikisha.learned.step_value import StepValue, check_chance, load_step_value
from shikisha.learned.step_value_gain import evaluate_step_value, worth_gained
from shikisha.learned.value_notes import ValueNotes

SUMS = ("Add {} and {}.", "What is {} plus {}?", "Sum {} with {}, please.")
DATES = (
    "Which weekday is 2024-0{0}-1{1}?",
    "Name the day of the week of 2023-0{0}-2{1}.",
    "2022-0{0}-0{1} was what day?",
)
SKILL = {"ann": (0.9, 0.1), "bob": (0.1, 0.9), "eve": (0.5, 0.5)}


def subtask(kind: int, rng: random.Random) -> str:
    return rng.choice((SUMS, DATES)[kind]).format(rng.randint(1, 9), rng.randint(1, 9))


def made_runs(count: int, seed: int = 0, arm: str = "") -> list[RunSample]:
    """Runs of one to three steps by random workers, graded as a whole."""
    rng, runs = random.Random(seed), []
    for number in range(count):
        units, right = [], 1.0
        for _ in range(rng.randint(1, 3)):
            kind, worker = rng.randrange(2), rng.choice(list(SKILL))
            good = rng.random() < SKILL[worker][kind]
            right *= good
            answer = StepAnswer(worker, "right" if good else f"wrong {rng.random()}", 0.001, 0.1, False)
            units.append(StepUnit(subtask(kind, rng), (answer,), 0))
        runs.append(
            RunSample(
                f"run-{number}",
                f"task {seed} {number}",
                tuple(units),
                right,
                0.001,
                OPERATOR,
                conductor="random",
                arm=arm,
            )
        )
    return runs


RUNS = made_runs(400)


@cache
def fitted() -> StepValue:
    """What these runs teach; fitting takes seconds."""
    return fit_step_value(RUNS)


def test_grades_of_whole_runs_tell_who_does_which_step() -> None:
    model = fitted()
    chances = model.chances(["Add 14 and 3.", "Which weekday is 2021-05-05?"], ["ann", "bob", "eve"])
    assert chances[0, 0] > 0.7 > 0.35 > chances[0, 1]
    assert chances[1, 1] > 0.7 > 0.35 > chances[1, 0]
    assert 0.3 < model.chances([text.format(3, 4) for text in SUMS + DATES], ["eve"]).mean() < 0.7


def test_an_unknown_worker_has_the_common_chance_and_the_largest_variance() -> None:
    model = fitted()
    means, spread = model.logits(["Add 14 and 3."], ["ann", "new"])
    assert spread[0, 1] > spread[0, 0]
    assert 0 < 1 / (1 + np.exp(-means[0, 1])) < 1
    assert model.price("new") is None


def test_without_runs_every_worker_is_the_same() -> None:
    model = fit_step_value([])
    chances = model.chances(["Add 1 and 2.", ""], ["a", "b"])
    assert (chances == chances[0, 0]).all()


def test_a_model_is_a_function_of_its_runs_and_is_read_back(tmp_path: Path) -> None:
    model = fitted()
    learned = model.to_file(["run-1"], None, 0.0)
    assert learned.version == fit_step_value(RUNS).to_file(["run-1"], None, 5.0).version
    write_learned(tmp_path / "a.json", learned)
    assert isinstance(load_note_source(tmp_path / "a.json", None), ValueNotes)  # [notes] file takes them too
    found = load_step_value(tmp_path / "a.json")
    names, texts = ["ann", "bob", "new"], ["Add 14 and 3.", "Which weekday is 2021-05-05?"]
    assert found.chances(texts, names) == pytest.approx(model.chances(texts, names), abs=1e-4)
    assert found.version == learned.short_version


@pytest.mark.parametrize("key", ["weights", "workers", "buckets", "check_gain", "dollars", "centres"])
def test_a_model_whose_parts_do_not_fit_is_refused(tmp_path: Path, key: str) -> None:
    learned = fit_step_value(RUNS[:30]).to_file((), None, 0.0)
    broken = LearnedFile(learned.kind, {**learned.content, key: ["x", "x"]}, (), OPERATOR)
    write_learned(tmp_path / "a.json", broken)
    with pytest.raises(ConfigError, match="no step values"):
        load_step_value(tmp_path / "a.json")


def test_two_workers_that_agree_teach_without_a_grade() -> None:
    rng, runs = random.Random(3), []
    for number in range(400):
        answers = []
        for worker in rng.sample(list(SKILL), 2):
            good = rng.random() < SKILL[worker][0]
            answers.append(StepAnswer(worker, "42" if good else f"{rng.random()}", 0.001, 0.1, False))
        unit = StepUnit(subtask(0, rng), tuple(answers), 0)
        runs.append(RunSample(f"run-{number}", str(number), (unit,), None, 0.001, OPERATOR))
    chances = fit_step_value(runs).chances(["Add 14 and 3."], ["ann", "eve", "bob"])[0]
    assert chances[0] > chances[2] + 0.1


def test_a_check_counts_for_nothing_until_checked_runs_are_more_often_right() -> None:
    assert fitted().check_gain == 0.0
    rng, runs = random.Random(4), list(RUNS)
    for number in range(300):
        first = rng.random() < SKILL["eve"][0]
        mended = first or rng.random() < 0.9 * SKILL["ann"][0]
        said = "right" if first else "wrong"
        answers = (
            StepAnswer("eve", said, 0.001, 0.1, False),
            StepAnswer("ann", "right" if mended else said, 0.0005, 0.1, False),
        )
        unit = StepUnit(subtask(0, rng), answers, 1, checks=True)
        runs.append(RunSample(f"check-{number}", f"check {number}", (unit,), float(mended), 0.0015, OPERATOR))
    model = fit_step_value(runs)
    assert model.check_gain >= 0.5
    assert check_chance(0.5, 0.9, model.check_gain) > 0.7
    assert run_chance(model, runs[-1]) > 0.6


def test_how_often_a_check_is_wrong_is_learned() -> None:
    def runs(catch: float, alarm: float) -> list[RunSample]:
        rng, found = random.Random(7), list[RunSample]()
        for number in range(500):
            worker = rng.choice(list(SKILL))
            good = rng.random() < SKILL[worker][0]
            failed = rng.random() < (alarm if good else catch)
            answer = StepAnswer(worker, f"{rng.random()}", 0.001, 0.1, False, failed)
            unit = StepUnit(subtask(0, rng), (answer,), 0)
            right = float(good) if rng.random() < 0.5 else None
            found.append(RunSample(f"run-{number}", str(number), (unit,), right, 0.001, OPERATOR))
        return found

    sound, blind = fit_step_value(runs(0.95, 0.02)), fit_step_value(runs(0.3, 0.3))
    assert sound.verdicts[0] < 0.1
    assert sound.verdicts[1] > 0.8
    assert abs(blind.verdicts[0] - blind.verdicts[1]) < 0.2
    refused = (StepAnswer("ann", "x", 0.001, 0.1, False, failed=True),)
    assert answer_states(refused, [0.9], sound.verdicts)["x"] < 0.4
    assert answer_states(refused, [0.9], blind.verdicts)["x"] > 0.7


def test_phrases_that_help_a_worker_are_told_apart() -> None:
    rng, runs = random.Random(5), []
    for number in range(600):
        phrase = rng.random() < 0.5
        good = rng.random() < (0.9 if phrase else 0.4)
        text = subtask(0, rng) + (" Go over your result twice." if phrase else "")
        unit = StepUnit(text, (StepAnswer("ann", "x", 0.001, 0.1, False),), 0)
        runs.append(RunSample(f"run-{number}", str(number), (unit,), float(good), 0.001, OPERATOR))
    model = fit_step_value(runs)
    helps = model.phrase_weights(["ann"])[0]
    assert helps[2] > 0.6
    assert abs(helps[0]) < 0.3


def test_values_that_help_are_shown_to_gain_and_noise_is_not() -> None:
    evidence = evaluate_step_value(RUNS[:240], 0.05)
    assert evidence.is_shown
    assert evidence.in_force[0][0] == "random"
    rng = random.Random(9)
    noise = [
        RunSample(run.run, run.task, run.units, float(rng.random() < 0.4), run.dollars, OPERATOR, conductor="random")
        for run in RUNS[:150]
    ]
    assert not evaluate_step_value(noise, 0.05).is_shown
    assert evaluate_step_value(RUNS[:20], 0.05).predictive is None


@pytest.mark.slow
def test_a_trial_goes_before_an_estimate() -> None:
    acts = [
        RunSample(f"a{at}", f"a{at}", RUNS[at].units, float(at % 10 < 2), 0.001, OPERATOR, arm="acts")
        for at in range(100)
    ]
    stood = [
        RunSample(f"b{at}", f"b{at}", RUNS[at].units, float(at % 10 < 7), 0.001, OPERATOR, arm=STANDS_BY)
        for at in range(100)
    ]
    evidence = evaluate_step_value([*RUNS, *acts, *stood], 0.05)
    assert evidence.trial is not None
    assert evidence.trial.high < 0
    assert not evidence.is_shown


def test_texts_of_all_kinds_are_encoded_in_bounded_time() -> None:
    encoder = fit_encoder([unit.subtask for run in RUNS[:50] for unit in run.units])
    texts = ["", " ", "\x00", "é" * 100_000, "a" * 1_000_000, "🙂 " * 50_000, "1" * 100_000]
    began = process_time()
    found = encoder.encode(texts)
    assert process_time() - began < 5
    assert found.shape == (len(texts), encoder.size)
    assert np.isfinite(found).all()
    assert (encoder.encode(["Add 1 and 2."]) == encoder.encode(["Add 3 and 7."])).all()  # digits are alike


def test_a_step_that_says_only_to_answer_asks_the_task() -> None:
    assert step_text("Answer the question.", "What is 2 + 2?") == "What is 2 + 2?"
    assert step_text("Add 2 and 2.", "What is 2 + 2?") == "Add 2 and 2."


def test_drawn_runs_correct_values_that_are_wrong() -> None:
    rng, runs = random.Random(11), []
    for number in range(500):
        worker = rng.choice(list(SKILL))
        good = rng.random() < SKILL[worker][0]
        answer = StepAnswer(worker, "x", 0.0, 0.1, False, propensity=1 / 3)
        unit = StepUnit(subtask(0, rng), (answer,), 0)
        runs.append(RunSample(f"run-{number}", str(number), (unit,), float(good), 0.0, OPERATOR, arm=DRAWN))
    noise = [replace(run, right=float(rng.random() < 0.5)) for run in runs[:200]]
    knows, ignorant = fit_step_value(runs[:200]), fit_step_value(noise)
    gains = [worth_gained(knows, ignorant, run, 1.0) for run in runs[200:]]
    plain = [worth_gained(knows, ignorant, replace(run, arm=""), 1.0) for run in runs[200:]]
    assert np.mean(gains) == pytest.approx(0.4, abs=0.12)  # ann is right in .9, a drawn worker in .5
    assert abs(np.mean(plain) - 0.4) > 0.15


@pytest.mark.parametrize(("probe", "message"), [("1 2 3", "other features or constants"), (None, "earlier version")])
def test_values_that_go_with_other_code_are_refused(probe: str | None, message: str, tmp_path: Path) -> None:
    learned = fit_step_value(RUNS[:30]).to_file((), None, 0.0)
    write_learned(tmp_path / "a.json", replace(learned, content={**learned.content, "probe": probe}))
    with pytest.raises(ConfigError, match=message):
        load_step_value(tmp_path / "a.json")
