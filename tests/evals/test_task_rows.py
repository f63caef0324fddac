"""Rows of other people's files: what is taken out of them, and that whatever is wrong says where."""

import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.evals.graders import GraderTools
from shikisha.evals.tasksets.task_rows import TaskRow, read_rows

Rows = Sequence[Mapping[str, object]]
ROWS: Rows = [{"a": "one", "n": 1}, {"a": "zwei\nzeilen", "n": 2}]


def jsonl(folder: Path, rows: Rows) -> Path:
    file = folder / "set.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def jsonl_gz(folder: Path, rows: Rows) -> Path:
    file = folder / "set.jsonl.gz"
    file.write_bytes(gzip.compress(jsonl(folder, rows).read_bytes()))
    return file


def json_array(folder: Path, rows: Rows) -> Path:
    file = folder / "set.json"
    file.write_text(json.dumps(list(rows), indent=1), encoding="utf-8")
    return file


def csv_file(folder: Path, rows: Rows) -> Path:
    file = folder / "set.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def parquet(folder: Path, rows: Rows) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / "set.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file


Write = Callable[[Path, Rows], Path]


@pytest.mark.parametrize("write", [jsonl, jsonl_gz, json_array, csv_file, parquet])
def test_every_format_gives_the_same_rows_in_order(tmp_path: Path, write: Write) -> None:
    found = list(read_rows(write(tmp_path, ROWS)))
    assert [(row.text("a"), row.integer("n", 0, 9)) for row in found] == [("one", 1), ("zwei\nzeilen", 2)]
    assert [(row.index, row.place) for row in found] == [(0, "set/0"), (1, "set/1")]


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (jsonl, "set.jsonl: line 2"),
        (jsonl_gz, "set.jsonl.gz: line 2"),
        (json_array, "set.json: row 1"),
        (csv_file, "set.csv: line 4"),  # where the row ends: a field in quotes goes over two lines
        (parquet, "set.parquet: row 1"),
    ],
)
def test_a_row_knows_its_place(tmp_path: Path, write: Write, place: str) -> None:
    _, second = read_rows(write(tmp_path, ROWS))
    with pytest.raises(ConfigError) as caught:
        second.integer("a", 0, 9)
    expected = f"{tmp_path}/{place}: a: expected a whole number from 0 to 9, found 'zwei\\nzeilen'"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("set.jsonl", b'{"a": 1}\n\n', "line 2: not JSON"),
        ("set.jsonl", b"[1]\n", "line 1: expected a JSON object"),
        ("set.jsonl", b'{"a": "\xff"}', "expected UTF-8 text"),
        ("set.jsonl", b"[" * 100_000, "line 1: not JSON"),
        ("set.json", b'{"a": 1}', "expected a JSON array of objects"),
        ("set.json", b'[{"a": 1}, 2]', "row 1: expected an object"),
        ("set.csv", b"a,b\n1,2\n3\n", "line 3: expected as many fields as the first line names, 2"),
        ("set.csv", b"a,b\n1,2,3\n", "line 2: expected as many fields as the first line names, 2"),
        ("set.csv", b'a,b\n1,"2"x\n', "line 2: not CSV"),
        ("set.csv", b"a,a\n1,2\n", "line 1: expected each name once, found 'a' again"),
        ("set.jsonl.gz", b"no archive", "cannot be read"),
        ("set.jsonl.gz", gzip.compress(b'{"a": 1}' * 99, mtime=0)[:-20], "cannot be read"),
        ("set.parquet", b"PAR1 but not really", "not a parquet file"),
    ],
)
def test_what_is_no_row_names_file_and_line(tmp_path: Path, name: str, text: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        list(read_rows(tmp_path / name))
    assert str(caught.value).startswith(f"{tmp_path}/{name}: {problem}")


def test_a_file_that_is_not_there_and_a_format_that_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.jsonl: cannot be read: No such file"):
        list(read_rows(tmp_path / "gone.jsonl"))
    with pytest.raises(UnknownName, match=r"unknown format of .*set\.xlsx '\.xlsx': known are \.csv, "):
        read_rows(tmp_path / "set.xlsx")


def row(**fields: object) -> TaskRow:
    return TaskRow(fields, "set.jsonl", 2, 3)


def test_fields_are_taken_out_by_type() -> None:
    one = row(
        text=" a ", number=7, digits="07", empty="", null=None, names=["x", ""], inner={"k": "v"}, list=[{"k": 1}]
    )
    assert (one.text("text"), one.name("number"), one.integer("digits", 0, 9)) == (" a ", "7", 7)
    assert (one.optional("null"), one.optional("gone"), one.optional("number")) == ("", "", "7")
    assert (one.string("empty"), one.texts("names"), one.texts("gone", least=0)) == ("", ("x", ""), ())
    assert (one.part("inner").text("k"), one.parts("list")[0].integer("k", 0, 1)) == ("v", 1)
    assert (one.one_of("gone", "null", "number"), one.has("empty"), one.has("number")) == ("number", False, True)
    assert row(day="2031-05-03T00:00:00").day("day") == "2031-05-03"
    assert [row(n=text).integer("n", 0, 9) for text in (" 7\n", "7\x1f", "\x1c7", "\u0667")] == [7] * 4


Take = Callable[[TaskRow], object]
FIELDS: Mapping[str, object] = {
    "null": None, "seven": 7, "blank": " ", "nul": "x\0", "half": "\ud800", "true": True, "digits": "9" * 5000,
    "soon": "soon", "mixed": ["x", 1], "empties": [{}], "inner": {"k": 1}, "open": "[",
}  # fmt: skip


@pytest.mark.parametrize(
    ("take", "problem"),
    [
        (lambda one: one.text("gone"), "gone: this field is missing; there are null, seven, "),
        (lambda one: one.text("null"), "null: expected text, found null"),
        (lambda one: one.text("seven"), "seven: expected text, found '7'"),
        (lambda one: one.text("blank"), "blank: expected text, found ' '"),
        (lambda one: one.text("nul"), "nul: holds a NUL character"),
        (lambda one: one.string("half"), "half: holds half of a surrogate pair, which is no character"),
        (lambda one: one.name("true"), "true: expected text, found 'True'"),
        (lambda one: one.integer("true", 0, 9), "true: expected a whole number from 0 to 9, found 'True'"),
        (lambda one: one.integer("seven", 0, 6), "seven: expected a whole number from 0 to 6, found '7'"),
        (lambda one: one.integer("digits", 0, 9), f"digits: expected a whole number from 0 to 9, found '{'9' * 40}'"),
        (lambda one: one.day("soon"), "soon: expected a date, found 'soon'"),
        (lambda one: one.texts("seven"), "seven: expected a list of at least 1 texts, found '7'"),
        (lambda one: one.texts("empties", least=2, most=4), "empties: expected a list of 2 to 4 texts, found '[{}]'"),
        (lambda one: one.texts("mixed"), "mixed[1]: expected text, found '1'"),
        (lambda one: one.part("seven"), "seven: expected an object, found '7'"),
        (lambda one: one.parts("inner"), "inner: expected a list of objects, found \"{'k': 1}\""),
        (lambda one: one.parts("mixed"), "mixed[0]: expected an object, found 'x'"),
        (lambda one: one.parts("empties")[0].text("k"), "empties[0].k: this field is missing; there are none"),
        (lambda one: one.part("inner").text("k"), "inner.k: expected text, found '1'"),
        (lambda one: one.one_of("x", "y"), "x: this field is missing (also looked for: y)"),
        (lambda one: one.decode("open", json.loads), "open: cannot be decoded: Expecting value"),
        (lambda one: one.grader("seven", "number", {}, GraderTools()), "seven: number."),
    ],
)
def test_what_a_field_lacks_names_file_line_and_field(take: Take, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        take(row(**FIELDS))
    assert str(caught.value).startswith(f"set.jsonl: line 3: {problem}")
