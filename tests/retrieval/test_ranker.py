"""Features, trees, ranker files, fitting and selection."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from shikisha.core.errors import ConfigError
from shikisha.retrieval.ranker import (
    DocumentSearch,
    Ranker,
    RankerOrigin,
    candidate_features,
    load_ranker,
    num_features,
    parse_ranker,
)
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.retrieval.text_index import IndexedText, TextIndex
from shikisha.tools.tool_judgments import Judgment, _tree_arrays, fit_ranker, select_ranker

NOUNS = ["invoice", "ticket", "order", "contact", "meeting", "payment", "shipment", "note", "refund", "report"]
VERBS = ["list", "create", "delete", "update", "archive", "export"]


def made_tools() -> list[IndexedText]:
    """Tools whose descriptions all repeat the noun of another, so that words alone mislead and names do not."""
    texts = []
    for noun in NOUNS:
        for verb in VERBS:
            other = NOUNS[(NOUNS.index(noun) + 1) % len(NOUNS)]
            texts.append(
                IndexedText(noun, (f"{verb}_{noun}", f"Unlike {other} {other} {other} {other}, see the manual."))
            )
    return texts


def made_judgments(count: int, seed: int = 0) -> list[Judgment]:
    drawn = random.Random(seed)
    made = []
    for number in range(count):
        noun, verb = drawn.choice(NOUNS), drawn.choice(VERBS)
        place = NOUNS.index(noun) * len(VERBS) + VERBS.index(verb)
        made.append(Judgment(f"{verb} the {noun} number {number} for customer {drawn.randrange(99)}", (place,)))
    return made


def search_of(documents: list[IndexedText], *weights: float) -> DocumentSearch:
    encode = shipped_encoder().encode
    return DocumentSearch(TextIndex(documents, weights), encode, encode([": ".join(each.fields) for each in documents]))


@pytest.fixture(scope="module")
def search() -> DocumentSearch:
    return search_of(made_tools(), 0.2, 3.0)


@pytest.fixture(scope="module")
def ranker(search: DocumentSearch) -> Ranker:
    return fit_ranker(search, made_judgments(120), "generated tools")


def test_features_are_as_many_as_they_say_and_finite(search: DocumentSearch) -> None:
    for query in ("export the refund. Also list orders and then delete a note", "zyzzyva", "", "指揮者"):
        found, highest = search.find(query)
        features = candidate_features(search.index, found)
        assert features.shape == (len(found.positions), num_features(2))
        assert np.isfinite(features).all()
        assert np.isfinite(found.fused).all()
        assert 0 <= highest < 1.001
    nothing = search.index.search("zyzzyva")
    assert candidate_features(search.index, nothing).shape == (0, num_features(2))


def test_a_ranker_learns_what_words_alone_get_wrong(search: DocumentSearch, ranker: Ranker) -> None:
    fresh = made_judgments(60, seed=9)
    right = {
        name: sum(each.right[0] in [place for place, _ in search.rank(chosen, each.query, 1)] for each in fresh)
        for name, chosen in (("bm25", None), ("ranker", ranker))
    }
    assert right["ranker"] > right["bm25"] + 10
    assert right["ranker"] >= 54


def test_the_arrays_say_what_the_fitted_model_says() -> None:
    random_features = np.random.default_rng(0).normal(size=(400, num_features(2))).astype(np.float32)
    labels = (random_features[:, 0] * random_features[:, 3] > 0).astype(int)
    model = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=16, max_depth=6, random_state=0)
    model.fit(random_features, labels)
    sums = Ranker(_tree_arrays(model), 2, RankerOrigin()).log_odds(random_features)
    offset = float(model._baseline_prediction.ravel()[0])
    np.testing.assert_allclose(sums + offset, model.decision_function(random_features), atol=1e-4)


def test_a_file_brings_back_the_same_ranker(search: DocumentSearch, ranker: Ranker, tmp_path: Path) -> None:
    file = tmp_path / "tools.ranker.json"
    file.write_text(ranker.dump())
    again = load_ranker(file)
    assert again.version == ranker.version
    assert again.origin.queries == 120
    query = "archive the shipment"
    assert search.rank(again, query, 5) == search.rank(ranker, query, 5)


@pytest.mark.slow
def test_the_same_judgments_give_the_same_ranker(search: DocumentSearch, ranker: Ranker) -> None:
    assert fit_ranker(search, made_judgments(120), "generated tools").version == ranker.version


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"format": 2}, "format"),
        ({"feature": [[10_000]]}, "feature"),
        ({"left": [[0], [0]]}, "left"),
        ({"right": [[-1]]}, "right"),
        ({"value": [["x"]]}, "value"),
        ({"threshold": [[None]]}, "threshold"),
        ({"more": 1}, "more"),
        ({"origin": {"who": "me"}}, "origin"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_place(change: dict[str, object], what: str) -> None:
    document = {"format": 1, "fields": 2, "origin": {}, "feature": [[0]], "left": [[0]], "right": [[0]]}
    document |= {"threshold": [[0.5]], "value": [[0.1]]}
    assert parse_ranker(json.dumps(document).encode(), "whole", bound=False).fields == 2
    with pytest.raises(ConfigError, match="an earlier version wrote it"):
        parse_ranker(json.dumps(document).encode(), "unbound")
    with pytest.raises(ConfigError, match=f"broken: not a ranker: {what}"):
        parse_ranker(json.dumps({**document, **change}).encode(), "broken")


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"format": 1e999}'])
def test_what_is_no_ranker_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError, match="not a ranker"):
        parse_ranker(text, "broken")


@pytest.mark.slow
def test_a_ranker_is_kept_only_where_it_excludes_harm(search: DocumentSearch) -> None:
    _, gain = select_ranker(search, made_judgments(150), None, "generated tools")
    assert gain.excludes_harm
    assert gain.after > gain.before
    drawn = random.Random(5)
    noise = [Judgment(each.query, (drawn.randrange(len(search.index)),)) for each in made_judgments(150, seed=3)]
    _, nothing = select_ranker(search, noise, fit_ranker(search, made_judgments(120), "x"), "noise")
    assert not nothing.excludes_harm


def test_too_few_judgments_are_refused(search: DocumentSearch) -> None:
    with pytest.raises(ConfigError, match="expected at least"):
        select_ranker(search, made_judgments(20), None, "few")
    with pytest.raises(ConfigError, match="expected at least"):
        fit_ranker(search, made_judgments(5), "few")


def test_a_tool_is_found_by_meaning_where_no_word_is_shared_and_by_words_where_they_are() -> None:
    names = [
        "cancelReservation: call off a table booking",
        "listOrders: orders by status",
        "x17: prints the label 4711",
    ]
    search = search_of([IndexedText("", tuple(name.split(": "))) for name in names], 1.0, 1.0)
    assert not len(search.index.search("abort my dinner appointment").positions)
    assert search.rank(None, "abort my dinner appointment", 1)[0][0] == 0
    assert search.rank(None, "4711", 1)[0][0] == 2
    near, far = (search.rank(None, query, 1)[0][1] for query in ("call off the booking of a table", "translate Latin"))
    assert near > 2 * far  # scores of several catalogues are compared


def test_a_ranker_of_before_goes_with_this_code() -> None:
    """A change of features or constants on purpose writes new numbers here: files that people have are refused."""
    arrays = {"feature": [[0]], "left": [[0]], "right": [[0]], "threshold": [[0.5]], "value": [[0.1]]}
    document = {"format": 1, "fields": 2, "origin": {}, "probe": "168 5.10616 -0.360436 4 0.142996 0.0791293", **arrays}
    assert parse_ranker(json.dumps(document).encode(), "of before").fields == 2
