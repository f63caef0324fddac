"""The text encoder: unit vectors that say what a text is about, whatever the text is, and a file that cannot harm."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from shikisha.core.errors import ConfigError
from shikisha.retrieval.text_encoder import (
    MAX_CHARACTERS,
    MAX_WORDS,
    TextEncoder,
    load_encoder,
    shipped_encoder,
    split_words,
)

SHIPPED = Path(__file__).parents[2] / "src/shikisha/retrieval/encoder.onnx"
ASKED = ("Who is the boss of Priya Nagy?", "How many kilowatt hours does the meter show?", "Is this invoice overdue?")


def test_a_text_is_nearest_to_one_that_says_the_same() -> None:
    told = ("bills of suppliers", "managers and the staff who report to them", "readings of power and water meters")
    near = shipped_encoder().encode(ASKED) @ shipped_encoder().encode(told).T
    assert near.argmax(1).tolist() == [1, 2, 0], near


def test_a_typing_error_changes_little() -> None:
    clean, typed, other = shipped_encoder().encode(
        ["read the electricity meter", "raed the electrcity metre", "book a flight to Boston"]
    )
    assert clean @ typed > clean @ other + 0.2


def test_vectors_have_length_one_and_do_not_depend_on_the_company() -> None:
    alone = np.concatenate([shipped_encoder().encode([text]) for text in ASKED])
    among = shipped_encoder().encode([*ASKED, "word " * 60, "", "another one"])
    assert among.shape == (6, shipped_encoder().width)
    assert among.dtype == np.float32
    assert np.allclose(np.linalg.norm(among[[0, 1, 2, 3, 5]], axis=1), 1, atol=1e-5)
    assert np.allclose(alone, among[:3], atol=1e-5)
    assert np.array_equal(shipped_encoder().encode(ASKED), shipped_encoder().encode(ASKED))


def test_a_text_of_which_nothing_is_known_is_zero() -> None:
    assert not shipped_encoder().encode(["", " \n", "指揮者"]).any()
    assert shipped_encoder().encode([]).shape == (0, shipped_encoder().width)


def test_words_are_lower_case_parts_of_identifiers_and_numbers_are_their_length() -> None:
    assert split_words("listMyInvoices INV-4411") == ["list", "my", "invoices", "inv", "-", "0000"]
    assert split_words("Café costs 12%?") == ["cafe", "costs", "00", "%", "?"]
    assert len(split_words("a " * 10_000)) == MAX_WORDS
    assert len(split_words("\ufdfa" * 10 * MAX_CHARACTERS)) <= MAX_WORDS


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), max_size=4))
def test_no_text_raises(texts: list[str]) -> None:
    vectors = shipped_encoder().encode(texts)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.isfinite(vectors).all()
    assert (np.isclose(lengths, 1, atol=1e-4) | (lengths == 0)).all()


def test_a_file_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a text encoder"):
        TextEncoder(tmp_path / "none.onnx")
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"no model")
    with pytest.raises(ConfigError, match="cannot be read as an ONNX model"):
        TextEncoder(junk)
    other = onnx.load(SHIPPED)
    other.metadata_props[0].value = "another format"
    junk.write_bytes(other.SerializeToString())
    with pytest.raises(ConfigError, match="expected the format"):
        TextEncoder(junk)


def test_the_file_is_small() -> None:
    assert SHIPPED.stat().st_size <= 8_000_000


def sentence_model(folder: Path, output: str = "tokens") -> Path:
    """Write a sentence transformer of three words: what it gives for a token is the row of a table."""
    words = {"[PAD]": 0, "[UNK]": 1, "cat": 2, "dog": 3, "pets": 4}
    model = Tokenizer(WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a word, no secret
    model.pre_tokenizer = Whitespace()
    model.save(str(folder / "tokenizer.json"))
    table = np.array([[9, 9], [0, 1], [1, 0], [1, 0.2], [0.9, 0.1]], np.float32)
    helper, kinds = onnx.helper, onnx.TensorProto
    ids, mask = (
        helper.make_tensor_value_info(name, kinds.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")
    )
    given = helper.make_tensor_value_info(output, kinds.FLOAT, ["n", "t", 2])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], [output])],
        "words",
        [ids, mask],
        [given],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(written, folder / "model.onnx")
    return folder / "model.onnx"


def test_a_sentence_transformer_reads_texts_by_the_mean_of_their_tokens(tmp_path: Path) -> None:
    encoder = load_encoder(sentence_model(tmp_path))
    vectors = encoder.encode(["cat dog pets pets pets", "cat", "unheard of", "dog"])
    assert vectors.shape == (4, 2)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.allclose(vectors[1], [1, 0])  # padding counts for nothing
    assert np.allclose(vectors[2], [0, 1])
    assert encoder.encode([]).shape == (0, 2)
    assert load_encoder(None) is shipped_encoder()
    assert load_encoder(SHIPPED).version == shipped_encoder().version


def test_what_is_no_sentence_transformer_is_refused_with_its_file(tmp_path: Path) -> None:
    file = sentence_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: not a tokenizer"):
        load_encoder(file)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"tokenizer\.json beside it"):
        load_encoder(file)
    file.write_bytes(b"no model")
    with pytest.raises(ConfigError, match="cannot be read as an ONNX model"):
        load_encoder(file)
    with pytest.raises(ConfigError, match="expected a text encoder"):
        load_encoder(tmp_path / "absent.onnx")
