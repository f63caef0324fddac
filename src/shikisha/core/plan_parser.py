"""Plan text → Plan: one strict parser for the three-list text and for its JSON twin.

    model_id = [2, 0]
    subtasks = ["find the year", "add 3 to it"]
    access_list = [[], ["all"]]

An access list may also say `"each 0"`: the step is then a map step over the list that step 0 brings.

Prose, drafts and code fences may come before; the last three lists count. Invariant: what comes out is a well-formed
Plan that fits its pool, or a PlanError that says what is wrong and where; nothing is clamped, wrapped, dropped or
guessed, and no text is ever evaluated. Literals mean what they mean in Python (or, in the twin, in JSON); only plain
strings, whole numbers and lists of them are read, with `#` comments between them. After the plan, prose may follow on
lines of its own as long as it does not speak of the three lists again (that would be an amendment, and amendments are
not performed). Time is linear in the text: where a draft breaks off, the search goes on from there. Deliberately
absent: repair of near-misses; a conductor is shown the error instead.

The list that a map step goes through: its items from the text of a step, and the answers to them as a list again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NoReturn

from shikisha.core.errors import PlanError, describe_error
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.messages import Json, dump_json
from shikisha.core.plan import MAX_STEPS, MOST_ITEMS, MOST_KIND, Plan, Step, no_such_worker, read_each
from shikisha.core.task import storage_problem

MOST_CHARACTERS = 1_000_000  # of a list of items, and of the list of the answers to them
_SHOWN = 60


def list_schema(most: int) -> Mapping[str, Json]:
    """Return the JSON Schema that a step's answer must fit for a map step to go through it."""
    return {"type": "array", "maxItems": min(most, MOST_ITEMS)}


def parse_items(text: str) -> tuple[str | None, ...]:
    """Return the items of a list as texts; None for what is nothing to work on. ValueError says why it is no list."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the list has {len(text):,} characters: at most {MOST_CHARACTERS:,} are read")
    try:
        items = json.loads(text, parse_constant=_reject_constant)
        texts = [_item_text(item) for item in items] if isinstance(items, list) else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON list, found {text[:_SHOWN]!r} ({describe_error(error)})") from None
    if texts is None:
        raise ValueError(f"expected a JSON list, found {text[:_SHOWN]!r}")
    for place, item in enumerate(texts):
        if item is not None and (problem := storage_problem(item)):
            raise ValueError(f"item {place} of the list holds {problem}")
    return tuple(texts)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _item_text(item: Json) -> str | None:
    if item is None or (isinstance(item, str) and not item.strip()):
        return None
    return item if isinstance(item, str) else dump_json(item)


def join_answers(answers: Sequence[str | None]) -> str:
    """Return the answers to a list's items as a JSON list in their order; null for an item without one."""
    return dump_json(list(answers))


MAX_CHARACTERS = 1_000_000
_MAX_DEPTH = 3
_MAX_DIGITS = 9
_MAX_BROKEN_TWINS = 64  # the JSON decoder counts lines anew for each
_NAMES = ("model_id", "subtasks", "access_list")
_PLACES = ("model_id[{}]", "subtasks[{}]", "access_list[{}]")
_TWIN = "steps"
_TWIN_KEYS = ("worker", "subtask", "access")
_TWIN_PLACES = ("steps[{}].worker", "steps[{}].subtask", "steps[{}].access")

_START = re.compile(  # every alternative begins with a letter of its own: re skips what begins with none of them
    "|".join(rf"{name}(?<![A-Za-z0-9_.]{name})\s*=\s*(?=\[)" for name in _NAMES)
    + r'|\{(?=\s*"(?:steps|reasoning)"\s*:)'
)
_GAP = re.compile(r"\s*+(?:#[^\r\n]*+\s*+)*+")
_BETWEEN = re.compile(_GAP.pattern + r"(?:[,;]" + _GAP.pattern + ")?")
_STRING = re.compile(
    r'"""(?P<ddd>(?:[^\\"]++|\\.|"(?!""))*+)"""'
    r"|'''(?P<sss>(?:[^\\']++|\\.|'(?!''))*+)'''"
    r'|"(?P<d>(?:[^\\"\r\n]++|\\(?:\r\n|.))*+)"'
    r"|'(?P<s>(?:[^\\'\r\n]++|\\(?:\r\n|.))*+)'",
    re.DOTALL,
)
_WORD = re.compile(r"[-+\w.]+")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|\r\n|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a",
    "\\": "\\", "'": "'", '"': '"', "\n": "", "\r": "", "\r\n": "",
}  # fmt: skip
_END_OF_LINE = re.compile(r"[^\S\n]*;?[^\S\n]*(?:#[^\n]*|```|~~~)?[^\S\n]*(?:\n|\Z)")
_MORE_AFTER = re.compile(r"\s*+(?:(?:```|~~~)\s*+)?[\]}),]")
_SECOND_MENTION = re.compile(
    r'(?<![A-Za-z0-9_])(?:model_id|subtasks|access_list)(?![A-Za-z0-9_])|["\']steps["\']\s*:', re.IGNORECASE
)
_END_OF_THINKING = re.compile(r"[<\[◁]/(?:think|thought|reason|scratch|draft)", re.IGNORECASE)


class _BrokenLiteral(Exception):
    """A literal breaks off: `what` was wrong, and the place `at`, which becomes line and column when it is told."""

    def __init__(self, what: str, at: int) -> None:
        self.what, self.at = what, at


@dataclass(frozen=True, slots=True)
class _PlanCandidate:
    """A list assignment or JSON plan in the text, from `start` to `end`: its value, or why it breaks off at `end`."""

    name: str
    start: int
    end: int
    value: object = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _StepRow:
    """A step as read: worker, subtask and access list of any kind, and what these are called in errors."""

    index: int
    parts: Sequence[object]
    names: Sequence[str]
    kind: str = ""

    def wrong(self, part: int, what: str, place: int | None = None) -> PlanError:
        """Return the error for one part, or for one place in it."""
        inside = "" if place is None else f"[{place}]"
        return PlanError(what, self.names[part].format(self.index) + inside)


def parse_plan(text: str, pool_size: int, max_steps: int = MAX_STEPS) -> Plan:
    """Return the plan that the text ends with, for a pool of `pool_size` workers; PlanError says what is wrong."""
    if len(text) > MAX_CHARACTERS:
        raise PlanError(f"{len(text):,} characters are too many: at most {MAX_CHARACTERS:,} are read", "text")
    found: list[_PlanCandidate] = []
    broken_twins = 0
    match = _START.search(text)
    while match:
        if match[0] == "{":
            one = _read_json(text, match.start())
            broken_twins += bool(one.problem)
            if broken_twins > _MAX_BROKEN_TWINS:
                _fail_at(f"more than {_MAX_BROKEN_TWINS} broken JSON plans", text, one.start)
        else:
            one = _read_list(text, match)
        found.append(one)
        match = _START.search(text, _skip(text, one.end))
    if not found:
        raise PlanError('expected model_id = [...], subtasks = [...], access_list = [...], or {"steps": [...]}', "text")
    rows = _json_plan_rows(text, found[-1]) if found[-1].name == _TWIN else _three_lists(text, found)
    end = found[-1].end
    line = _END_OF_LINE.match(text, end)
    if line is None:
        _fail_at("text follows the plan on its line", text, end)
    if more := _MORE_AFTER.match(text, line.end()):
        _fail_at("the plan is a part of something larger", text, more.end() - 1)
    if again := _SECOND_MENTION.search(text, end):
        _fail_at("the plan is spoken of again after its end", text, again.start())
    if thinking := _END_OF_THINKING.search(text, end):
        _fail_at("the plan stands among the reasoning: nothing follows the reasoning's end", text, thinking.start())
    if len(rows) > max_steps:
        raise PlanError(f"{len(rows)} steps are too many: at most {max_steps} are allowed", "plan")
    return Plan(tuple([Step(_subtask(row), _ordinal(row, pool_size), *_access(row), row.kind) for row in rows]))


def _read_list(text: str, match: re.Match[str]) -> _PlanCandidate:
    name = match[0].partition("=")[0].rstrip()
    try:
        value, end = _items(text, match.end(), 1)
    except _BrokenLiteral as broken:
        return _PlanCandidate(name, match.start(), broken.at, problem=broken.what)
    return _PlanCandidate(name, match.start(), end, value)


def _items(text: str, at: int, depth: int) -> tuple[list[object], int]:
    """Read the list that begins at `at`; return it and the place after it."""
    if depth > _MAX_DEPTH:
        raise _BrokenLiteral(f"nested deeper than {_MAX_DEPTH} lists", at)
    items: list[object] = []
    at = _skip(text, at + 1)
    while not text.startswith("]", at):
        item, at = _items(text, at, depth + 1) if text.startswith("[", at) else _scalar(text, at)
        items.append(item)
        at = _skip(text, at)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith("]", at):
            raise _BrokenLiteral("expected ',' or ']'", at)
    return items, at + 1


def _skip(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at


def _scalar(text: str, at: int) -> tuple[str | int | bool, int]:
    if string := _STRING.match(text, at):
        return _unescaped(string[string.lastgroup or 0], at), string.end()
    word = _WORD.match(text, at)
    if word is None:
        unclosed = "; this one has no end" if text.startswith(("'", '"'), at) else ""
        raise _BrokenLiteral(f"expected a list, a quoted string or a whole number{unclosed}", at)
    if word[0] in ("True", "False"):
        return word[0] == "True", word.end()
    return _whole_number(word[0], at), word.end()


def _whole_number(word: str, at: int) -> int:
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise _BrokenLiteral(f"expected a whole number or a quoted string, not {word[:40]!r}", at)
    if len(digits) > _MAX_DIGITS or (digits[0] == "0" and word != "0"):
        raise _BrokenLiteral(f"no ordinal is written {word[:40]!r}", at)
    return int(word)


def _unescaped(raw: str, at: int) -> str:
    if "\\" not in raw:
        return raw
    try:
        return _ESCAPE.sub(_escape, raw)
    except (ValueError, OverflowError) as error:
        raise _BrokenLiteral(f"an escape in this string names no character: {error}", at) from None


def _escape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code in "xuUN":
        raise ValueError(f"\\{code} without its digits" if code != "N" else "\\N is not read")
    return match[0]  # as in Python: a backslash that escapes nothing stays


@dataclass(frozen=True, slots=True)
class _DuplicateKey:
    """A JSON object that gives a key twice."""

    key: str


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | _DuplicateKey:
    made: dict[str, object] = {}
    for key, value in pairs:
        if key in made:
            return _DuplicateKey(key)
        made[key] = value
    return made


def _json_number(digits: str) -> int | float:
    return float(digits) if len(digits) > _MAX_DIGITS or digits == "-0" else int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_json_number)


def _read_json(text: str, start: int) -> _PlanCandidate:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return _PlanCandidate(_TWIN, start, max(error.pos, start + 1), problem=error.msg)
    except RecursionError:
        return _PlanCandidate(_TWIN, start, start + 1, problem="nested too deep")
    return _PlanCandidate(_TWIN, start, end, value)


def _three_lists(text: str, found: Sequence[_PlanCandidate]) -> list[_StepRow]:
    """Return the rows of the last three lists, which must stand together, one of each name."""
    last = found[-3:]
    for one in last:
        _check_whole(text, one)
    missing = [name for name in _NAMES if name not in {one.name for one in last}]
    if missing:
        _fail_at(f"the last three lists lack {missing[0]}", text, last[-1].start)
    for before, after in pairwise(last):
        if not _adjoin(text, before, after):
            _fail_at(f"text stands between {before.name} and {after.name}", text, before.end)
    in_order = tuple([one.name for one in last]) == _NAMES
    if not in_order and len(found) > 3 and _adjoin(text, found[-4], last[0]):
        _fail_at("these lists belong to two plans", text, last[0].start)
    lists = {one.name: one.value for one in last if isinstance(one.value, list)}
    workers, subtasks, access = (lists[name] for name in _NAMES)
    if not len(workers) == len(subtasks) == len(access):
        lengths = f"model_id {len(workers)}, subtasks {len(subtasks)}, access_list {len(access)}"
        raise PlanError(f"the lists differ in length: {lengths}", "model_id, subtasks, access_list")
    return [_StepRow(i, parts, _PLACES) for i, parts in enumerate(zip(workers, subtasks, access, strict=True))]


def _check_whole(text: str, one: _PlanCandidate) -> None:
    if one.problem:
        raise PlanError(one.problem, f"{one.name}, {_place(text, one.end)}")
    line = text[text.rfind("\n", 0, one.start) + 1 : one.start]
    if line.lstrip().startswith("#"):
        _fail_at(f"{one.name} is in a comment", text, one.start)


def _adjoin(text: str, before: _PlanCandidate, after: _PlanCandidate) -> bool:
    return _BETWEEN.fullmatch(text, before.end, after.start) is not None


def _json_plan_rows(text: str, found: _PlanCandidate) -> list[_StepRow]:
    _check_whole(text, found)
    before = text[: found.start].rstrip()
    if before.endswith(("[", "{", "(")) or (before.endswith(":") and before[:-1].rstrip().endswith('"')):
        _fail_at("the plan is a part of something larger", text, found.start)
    plan = _record(found.value, (_TWIN,), "plan", optional="reasoning")
    reasoning, steps = plan.get("reasoning", ""), plan[_TWIN]
    if not isinstance(reasoning, str):
        raise PlanError(f"expected a string, not {_kind(reasoning)}", "reasoning")
    if not isinstance(steps, list):
        raise PlanError(f"expected a list of steps, not {_kind(steps)}", _TWIN)
    records = [_record(step, _TWIN_KEYS, f"{_TWIN}[{i}]", optional="kind") for i, step in enumerate(steps)]
    return [
        _StepRow(i, [record[key] for key in _TWIN_KEYS], _TWIN_PLACES, _step_kind(record.get("kind", ""), i))
        for i, record in enumerate(records)
    ]


def _step_kind(value: object, index: int) -> str:
    """Return what sort of work a step is, as its planner names it."""
    if not isinstance(value, str) or len(value) > MOST_KIND:
        raise PlanError(f"expected a string of at most {MOST_KIND} characters", f"{_TWIN}[{index}].kind")
    return " ".join(value.casefold().split())


def _record(value: object, keys: Sequence[str], where: str, optional: str = "") -> dict[str, object]:
    if isinstance(value, _DuplicateKey):
        raise PlanError(f"the key {value.key[:40]!r} is given twice", where)
    if not isinstance(value, dict):
        raise PlanError(f"expected an object, not {_kind(value)}", where)
    if missing := [key for key in keys if key not in value]:
        raise PlanError(f"{missing[0]!r} is missing", where)
    if extra := [key for key in value if key not in keys and key != optional]:
        raise PlanError(f"unknown key {str(extra[0])[:40]!r}", where)
    return value


def _ordinal(row: _StepRow, pool_size: int) -> int:
    value = row.parts[0]
    if type(value) is not int:
        raise row.wrong(0, f"expected a whole number, not {_kind(value)}")
    if not 0 <= value < pool_size:
        raise row.wrong(0, no_such_worker(value, pool_size))
    return value


def _subtask(row: _StepRow) -> str:
    value = row.parts[1]
    if not isinstance(value, str):
        raise row.wrong(1, f"expected a string, not {_kind(value)}")
    if not value.strip():
        raise row.wrong(1, "the subtask is empty")
    if "\x00" in value:
        raise row.wrong(1, "a NUL character is no text")
    try:
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16")  # joins pairs
    except UnicodeDecodeError:
        raise row.wrong(1, "half of a surrogate pair is no character") from None


def _access(row: _StepRow) -> tuple[tuple[int, ...], int | None]:
    value = row.parts[2]
    if not isinstance(value, list):
        raise row.wrong(2, f'expected [], ["all"] or a list of earlier steps, not {_kind(value)}')
    if value == ["all"]:
        return tuple(range(row.index)), None
    seen: set[int] = set()
    each: int | None = None
    for place, entry in enumerate(value):
        listed = read_each(entry)
        step = entry if listed is None else listed
        if type(step) is not int:
            hint = '; a map step says "each 0"' if isinstance(step, str) and step.startswith("each") else ""
            raise row.wrong(2, f"expected a whole number, not {_kind(step)}{hint}", place)
        if listed is not None and each is not None:
            raise row.wrong(2, f"a step goes through one list, not those of steps {each} and {listed}", place)
        if not 0 <= step < row.index:
            raise row.wrong(2, f"step {row.index} can only see earlier steps, not step {step}", place)
        if step in seen:
            raise row.wrong(2, f"step {step} is named twice", place)
        seen.add(step)
        each = listed if each is None else each
    return tuple(sorted(seen)), each


def _kind(value: object) -> str:
    match value:
        case bool() | int() | float():
            return str(value)
        case str():
            return f"the string {value[:40]!r}"
        case list():
            return "a list"
        case None:
            return "null"
    return "an object"


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def _fail_at(what: str, text: str, at: int) -> NoReturn:
    raise PlanError(what, _place(text, at))
