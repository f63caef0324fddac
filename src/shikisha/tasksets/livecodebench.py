"""LiveCodeBench: problems of programming contests with their dates (arXiv 2403.07974), graded by tests in a sandbox.

Columns: question_title, question_content, starter_code, public_test_cases and private_test_cases (JSON texts: lists of
input, output, testtype `stdin` or `functional`), metadata (a JSON text; func_name for functional tests), question_id,
platform, difficulty, contest_date. The private tests may be packed: base64 of zlib of the JSON text, or, as they are
published, of the pickle of that text. Invariant: a pickle is never run. Of its many instructions only those by which a
text is written are read here, by hand; any other is an error. Deliberately absent: every other pickled value.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping

from shikisha.grade import Checker, Grade, Tools
from shikisha.grade.code_settings import COMMON_SETUP
from shikisha.task import Task
from shikisha.taskset import Item
from shikisha.tasksets import wording
from shikisha.tasksets.hub import Hub
from shikisha.tasksets.rows import Row

HUB = Hub("livecodebench/code_generation_lite", splits=("test",))
_MOST = 2**30  # bytes of one problem's unpacked tests
_PROTO, _FRAME, _STOP = 0x80, 0x95, 0x2E
_TEXTS = {0x8C: 1, 0x58: 4, 0x8D: 8}  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8: how many bytes say the length
_SKIPPED = {_PROTO: 1, _FRAME: 8, 0x94: 0, 0x71: 1, 0x72: 4}  # besides: MEMOIZE, BINPUT, LONG_BINPUT; their arguments


def item(row: Row, tools: Tools) -> Item:
    """Make the row's item."""
    check = Unpacking(row, tools)
    question = f"{row.text('question_title')}\n\n{row.text('question_content')}"
    prompt = wording.function(question, row.text("starter_code")) if check.functional else wording.program(question)
    labels = (row.text("platform"), row.day("contest_date"))
    task = Task(prompt, id=f"livecodebench/{row.name('question_id')}", domain="livecodebench", labels=labels)
    return Item(task, check, difficulty=row.text("difficulty"))


class Unpacking:
    """Grades by a row's tests, which are unpacked for each answer: all at once would fill the memory.

    They are unpacked once on making it, so that what is wrong with them is an error then.
    """

    name = "code"

    def __init__(self, row: Row, tools: Tools) -> None:
        self._row = row
        self._tools = tools
        spec = _spec(row)
        self.functional = spec["style"] == "function"
        self._built(spec)

    async def grade(self, answer: str) -> Grade:
        """Run the tests."""
        return await self._built(_spec(self._row)).grade(answer)

    def _built(self, spec: Mapping[str, object]) -> Checker:
        return self._row.checker("private_test_cases", "code", spec, self._tools)


def _spec(row: Row) -> dict[str, object]:
    """Return the settings of the checker."""
    tests: list[Row] = []
    for field in ("public_test_cases", "private_test_cases"):
        tests += _tests(row, field)
        kinds = {test.text("testtype") for test in tests}
        if len(kinds) > 1 or kinds - {"stdin", "functional"}:
            wish = "expected tests all of testtype stdin or all functional"
            raise row.wrong(field, f"{wish}, found {', '.join(sorted(kinds))}")
    if not tests:
        raise row.wrong("public_test_cases", "there is no test, and none in private_test_cases")
    pairs = [{"input": test.string("input"), "output": test.string("output")} for test in tests]
    if kinds == {"stdin"}:
        return {"style": "stdio", "pairs": pairs, "setup": COMMON_SETUP, "tolerance": 0.0}
    entry = row.decoded("metadata", _json).part("metadata").identifier("func_name")
    return {"style": "function", "pairs": pairs, "entry": entry, "setup": COMMON_SETUP}


def _tests(row: Row, field: str) -> tuple[Row, ...]:
    """Return the tests in a field; none where it holds an empty list."""
    found = row.decoded(field, _unpacked)
    return () if found.data[field] == [] else found.parts(field)


def _json(text: str) -> object:
    value: object = json.loads(text)
    return value


def _unpacked(text: str) -> object:
    """Decode JSON, plain or packed; ValueError says what else it is."""
    if text.lstrip()[:1] in ("[", "{"):
        return _json(text)
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(base64.b64decode(text, validate=True), _MOST)
    except (binascii.Error, zlib.error):
        raise ValueError("neither JSON nor base64 of zlib of JSON") from None
    if not unpacking.eof:
        raise ValueError(f"cut off, or above {_MOST:,} bytes")
    return _json(_pickled_text(plain) if plain[:1] == bytes((_PROTO,)) else plain.decode())


def _pickled_text(pickled: bytes) -> str:
    """Return the one text that a pickle holds; ValueError when it holds anything else, or more."""
    at, text = 0, None
    while at < len(pickled):
        code, at = pickled[at], at + 1
        if code == _STOP and text is not None and at == len(pickled):
            return text
        if code in _TEXTS and text is None:
            start = at + _TEXTS[code]
            at = start + int.from_bytes(pickled[start - _TEXTS[code] : start], "little")
            if at > len(pickled):
                break
            text = pickled[start:at].decode()
        elif code in _SKIPPED:
            at += _SKIPPED[code]
        else:
            raise ValueError("a pickle of something other than one text, which is never read: it could run anything")
    raise ValueError("a pickle that is cut off, or goes on behind its end")
