"""The router: whom prompts send where, what moves nothing, and that one prompt is decided alone as among others."""

from collections.abc import Mapping

import numpy as np
import pytest
from panels import Made, keeps_its_word, panel

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.router_rule import (
    ALL_TYPES,
    WORD_BUCKETS,
    FeatureScale,
    PromptVocabulary,
    RouterRule,
    SuccessMap,
    SuccessMaps,
    zero_maps,
)
from shikisha.routing.state import NO_ANSWER, NO_WORKER, NOT_ASKED, SHIP, DecisionState, TaskBatch
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import (
    NGRAM_BUCKETS,
    NUM_SHAPE_FEATURES,
    PROMPT_END_CHARACTERS,
    hash_ngrams,
    prompt_shapes,
    truncate_prompt,
)

POET, RECKONER = 0, 1
TYPES = 2
SILENT = {"poet": Made(0.6, silent=0.2), "reckoner": Made(0.5, silent=0.2)}
KNOWN = ("verse", "sum")


def fit_feature_scale(features: Floats) -> FeatureScale:
    """Return mean and spread of these features, as the files of earlier versions hold them."""
    spread = features.std(axis=0)
    return FeatureScale(features.mean(axis=0), np.where(spread > 0, 1 / np.maximum(spread, 1e-9), 0.0))


def table(*prices: float, workers: int = 2) -> TableRule:
    """The first worker is a little better and costs 1, the others nothing."""
    success, cost = np.full((TYPES + 1, workers), 0.5), np.zeros((TYPES + 1, workers))
    success[:, 0], cost[:, 0] = 0.6, 1.0
    held = prices or (0.0,)
    return TableRule(success, cost, np.zeros((len(held), workers)), np.array(held))


def lexicon() -> PromptVocabulary:
    places = np.sort(hash_ngrams([" ".join(KNOWN)]).places[: len(KNOWN)])
    return PromptVocabulary(places, np.ones(len(places)))


def maps(weights: Mapping[str, float], *own: SuccessMap, workers: int = 2) -> SuccessMaps:
    """Words move the last worker by so much."""
    known, moved = lexicon(), np.zeros((len(KNOWN), workers))
    for word, weight in weights.items():
        moved[np.searchsorted(known.places, hash_ngrams([word]).places[0]), -1] = weight
    return SuccessMaps(known, moved, own)


def shifted(kind: int, to_last: float, looks: Floats | None = None) -> SuccessMap:
    """A map that moves the last worker, whatever the prompt, if there are `looks` to be usual by also by its length."""
    scale = (
        FeatureScale(np.zeros(NUM_SHAPE_FEATURES), np.zeros(NUM_SHAPE_FEATURES))
        if looks is None
        else fit_feature_scale(looks)
    )
    lines = np.zeros((NUM_SHAPE_FEATURES, 2))
    lines[0, RECKONER] = looks is not None
    words = np.zeros((WORD_BUCKETS, 2))
    return SuccessMap(
        kind, scale, lines, np.zeros((2, NUM_SHAPE_FEATURES, NUM_SHAPE_FEATURES)), words, np.array([0.0, to_last])
    )


def state(*prompts: str, kind: int = 0, there: tuple[bool, ...] = (True, True)) -> DecisionState:
    """Prompts of which nobody has been asked."""
    shape = (len(prompts), len(there))
    codes = np.full(shape, NOT_ASKED)
    batch = TaskBatch(prompts, np.full(len(prompts), kind))
    return DecisionState(batch, codes, np.zeros_like(codes), np.full(shape, np.nan), np.array(there))


VERSE = RouterRule(table(), maps({"sum": 0.3}))


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [("a verse", POET), ("A SUM", RECKONER), ("what is the sum?", RECKONER), ("assume", POET), ("", POET)],
)
def test_words_say_who_is_asked(prompt: str, asked: int) -> None:
    assert VERSE.act(state(prompt), 0).ask.tolist() == [asked]


@pytest.mark.parametrize(("price", "asked"), [(0.0, POET), (0.05, POET), (0.2, RECKONER)])
def test_a_price_sends_elsewhere(price: float, asked: int) -> None:
    part = RouterRule(table(9.0, price), maps({}))
    assert part.settings == 2
    assert part.act(state("a verse"), 1).ask.tolist() == [asked]


@pytest.mark.parametrize(("kind", "asked"), [(0, POET), (1, RECKONER), (-1, POET)])
def test_a_type_has_a_map_of_its_own(kind: int, asked: int) -> None:
    assert RouterRule(table(), maps({}, shifted(1, 0.2))).act(state("a verse", kind=kind), 0).ask.tolist() == [asked]


@pytest.mark.parametrize("kind", [0, 1, -1])
def test_a_map_of_all_is_for_unknown_types_too(kind: int) -> None:
    assert RouterRule(table(), maps({}, shifted(ALL_TYPES, 0.2))).act(state("", kind=kind), 0).ask.tolist() == [
        RECKONER
    ]


@pytest.mark.parametrize(("there", "asked"), [((True, False), POET), ((False, True), RECKONER), ((False, False), SHIP)])
def test_nobody_is_asked_who_is_not_there(there: tuple[bool, bool], asked: int) -> None:
    acts = VERSE.act(state("a sum", there=there), 0)
    assert (acts.ask.tolist(), acts.ship.tolist()) == ([asked], [NO_WORKER])


def test_one_is_asked_once_and_its_answer_is_shipped() -> None:
    held = panel(SILENT, tasks=60)
    played = replay(RouterRule(table(), maps({"verse": 0.3})), 0, held)
    asked = played.asked.argmax(axis=1)
    silent = held.codes[np.arange(60), asked] == NO_ANSWER
    assert (played.asked.sum(axis=1) == 1).all()
    assert silent.any()
    assert (played.shipped == np.where(silent, NO_WORKER, asked)).all()


def test_it_keeps_what_every_part_promises() -> None:
    keeps_its_word(RouterRule(table(0.0, 0.2), maps({"sum": 0.3})), panel(SILENT, tasks=40))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_what_moves_nothing_does_what_the_rule_does(workers: int) -> None:
    rule, held = table(0.0, 0.2, workers=workers), panel({f"w{place}": Made() for place in range(workers)}, tasks=50)
    for part in (RouterRule(rule, zero_maps(workers)), RouterRule(rule, maps({}, workers=workers))):
        for setting in range(2):
            assert (replay(part, setting, held).shipped == replay(rule, setting, held).shipped).all()


def test_one_prompt_is_moved_alone_as_among_others() -> None:
    batch = panel(tasks=40).batch
    prompts = (*batch.prompts, "a sum", "verse after verse", "", "?" * 5000)
    every = TaskBatch(prompts, np.arange(len(prompts)) % 3 - 1)
    held = maps({"sum": 0.3, "verse": -0.1}, shifted(ALL_TYPES, 0.1, every.looks), shifted(1, -0.1, every.looks))
    moved = held.of(every)
    for row in range(len(prompts)):
        alone = TaskBatch(prompts[row : row + 1], every.types[row : row + 1])
        assert held.of(alone)[0] == pytest.approx(moved[row], abs=1e-12)
    assert len(np.unique(moved[:, RECKONER].round(6))) > 10


def test_a_part_of_a_batch_keeps_what_was_read() -> None:
    batch = TaskBatch(("a sum", "a verse", ""), np.zeros(3, np.int64))
    looks, read = batch.looks, batch.grams
    part = batch.at(np.array([1, 2]))
    assert {"looks", "grams"} <= set(part.__dict__)
    assert (part.looks == looks[1:]).all()
    assert part.grams.places.tolist() == read.at(np.array([1, 2])).places.tolist()


@pytest.mark.parametrize("held", [maps({"sum": 0.3}, shifted(ALL_TYPES, 0.1), shifted(1, 0.2)), maps({}), zero_maps(2)])
def test_a_router_is_read_as_it_was_written(held: SuccessMaps) -> None:
    part = RouterRule(table(0.0, 0.2), held)
    again = RouterRule.of({name: np.float32(array).astype(float) for name, array in part.to_arrays().items()})
    batch = TaskBatch(("a sum", "a verse", ""), np.array([0, 1, -1]))
    assert again.success(batch) == pytest.approx(part.success(batch), abs=1e-6)
    assert [one.kind for one in again.maps.maps] == [one.kind for one in held.maps]


def test_known_words_are_weighed_by_rarity_and_unknown_ones_left_out() -> None:
    known = PromptVocabulary(lexicon().places, np.array([2.0, 2.0]))
    read = known.read(hash_ngrams(["sum", "sum verse", "neither of them", ""]))
    assert np.diff(read.starts).tolist() == [1, 2, 0, 0]
    assert read.weights == pytest.approx([1.0, 0.5**0.5, 0.5**0.5])


def test_places_of_words_survive_single_precision() -> None:
    places = hash_ngrams([" ".join(panel(tasks=20).batch.prompts)]).places
    assert places.max() < NGRAM_BUCKETS
    assert (places.astype(np.float32).astype(np.int64) == places).all()


@pytest.mark.parametrize("prompt", ["", "?", "word", "a\nA. one\nB. two\nC) three", "x" * 9000, "\x00\ud800", "٣ 四"])
def test_every_prompt_has_a_shape(prompt: str) -> None:
    found = prompt_shapes([prompt, "another"])
    assert found.shape == (2, NUM_SHAPE_FEATURES)
    assert np.isfinite(found).all()
    assert np.isfinite(VERSE.success(TaskBatch((prompt,), np.zeros(1, np.int64)))).all()


def test_a_long_prompt_is_read_at_its_ends() -> None:
    ends = "begin " * PROMPT_END_CHARACTERS, "the end? " * PROMPT_END_CHARACTERS
    short, long = f"{ends[0]}{ends[1]}", f"{ends[0]}{'middle = 3. ' * 1000}{ends[1]}"
    assert truncate_prompt(short) == truncate_prompt(long)
    assert (prompt_shapes([short])[0] != prompt_shapes([long])[0]).nonzero()[0].tolist() == [0]  # the length of it all


def test_looks_that_are_far_off_move_no_further() -> None:
    looks = prompt_shapes([f"{'word ' * number}" for number in range(1, 40)])
    scale = fit_feature_scale(looks)
    near, far = looks.max(axis=0) * 10, looks.max(axis=0) * 1000
    assert (scale.of(near[None]) == scale.of(far[None])).all()
