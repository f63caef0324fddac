"""The tagger of words: one pass in numpy and in torch, bounded work, and files of weights that are data."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Floats32
from shikisha_train.pointer.part_tagger import (
    encode_words,
    far_bias,
    score_begins,
    score_stretches,
    tagger_sizes,
    token_features,
    trunk_sizes,
    word_buckets,
)
from shikisha_train.pointer.weight_file import open_weights, write_weights

TEXTS = ["Which room is Ada Abbot in?\n- total of INV-1234, pls!", "water A310", "é漢 ... 'x'"]


def random_tagger(seed: int = 0) -> dict[str, Floats32]:
    rng = np.random.default_rng(seed)
    return {
        name: np.ones(shape, np.float32)
        if name.endswith("norm")
        else (rng.standard_normal(shape, np.float32) * shape[0] ** -0.5).astype(np.float32)
        for name, shape in tagger_sizes(12, 3).items()
    }


def features(text: str) -> list[np.ndarray]:
    return token_features(text, [found.span() for found in re.finditer(r"\S+", text)])


def test_training_and_use_score_alike() -> None:
    torch = pytest.importorskip("torch")
    from shikisha_train.task_reader_fit import encode_texts, tag_begins, tag_stretches

    tagger = random_tagger()
    weights = {name: torch.from_numpy(array) for name, array in tagger.items()}
    rows = [features(text) for text in TEXTS]
    longest = max(map(len, rows))
    used = torch.tensor([[at < len(each) for at in range(longest)] for each in rows])
    h = encode_texts(weights, rows, used)
    begins = tag_begins(weights, h).numpy()
    for row, each in enumerate(rows):
        own = encode_words(tagger, each)
        assert np.allclose(begins[row, : len(each)], score_begins(tagger, own), atol=1e-4)
        starts, ends = np.array([0, len(each) - 1]), np.array([len(each), len(each)])
        places = torch.tensor([[row, int(start), int(end)] for start, end in zip(starts, ends, strict=True)])
        scores = tag_stretches(weights, h, places).numpy()
        assert np.allclose(scores, score_stretches(tagger, own, starts, ends), atol=1e-4)


def test_a_mistyped_word_shares_what_it_says_and_a_name_does_not_know_its_case() -> None:
    shared = set(word_buckets("reading")) & set(word_buckets("raeding"))
    assert len(shared) > len(set(word_buckets("reading")) & set(word_buckets("copper")))
    assert word_buckets("B204")[0] == word_buckets("B917")[0]
    assert word_buckets("Total?")[0] == word_buckets("total")[0]
    assert word_buckets("Total?") != word_buckets("total")


def test_attention_falls_with_the_distance_and_some_heads_look_one_way() -> None:
    bias = far_bias(9)
    assert bias.shape == (6, 9, 9)
    assert (np.diagonal(bias, axis1=1, axis2=2) == 0).all()
    assert bias[1, 4, 0] > bias[1, 4, 8]  # looks back
    assert bias[2, 4, 8] > bias[2, 4, 0]  # looks ahead
    assert (bias[5] == 0).all()


def test_numbers_in_eight_bits_stay_near_and_others_in_half_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = (rng.standard_normal((40, 8)) * rng.uniform(1e-4, 30, (40, 1))).astype(np.float32)
    table[3] = 0
    bias = rng.standard_normal(8).astype(np.float32)
    write_weights(tmp_path / "a", {"table": table, "bias": bias}, {"format": "x"}, {"table"})
    held = open_weights(tmp_path / "a", "model")
    read = held.read("table", (40, 8))
    assert (np.abs(read - table) <= np.abs(table).max(1, keepdims=True) / 127 * 0.51 + 1e-7).all()
    assert np.allclose(held.read("bias", (8,)), bias, rtol=1e-3)
    write_weights(tmp_path / "b", {"table": read, "bias": held.read("bias", (8,))}, {"format": "x"}, {"table"})
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    with pytest.raises(ValueError, match="shape"):
        held.read("table", (8, 40))
    with pytest.raises(KeyError):
        held.read("other", (1,))


def _header(held: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    (size,) = struct.unpack("<Q", held[:8])
    header = json.loads(held[8 : 8 + size])
    del header["__metadata__"]["sha256"]  # else any change is refused for that
    change(header)
    said = json.dumps(header).encode()
    return struct.pack("<Q", len(said)) + said + held[8 + size :]


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from shikisha_train.task_reader_fit import read_trunk, write_trunk

    file = tmp_path_factory.mktemp("trunk") / "trunk.safetensors"
    write_trunk(file, {name: np.full(shape, 0.5, np.float32) for name, shape in trunk_sizes().items()})
    assert read_trunk(file)["norm"].shape == trunk_sizes()["norm"]
    return file


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "no pretrained reader"),
        (lambda held: held[:50], "header is longer"),
        (lambda held: struct.pack("<Q", 2) + b"[]" + held, "no object"),
        (lambda held: _header(held, lambda one: one.pop("words")), "KeyError"),
        (lambda held: _header(held, lambda one: one["words"].update(shape=[1, 2])), "shape"),
        (lambda held: _header(held, lambda one: one["words"].update(data_offsets=[0, 9])), "does not fit"),
        (lambda held: _header(held, lambda one: one.update(__metadata__={"format": "other/1"})), "expected the format"),
        (lambda held: _header(held, lambda one: one.update(__metadata__=[])), "with metadata"),
    ],
)
def test_a_damaged_pretrained_reader_is_refused(
    tmp_path: Path, trunk: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    pytest.importorskip("torch")
    from shikisha_train.task_reader_fit import read_trunk

    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(damage(trunk.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        read_trunk(damaged)
