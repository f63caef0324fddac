"""Finding task types: made-up topics are found again, named by their words, and taken only where they help."""

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from panels import Made, folds, panel, untyped

from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.task_clusters import assign_types, cluster_prompts, find_task_types
from shikisha.routing.state import UNKNOWN_TYPE, TaskBatch, TaskTypes
from shikisha.routing.text_features import PROMPT_BUCKETS

TOPICS = ("maths", "law", "music", "food")
SPECIALISTS = {"one": Made((0.9, 0.3, 0.9, 0.3), 0.1), "two": Made((0.3, 0.9, 0.3, 0.9))}
LIKE = {"one": Made(0.6), "two": Made(0.6)}


def prompts(*texts: str) -> OutcomeMatrix:
    """A panel without domains whose tasks have these prompts."""
    held = untyped(panel(tasks=len(texts)))
    return replace(held, batch=TaskBatch(texts, held.batch.types))


def test_topics_are_found_again_and_named_by_their_words() -> None:
    held = panel(SPECIALISTS, tasks=400, kinds=TOPICS)
    found = find_task_types(untyped(held), folds(held))
    assert len(found.names) == 4
    pairs = set(zip(assign_types(untyped(held), found).batch.types.tolist(), held.batch.types.tolist(), strict=True))
    assert len(pairs) == 4  # each found type is one of the topics
    for place, kind in pairs:
        assert all(word.startswith(TOPICS[kind]) for word in found.names[place].split(", "))


def test_types_that_bring_nothing_are_not_taken() -> None:
    held = untyped(panel(LIKE, tasks=400, kinds=TOPICS))
    assert find_task_types(held, folds(held)) is held.types


@pytest.mark.parametrize("tasks", [3, 99])
def test_few_tasks_have_no_types(tasks: int) -> None:
    held = untyped(panel(SPECIALISTS, tasks=tasks, kinds=TOPICS))
    assert find_task_types(held, folds(held)) is held.types


@pytest.mark.parametrize(("names", "forms"), [((), ()), (("quiz",), (AnswerForm.NUMBER,))])
def test_found_types_compare_answers_as_the_logs_own_type_does(names: tuple[str, ...], forms: tuple[str, ...]) -> None:
    held = untyped(panel(SPECIALISTS, tasks=200, kinds=TOPICS))
    one = replace(held, types=TaskTypes(names, forms, AnswerForm.TEXT))
    found = cluster_prompts(one, 4)
    assert set(found.forms) == {forms[0] if forms else AnswerForm.TEXT}
    assert found.form == AnswerForm.TEXT


def test_centres_are_short_in_single_precision_and_of_length_1() -> None:
    centres = cluster_prompts(untyped(panel(tasks=300)), 2).centres
    assert centres.shape == (2, PROMPT_BUCKETS)
    assert np.linalg.norm(centres, axis=1) == pytest.approx([1.0, 1.0])
    assert (centres.astype(np.float32) == centres).all()
    assert ((centres > 0).sum(axis=1) <= 510).all()


def test_the_same_prompts_make_the_same_types_and_a_task_alone_is_of_the_type_it_had_among_others() -> None:
    held = untyped(panel(tasks=200, kinds=TOPICS))
    one, other = cluster_prompts(held, 4), cluster_prompts(held, 4)
    assert one.names == other.names
    assert (one.centres == other.centres).all()
    alone = [int(one.of([""], [prompt])[0]) for prompt in held.batch.prompts[:20]]
    assert alone == assign_types(held, one).batch.types[:20].tolist()


def test_a_panel_with_types_keeps_what_was_computed_of_its_prompts() -> None:
    held = untyped(panel(tasks=100))
    words, found = held.batch.words, cluster_prompts(held, 2)
    changed = assign_types(held, found)
    assert changed.batch.words is words
    assert changed.types is found
    assert (held.batch.types == UNKNOWN_TYPE).all()


@pytest.mark.parametrize("texts", [("the same words",) * 30, ("",) * 30, ("12 34", "56", "") * 10])
def test_prompts_that_cannot_be_told_apart_are_of_one_type(texts: tuple[str, ...]) -> None:
    found = cluster_prompts(prompts(*texts), 4)
    assert 1 <= len(found.names) <= 2
    assert len(set(found.names)) == len(found.names)
    assert np.isfinite(found.centres).all()


def test_words_that_most_prompts_share_decide_nothing() -> None:
    shared = "please answer the question with great care and tell nobody"
    texts = [f"{shared} {topic} of {topic}s" for topic in ("harp", "plum")] * 40
    found = cluster_prompts(prompts(*texts), 2)
    assert sorted(found.of([""] * 2, texts[:2]).tolist()) == [0, 1]
    assert {name.split(", ")[0] for name in found.names} == {"harp", "plum"}
    places = [found.centres[:, crc32(word.encode()) % PROMPT_BUCKETS] for word in shared.split()]
    assert np.max(places) == 0
