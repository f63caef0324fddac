"""Trees that read candidate answers: what they see, that numpy walks them as they were fitted, and what they bring."""

from dataclasses import replace

import numpy as np
import pytest
from panels import CHOICES, Made, folds, panel

from shikisha.core.errors import ConfigError
from shikisha.routing.answer_evidence import (
    NEVER_MENTIONED,
    NUM_LOOKS,
    AnswerEvidence,
    TaskEvidence,
    read_candidates,
    stack_evidence,
)
from shikisha.routing.arrays import Floats
from shikisha.routing.boosted_scorer import LOGIT_COLUMN, NUM_CANDIDATE_FEATURES, boosted_posterior, candidate_features
from shikisha.routing.fit.fit_stopping_rule import (
    BoostingConfig,
    FittedStopping,
    StoppingConfig,
    StoppingData,
    fit_stopping,
    fit_trees,
    trees_as_arrays,
    trees_gain,
)
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Candidate
from shikisha.routing.policy_file import parse_policy, serialize_policy
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.trade_off import OperatingPoint, TradeOff

PROMPT = "Which of these is a fruit?\nA. an apple\nB. a stone of 12 kg\nC. none of the above"
TWO = {"one": Made(0.6, 0.1), "two": Made(0.6, 0.2)}
SMALL = BoostingConfig(trees=30, rate=0.2, smallest_leaf=10)
CONFIG = StoppingConfig(prices=np.geomspace(0.01, 4.0, 6), boosting=SMALL)


def written(held: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with texts: a right answer's names its option, a wrong one's names another."""
    tasks: list[TaskEvidence] = []
    for prompt, codes, scores in zip(held.batch.prompts, held.codes.tolist(), held.scores.tolist(), strict=True):
        words = [line[3:] for line in prompt.split("\n")[1:]]
        answers = [CHOICES[code] if code >= 0 else None for code in codes]
        named = [words[code if score else code - 1] for code, score in zip(codes, scores, strict=True)]
        tasks.append(read_candidates(prompt, answers, [f"After much thought {name} it must be." for name in named]))
    return replace(held, evidence=stack_evidence(tasks))


HELD, FRESH = written(panel(TWO, tasks=400)), written(panel(TWO, tasks=400, seed=1))


@pytest.fixture(scope="module")
def reading() -> FittedStopping:
    return fit_stopping(StoppingData.of(HELD, folds(HELD), CONFIG).boosted((0, 1)), (0, 1))


def evidence_of(answers: list[str | None], texts: list[str | None]) -> AnswerEvidence:
    return stack_evidence([read_candidates(PROMPT, answers, texts)])


def test_a_text_mentions_its_option_by_word_and_by_letter() -> None:
    text = "**An apple** is not a stone, so an apple it is: (A), surely (A).\n\n<answer>A</answer>"
    found = evidence_of(["A", "B", None], [text, "B", None])
    times, last, letters = found.mentions[0, 0, 0].tolist()
    assert (times, letters) == (2.0, 2.0)
    assert 0 < last < 1
    assert found.mentions[0, 0, 1].tolist() == [0.0, NEVER_MENTIONED, 0.0]
    assert (found.written[0] > 0).tolist() == [True, False, False]  # a bare answer is no text


def test_looks_compare_an_option_with_the_others() -> None:
    looks = evidence_of(["A", "B", "C"], [None, None, None]).looks[0]
    assert looks.shape == (3, NUM_LOOKS)
    assert looks[:, 0].tolist() == [0, 1, 2]
    assert looks[:, 6].tolist() == [0, 1, 0]  # the one with a number
    assert looks[:, 18].tolist() == [0, 0, 1]  # "none of"


@pytest.mark.parametrize("answer", ["1.2.3", "", "\ud800", "9" * 100_000, "A" * 50, "-", "1,,2", "(((("])
@pytest.mark.parametrize("prompt", [PROMPT, "", "\nA. " * 5000, "x" * 200_000])
def test_any_text_gives_finite_numbers(answer: str, prompt: str) -> None:
    found = stack_evidence([read_candidates(prompt, [answer, "A"], [answer * 3, prompt])])
    assert all(np.isfinite(array).all() for array in (found.looks, found.mentions, found.written))


def test_numpy_walks_the_trees_as_they_were_fitted() -> None:
    features = np.random.default_rng(0).normal(size=(5000, NUM_CANDIDATE_FEATURES))
    fitted = fit_trees(features, features[:, 3] + features[:, 7] ** 2 > 1, SMALL)
    assert trees_as_arrays(fitted).log_odds(features) == pytest.approx(fitted.decision_function(features), abs=1e-9)


def test_texts_that_tell_right_from_wrong_make_a_better_policy(reading: FittedStopping) -> None:
    plain = fit_stopping(StoppingData.of(HELD, folds(HELD), CONFIG), (0, 1))
    assert reading.won.mean() > plain.won.mean() + 0.02
    outcomes = [np.mean([replay(one.part, setting, FRESH).won for setting in range(6)]) for one in (reading, plain)]
    assert outcomes[0] > outcomes[1] + 0.02


def test_what_is_thought_depends_neither_on_other_tasks_nor_on_the_numbering(reading: FittedStopping) -> None:
    state = FRESH.state_after(np.ones(FRESH.codes.shape, bool))
    answers = reading.part.belief(state, (0, 1)).answers
    assert (answers.sum(axis=1) <= 1 + 1e-9).all()
    for row in range(5):
        alone = reading.part.belief(state.at(np.array([row])), (0, 1)).answers
        assert alone[0] == pytest.approx(answers[row, : alone.shape[1]])
    two = np.flatnonzero(FRESH.codes[:, 1] == 1)
    evidence = state.evidence
    assert evidence is not None
    turned = AnswerEvidence(evidence.looks[two][:, [1, 0]], evidence.mentions[two][:, :, [1, 0]], evidence.written[two])
    swapped = replace(state.at(two), codes=1 - state.codes[two], evidence=turned)
    assert reading.part.belief(swapped, (0, 1)).answers[:, ::-1] == pytest.approx(answers[two, :2])


def test_a_worker_that_was_not_asked_adds_nothing(reading: FittedStopping) -> None:
    asked = np.tile([True, False], (len(FRESH), 1))
    one = reading.part.belief(FRESH.state_after(asked), (0,)).answers[:, 0]
    hidden = replace(FRESH, evidence=FRESH.evidence and FRESH.evidence.without_texts(~asked))
    other = reading.part.belief(hidden.state_after(asked), (0,)).answers[:, 0]
    assert one == pytest.approx(other)


def test_states_that_asked_different_workers_are_read_at_once_as_one_by_one() -> None:
    data, tasks = StoppingData.of(HELD, folds(HELD), CONFIG), np.arange(len(HELD))
    asked = np.stack([tasks % 2 == 0, tasks % 3 == 0], axis=1) | (tasks % 6 == 1)[:, None]
    mixed = HELD.state_after(asked)
    (own, codes), features = candidate_features(mixed, (0, 1), data.posterior_of(mixed, tasks, (0, 1)))
    for workers in ((0,), (1,), (0, 1)):
        alike = np.flatnonzero((asked == np.isin([0, 1], workers)).all(axis=1))
        cells, expected = candidate_features(data.complete, workers, data.posterior(workers))
        rows, kept = np.isin(own, alike), np.isin(cells[0], alike)
        assert (codes[rows] == cells[1][kept]).all()
        assert features[rows] == pytest.approx(expected[kept])


def test_candidates_share_what_is_more_than_certain() -> None:
    posterior = (np.array([[0.5, 0.5], [0.0, 0.0]]), np.array([0.0, 1.0]))
    answers, none = boosted_posterior(np.array([3.0, 3.0]), (np.array([0, 0]), np.array([0, 1])), posterior)
    assert answers.tolist() == [[0.5, 0.5], [0, 0]]
    assert none.tolist() == [0.0, 1.0]


@pytest.fixture(scope="module")
def policy_bytes(reading: FittedStopping) -> bytes:
    dial = TradeOff((OperatingPoint(0, 0, 0.1, 0.6),), 1.0, 0.6)
    few = select_policy(panel(TWO, tasks=50)).policy
    policy = replace(few, parts=(reading.part,), rungs=(Candidate("policy", dial),), kept="policy")
    assert policy.reads_answers
    return serialize_policy(policy)


def test_trees_survive_the_policy_file(policy_bytes: bytes) -> None:
    policy = parse_policy(policy_bytes, "here")
    assert policy.reads_answers
    assert serialize_policy(policy) == policy_bytes


@pytest.mark.parametrize(
    ("array", "value", "says"),
    [
        ("left", -1.0, "a child is from its parent's place"),
        ("right", 1e6, "a child is from its parent's place"),
        ("feature", 999.0, "a column is from 0 to 47"),
    ],
)
def test_trees_that_would_never_end_or_read_elsewhere_are_refused(
    policy_bytes: bytes, array: str, value: float, says: str
) -> None:
    policy = parse_policy(policy_bytes, "here")
    (part,) = policy.parts
    assert isinstance(part, StoppingRule)
    assert part.boost is not None
    wrong: Floats = getattr(part.boost, array).copy()
    wrong[0, 0] = value
    broken = replace(part, boost=replace(part.boost, **{array: wrong}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=says):
        parse_policy(serialize_policy(replace(policy, parts=(broken,))), "here")


@pytest.mark.parametrize(("errors", "pays"), [(-3.0, False), (0.0, False), (1.5, False), (3.0, True)])
def test_trees_are_kept_only_where_they_predict_held_out_answers_better(errors: float, pays: bool) -> None:
    """`errors` is how many standard errors the mean gain of 400 tasks, of three states each, lies above 0."""
    draws = np.random.default_rng(5).normal(size=400)
    gains = (draws - draws.mean()) / draws.std() * 0.05
    losses = np.repeat(0.6 - gains - errors * gains.std() / np.sqrt(400), 3)
    labels, tasks = np.ones(1200, bool), np.repeat(np.arange(400), 3)
    features = np.zeros((1200, NUM_CANDIDATE_FEATURES))
    features[:, LOGIT_COLUMN] = -np.log(np.expm1(0.6))
    assert trees_gain(-np.log(np.expm1(losses)), features, labels, tasks) is pays


def test_the_conditional_logit_stands_where_trees_are_compared_with_it() -> None:
    data, everybody = StoppingData.of(HELD, folds(HELD), CONFIG), (0, 1)
    posterior = data.posterior(everybody)
    cells, features = candidate_features(data.complete, everybody, posterior)
    chance = np.clip(posterior[0][cells], 1e-4, 1 - 1e-4)
    assert features[:, LOGIT_COLUMN] == pytest.approx(np.log(chance / (1 - chance)))
