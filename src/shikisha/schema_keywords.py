"""The keywords of JSON Schema, drafts 4 to 2020-12: how each is read, and what it asks of a value.

Invariant: a check counts what it does beyond applying further schemas (`Judge.spend`), and writes a message only when
it is told. Deliberately absent: `format`, and keywords that only describe.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from shikisha.schema_compiler import (
    LONGEST_NAME,
    Frame,
    Judge,
    Keyword,
    KeywordCheck,
    Mismatch,
    MisusedError,
    SchemaPart,
    Slot,
    depth_of,
    freeze,
    is_number,
    shown,
)

if TYPE_CHECKING:
    from pydantic import JsonValue  # the engine starts without pydantic

_TYPES: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": is_number,
    "integer": lambda value: is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _type(slot: Slot) -> KeywordCheck:
    names = [slot.value] if isinstance(slot.value, str) else slot.texts()
    if unknown := [name for name in names if name not in _TYPES]:
        raise MisusedError(f"{shown(unknown[0])} is no type; there are {', '.join(_TYPES)}")
    tests = [_TYPES[name] for name in names]
    if slot.draft == 4:
        tests = [(lambda value: type(value) is int) if name == "integer" else _TYPES[name] for name in names]
    wanted = ", ".join(map(repr, names))

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        judge.spend(len(tests))
        if any(test(frame.value) for test in tests):
            return None
        return frame.problem(lambda: f"{shown(frame.value)} is not of type {wanted[:LONGEST_NAME]}")

    return check


def _one_of(values: "list[JsonValue]") -> KeywordCheck:
    frozen = {freeze(value) for value in values}
    wanted = shown(values[0]) if len(values) == 1 else f"one of {shown(values)}"

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if judge.frozen(frame.value) in frozen:
            return None
        return frame.problem(lambda: f"{shown(frame.value)} is not {wanted}")

    return check


def _enum(slot: Slot) -> KeywordCheck:
    return _one_of(slot.values())


def _const(slot: Slot) -> KeywordCheck:
    return _one_of(slot.holding([slot.value]).values())


def _compared(slot: Slot, fits: Callable[[float, float], bool], words: str) -> KeywordCheck:
    most = slot.number()

    def check(_: Judge, frame: Frame) -> Mismatch | None:
        value = frame.value
        if not is_number(value) or fits(value, most):
            return None
        return frame.problem(lambda: f"{shown(value)} is {words} {shown(most)}")

    return check


def _maximum(slot: Slot) -> KeywordCheck:
    if slot.draft == 4 and slot.beside("exclusiveMaximum").value is True:
        return _compared(slot, operator.lt, "not less than")
    return _compared(slot, operator.le, "more than")


def _minimum(slot: Slot) -> KeywordCheck:
    if slot.draft == 4 and slot.beside("exclusiveMinimum").value is True:
        return _compared(slot, operator.gt, "not more than")
    return _compared(slot, operator.ge, "less than")


def _multiple_of(slot: Slot) -> KeywordCheck:
    unit = slot.number()
    if unit <= 0:
        raise MisusedError(f"expected a number above 0, not {shown(unit)}")

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        value = frame.value
        if not is_number(value):
            return None
        if isinstance(value, int) and isinstance(unit, int):
            judge.spend(value.bit_length() // 64)
            fits = value % unit == 0
        else:
            judge.spend(50)  # exactly, as the decimals are written
            fits = Fraction(str(value)) % Fraction(str(unit)) == 0
        return None if fits else frame.problem(lambda: f"{shown(value)} is not a multiple of {shown(unit)}")

    return check


def _length(kind: type, unit: str, *, least: bool) -> "Callable[[Slot], KeywordCheck]":
    def read(slot: Slot) -> KeywordCheck:
        bound = slot.count()

        def check(_: Judge, frame: Frame) -> Mismatch | None:
            value = frame.value
            if not isinstance(value, str | list | dict) or not isinstance(value, kind):
                return None
            if len(value) >= bound if least else len(value) <= bound:
                return None
            words = "at least" if least else "at most"
            return frame.problem(lambda: f"{shown(value)} has {len(value)} {unit}; expected {words} {bound}")

        return check

    return read


def _matching(slot: Slot) -> KeywordCheck:
    text = slot.text()
    pattern = slot.pattern(text)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, str) or judge.found(pattern, frame.value):
            return None
        return frame.problem(lambda: f"{shown(frame.value)} does not match {shown(text)}")

    return check


def _items(slot: Slot) -> KeywordCheck:
    if slot.draft <= 2019 and isinstance(slot.value, list):
        return _prefix(slot)
    start = len(ahead) if slot.draft == 2020 and isinstance(ahead := slot.beside("prefixItems").value, list) else 0
    return _items_from(slot, start)


def _additional_items(slot: Slot) -> KeywordCheck | None:
    ahead = slot.beside("items").value
    return _items_from(slot, len(ahead)) if isinstance(ahead, list) else None


def _items_from(slot: Slot, start: int) -> KeywordCheck:
    part = slot.schema(slot.value)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index in range(start, len(frame.value)):
                if (problem := judge.item(part, frame, index, frame.value[index])) is not None:
                    return problem
        return None

    return check


def _prefix(slot: Slot) -> KeywordCheck:
    parts = slot.schemas()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index, (part, value) in enumerate(zip(parts, frame.value, strict=False)):
                if (problem := judge.item(part, frame, index, value)) is not None:
                    return problem
        return None

    return check


def _contains(slot: Slot) -> KeywordCheck:
    part, most = slot.schema(slot.value), None
    least = 1
    if slot.draft >= 2019:
        if (bound := slot.beside("minContains")).value is not None:
            least = bound.count()
        if (bound := slot.beside("maxContains")).value is not None:
            most = bound.count()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, list):
            return None
        fit = []
        for index, value in enumerate(frame.value):
            judge.spend()
            if judge.apply(part, Frame(value, (frame.path, index), frame.scope)) is None:
                fit.append(index)
        if slot.draft == 2020 and judge.tracks:
            frame.items.update(fit)
        if least <= len(fit) and (most is None or len(fit) <= most):
            return None
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        return frame.problem(lambda: f"{len(fit)} of its items are as `contains` says; expected {wanted}")

    return check


def _unique_items(slot: Slot) -> KeywordCheck | None:
    if slot.value is not True:
        return None

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, list):
            return None
        if len({judge.frozen(item) for item in frame.value}) == len(frame.value):
            return None
        return frame.problem(lambda: "an item is there twice")

    return check


def _required(slot: Slot) -> KeywordCheck:
    names = slot.texts()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(names))
        for name in names:
            if name not in frame.value:
                return frame.problem(lambda: f"{shown(name)} is a required property")  # noqa: B023 - returned at once
        return None

    return check


def _properties(slot: Slot) -> KeywordCheck:
    parts = {name: slot.schema(value, name) for name, value in slot.mapping().items()}

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        value = frame.value
        if not isinstance(value, dict):
            return None
        judge.spend(min(len(parts), len(value)))
        for name in parts if len(parts) <= len(value) else value:
            if name in parts and name in value and (problem := judge.key(parts[name], frame, name, value[name])):
                return problem
        return None

    return check


def _pattern_properties(slot: Slot) -> KeywordCheck:
    parts = [(slot.pattern(text), slot.schema(value, text)) for text, value in slot.mapping().items()]

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for pattern, part in parts:
                for name, value in frame.value.items():
                    if judge.found(pattern, name) and (problem := judge.key(part, frame, name, value)):
                        return problem
        return None

    return check


def _additional_properties(slot: Slot) -> KeywordCheck:
    part = slot.schema(slot.value)
    patterns = slot.beside("patternProperties").patterns()
    named = slot.beside("properties").value
    known: Collection[str] = named.keys() if isinstance(named, dict) else ()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(frame.value))
        for name, value in frame.value.items():
            if name in known or any(judge.found(pattern, name) for pattern in patterns):
                continue
            if (problem := _further(judge, part, frame, name, value)) is not None:
                return problem
        return None

    return check


def _further(judge: Judge, part: SchemaPart, frame: Frame, name: str, value: "JsonValue") -> Mismatch | None:
    if part.refuses:
        return frame.problem(lambda: f"the key {shown(name)} is not allowed")
    return judge.key(part, frame, name, value)


def _property_names(slot: Slot) -> KeywordCheck:
    part = slot.schema(slot.value)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for name in frame.value:
                judge.spend()
                if (problem := judge.apply(part, Frame(name, frame.path, frame.scope))) is not None:
                    return Mismatch(frame.path, lambda: f"the key {shown(name)}: {problem.what()}")  # noqa: B023
        return None

    return check


def _dependent(slot: Slot) -> KeywordCheck:
    """`dependentRequired` and `dependentSchemas`, which `dependencies` was both of."""
    lists: dict[str, list[str]] = {}
    parts: dict[str, SchemaPart] = {}
    for name, value in slot.mapping().items():
        if isinstance(value, list) and slot.name != "dependentSchemas":
            lists[name] = slot.holding(value).texts()
        elif slot.name != "dependentRequired":
            parts[name] = slot.schema(value, name, here=True)
        else:
            raise MisusedError(f"{shown(name)}: expected a list of names, not {shown(value)}")

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(lists) + len(parts))
        for name, needed in lists.items():
            judge.spend(len(needed))
            if name in frame.value and (absent := [each for each in needed if each not in frame.value]):
                return frame.problem(lambda: f"{shown(absent[0])} is a required property beside {shown(name)}")  # noqa: B023
        for name, part in parts.items():
            if name in frame.value and (problem := judge.here(part, frame)) is not None:
                return problem
        return None

    return check


def _all_of(slot: Slot) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        for part in parts:
            if (problem := judge.here(part, frame)) is not None:
                return problem
        return None

    return check


def _any_of(slot: Slot) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        problems = []
        for part in parts:
            problem = judge.here(part, frame)
            if problem is not None:
                problems.append(problem)
            elif not judge.tracks:
                return None
        return _nearest(frame, problems) if len(problems) == len(parts) else None

    return check


def _one_of_them(slot: Slot) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        problems = [problem for part in parts if (problem := judge.here(part, frame)) is not None]
        fit = len(parts) - len(problems)
        if fit == 1:
            return None
        if fit > 1:
            return frame.problem(lambda: f"{shown(frame.value)} fits {fit} of what it may fit one of")
        return _nearest(frame, problems)

    return check


def _nearest(frame: Frame, problems: list[Mismatch]) -> Mismatch:
    """Return what is wrong by the alternative that got furthest into the value, if one got into it at all."""
    deepest = max(problems, key=lambda problem: depth_of(problem.path))
    if depth_of(deepest.path) > depth_of(frame.path) or len(problems) == 1:
        return deepest
    return frame.problem(lambda: f"{shown(frame.value)} fits none of {len(problems)}; the first: {problems[0].what()}")


def _not(slot: Slot) -> KeywordCheck:
    part = slot.schema(slot.value, here=True)

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if judge.here(part, frame) is not None:
            return None
        return frame.problem(lambda: f"{shown(frame.value)} fits what it must not fit")

    return check


def _if(slot: Slot) -> KeywordCheck:
    condition = slot.schema(slot.value, here=True)
    then, other = (slot.beside(name).optional() for name in ("then", "else"))

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        branch = then if judge.here(condition, frame) is None else other
        return None if branch is None else judge.here(branch, frame)

    return check


def _unevaluated_items(slot: Slot) -> KeywordCheck:
    part = slot.schema(slot.value)
    slot.track()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index, value in enumerate(frame.value):
                judge.spend()
                if index not in frame.items and (problem := judge.item(part, frame, index, value)):
                    return problem
        return None

    return check


def _unevaluated_properties(slot: Slot) -> KeywordCheck:
    part = slot.schema(slot.value)
    slot.track()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for name, value in frame.value.items():
                judge.spend()
                if name not in frame.keys and (problem := _further(judge, part, frame, name, value)):
                    return problem
        return None

    return check


def _ref(slot: Slot) -> KeywordCheck:
    reference = slot.reference()
    return lambda judge, frame: judge.here(reference.to, frame)


def _dynamic_ref(slot: Slot) -> KeywordCheck:
    reference = slot.reference()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        part, scope = reference.to, frame.scope
        if part.resource.dynamic.get(reference.name) is part:
            while scope is not None:  # the outermost has the say
                judge.spend()
                part, scope = scope[0].dynamic.get(reference.name, part), scope[1]
        return judge.here(part, frame)

    return check


def _recursive_ref(slot: Slot) -> KeywordCheck:
    reference = slot.reference()

    def check(judge: Judge, frame: Frame) -> Mismatch | None:
        part, scope = reference.to, frame.scope
        while part.resource.recursive is not None and scope is not None:
            judge.spend()
            if scope[0].recursive is None:
                break
            part, scope = scope[0].recursive, scope[1]
        return judge.here(part, frame)

    return check


def _definitions(slot: Slot) -> None:
    for name, value in slot.mapping().items():
        slot.schema(value, name)


KEYWORDS: Mapping[str, Keyword] = {
    "$ref": Keyword(_ref),
    "$recursiveRef": Keyword(_recursive_ref, 2019, 2019),
    "$dynamicRef": Keyword(_dynamic_ref, 2020),
    "$defs": Keyword(_definitions),
    "definitions": Keyword(_definitions),
    "type": Keyword(_type),
    "enum": Keyword(_enum),
    "const": Keyword(_const, 6),
    "maximum": Keyword(_maximum),
    "minimum": Keyword(_minimum),
    "exclusiveMaximum": Keyword(lambda slot: _compared(slot, operator.lt, "not less than"), 6),
    "exclusiveMinimum": Keyword(lambda slot: _compared(slot, operator.gt, "not more than"), 6),
    "multipleOf": Keyword(_multiple_of),
    "maxLength": Keyword(_length(str, "characters", least=False)),
    "minLength": Keyword(_length(str, "characters", least=True)),
    "maxItems": Keyword(_length(list, "items", least=False)),
    "minItems": Keyword(_length(list, "items", least=True)),
    "maxProperties": Keyword(_length(dict, "keys", least=False)),
    "minProperties": Keyword(_length(dict, "keys", least=True)),
    "pattern": Keyword(_matching),
    "prefixItems": Keyword(_prefix, 2020),
    "items": Keyword(_items),
    "additionalItems": Keyword(_additional_items, until=2019),
    "contains": Keyword(_contains, 6),
    "uniqueItems": Keyword(_unique_items),
    "required": Keyword(_required),
    "properties": Keyword(_properties),
    "patternProperties": Keyword(_pattern_properties),
    "additionalProperties": Keyword(_additional_properties),
    "propertyNames": Keyword(_property_names, 6),
    "dependencies": Keyword(_dependent, until=7),
    "dependentRequired": Keyword(_dependent, 2019),
    "dependentSchemas": Keyword(_dependent, 2019),
    "allOf": Keyword(_all_of),
    "anyOf": Keyword(_any_of),
    "oneOf": Keyword(_one_of_them),
    "not": Keyword(_not),
    "if": Keyword(_if, 7),
    "unevaluatedItems": Keyword(_unevaluated_items, 2019, late=True),
    "unevaluatedProperties": Keyword(_unevaluated_properties, 2019, late=True),
}
