"""The keywords of JSON Schema, drafts 4 to 2020-12: how each is read, and what it requires of a value.

Invariant: a check counts its work beyond applying further schemas (`SchemaValidator.spend`), and writes a message only
when it is reported. Deliberately absent: `format`, and keywords that only describe.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from shikisha.core.json_schema.compiler import (
    LONGEST_NAME,
    KeywordCheck,
    KeywordError,
    KeywordValue,
    Mismatch,
    SchemaKeyword,
    SchemaPart,
    SchemaValidator,
    ValueFrame,
    format_value,
    freeze_value,
    is_number,
    path_depth,
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


def _type(slot: KeywordValue) -> KeywordCheck:
    names = [slot.value] if isinstance(slot.value, str) else slot.texts()
    if unknown := [name for name in names if name not in _TYPES]:
        raise KeywordError(f"{format_value(unknown[0])} is no type; there are {', '.join(_TYPES)}")
    tests = [_TYPES[name] for name in names]
    if slot.draft == 4:
        tests = [(lambda value: type(value) is int) if name == "integer" else _TYPES[name] for name in names]
    wanted = ", ".join(map(repr, names))

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        validator.spend(len(tests))
        if any(test(frame.value) for test in tests):
            return None
        return frame.problem(lambda: f"{format_value(frame.value)} is not of type {wanted[:LONGEST_NAME]}")

    return check


def _in_values(values: "list[JsonValue]") -> KeywordCheck:
    frozen = {freeze_value(value) for value in values}
    wanted = format_value(values[0]) if len(values) == 1 else f"one of {format_value(values)}"

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if validator.freeze(frame.value) in frozen:
            return None
        return frame.problem(lambda: f"{format_value(frame.value)} is not {wanted}")

    return check


def _enum(slot: KeywordValue) -> KeywordCheck:
    return _in_values(slot.values())


def _const(slot: KeywordValue) -> KeywordCheck:
    return _in_values(slot.with_value([slot.value]).values())


def _numeric_bound(slot: KeywordValue, fits: Callable[[float, float], bool], words: str) -> KeywordCheck:
    most = slot.number()

    def check(_: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        value = frame.value
        if not is_number(value) or fits(value, most):
            return None
        return frame.problem(lambda: f"{format_value(value)} is {words} {format_value(most)}")

    return check


def _maximum(slot: KeywordValue) -> KeywordCheck:
    if slot.draft == 4 and slot.sibling("exclusiveMaximum").value is True:
        return _numeric_bound(slot, operator.lt, "not less than")
    return _numeric_bound(slot, operator.le, "more than")


def _minimum(slot: KeywordValue) -> KeywordCheck:
    if slot.draft == 4 and slot.sibling("exclusiveMinimum").value is True:
        return _numeric_bound(slot, operator.gt, "not more than")
    return _numeric_bound(slot, operator.ge, "less than")


def _multiple_of(slot: KeywordValue) -> KeywordCheck:
    unit = slot.number()
    if unit <= 0:
        raise KeywordError(f"expected a number above 0, not {format_value(unit)}")

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        value = frame.value
        if not is_number(value):
            return None
        if isinstance(value, int) and isinstance(unit, int):
            validator.spend(value.bit_length() // 64)
            fits = value % unit == 0
        else:
            validator.spend(50)  # exactly, as the decimals are written
            fits = Fraction(str(value)) % Fraction(str(unit)) == 0
        return (
            None if fits else frame.problem(lambda: f"{format_value(value)} is not a multiple of {format_value(unit)}")
        )

    return check


def _length(kind: type, unit: str, *, least: bool) -> "Callable[[KeywordValue], KeywordCheck]":
    def read(slot: KeywordValue) -> KeywordCheck:
        bound = slot.count()

        def check(_: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
            value = frame.value
            if not isinstance(value, str | list | dict) or not isinstance(value, kind):
                return None
            if len(value) >= bound if least else len(value) <= bound:
                return None
            words = "at least" if least else "at most"
            return frame.problem(lambda: f"{format_value(value)} has {len(value)} {unit}; expected {words} {bound}")

        return check

    return read


def _pattern(slot: KeywordValue) -> KeywordCheck:
    text = slot.text()
    pattern = slot.pattern(text)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, str) or validator.search(pattern, frame.value):
            return None
        return frame.problem(lambda: f"{format_value(frame.value)} does not match {format_value(text)}")

    return check


def _items(slot: KeywordValue) -> KeywordCheck:
    if slot.draft <= 2019 and isinstance(slot.value, list):
        return _prefix(slot)
    start = len(ahead) if slot.draft == 2020 and isinstance(ahead := slot.sibling("prefixItems").value, list) else 0
    return _items_from(slot, start)


def _additional_items(slot: KeywordValue) -> KeywordCheck | None:
    ahead = slot.sibling("items").value
    return _items_from(slot, len(ahead)) if isinstance(ahead, list) else None


def _items_from(slot: KeywordValue, start: int) -> KeywordCheck:
    part = slot.schema(slot.value)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index in range(start, len(frame.value)):
                if (problem := validator.apply_to_item(part, frame, index, frame.value[index])) is not None:
                    return problem
        return None

    return check


def _prefix(slot: KeywordValue) -> KeywordCheck:
    parts = slot.schemas()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index, (part, value) in enumerate(zip(parts, frame.value, strict=False)):
                if (problem := validator.apply_to_item(part, frame, index, value)) is not None:
                    return problem
        return None

    return check


def _contains(slot: KeywordValue) -> KeywordCheck:
    part, most = slot.schema(slot.value), None
    least = 1
    if slot.draft >= 2019:
        if (bound := slot.sibling("minContains")).value is not None:
            least = bound.count()
        if (bound := slot.sibling("maxContains")).value is not None:
            most = bound.count()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, list):
            return None
        fit = []
        for index, value in enumerate(frame.value):
            validator.spend()
            if validator.apply(part, ValueFrame(value, (frame.path, index), frame.scope)) is None:
                fit.append(index)
        if slot.draft == 2020 and validator.tracks:
            frame.items.update(fit)
        if least <= len(fit) and (most is None or len(fit) <= most):
            return None
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        return frame.problem(lambda: f"{len(fit)} of its items are as `contains` says; expected {wanted}")

    return check


def _unique_items(slot: KeywordValue) -> KeywordCheck | None:
    if slot.value is not True:
        return None

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, list):
            return None
        if len({validator.freeze(item) for item in frame.value}) == len(frame.value):
            return None
        return frame.problem(lambda: "an item is there twice")

    return check


def _required(slot: KeywordValue) -> KeywordCheck:
    names = slot.texts()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        validator.spend(len(names))
        for name in names:
            if name not in frame.value:
                return frame.problem(lambda: f"{format_value(name)} is a required property")  # noqa: B023 - returned at once
        return None

    return check


def _properties(slot: KeywordValue) -> KeywordCheck:
    parts = {name: slot.schema(value, name) for name, value in slot.mapping().items()}

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        value = frame.value
        if not isinstance(value, dict):
            return None
        validator.spend(min(len(parts), len(value)))
        for name in parts if len(parts) <= len(value) else value:
            if (
                name in parts
                and name in value
                and (problem := validator.apply_to_key(parts[name], frame, name, value[name]))
            ):
                return problem
        return None

    return check


def _pattern_properties(slot: KeywordValue) -> KeywordCheck:
    parts = [(slot.pattern(text), slot.schema(value, text)) for text, value in slot.mapping().items()]

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for pattern, part in parts:
                for name, value in frame.value.items():
                    if validator.search(pattern, name) and (
                        problem := validator.apply_to_key(part, frame, name, value)
                    ):
                        return problem
        return None

    return check


def _additional_properties(slot: KeywordValue) -> KeywordCheck:
    part = slot.schema(slot.value)
    patterns = slot.sibling("patternProperties").patterns()
    named = slot.sibling("properties").value
    known: Collection[str] = named.keys() if isinstance(named, dict) else ()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        validator.spend(len(frame.value))
        for name, value in frame.value.items():
            if name in known or any(validator.search(pattern, name) for pattern in patterns):
                continue
            if (problem := _additional_key(validator, part, frame, name, value)) is not None:
                return problem
        return None

    return check


def _additional_key(
    validator: SchemaValidator, part: SchemaPart, frame: ValueFrame, name: str, value: "JsonValue"
) -> Mismatch | None:
    if part.refuses:
        return frame.problem(lambda: f"the key {format_value(name)} is not allowed")
    return validator.apply_to_key(part, frame, name, value)


def _property_names(slot: KeywordValue) -> KeywordCheck:
    part = slot.schema(slot.value)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for name in frame.value:
                validator.spend()
                if (problem := validator.apply(part, ValueFrame(name, frame.path, frame.scope))) is not None:
                    return Mismatch(frame.path, lambda: f"the key {format_value(name)}: {problem.what()}")  # noqa: B023
        return None

    return check


def _dependent(slot: KeywordValue) -> KeywordCheck:
    """Compile `dependentRequired` and `dependentSchemas`, which `dependencies` combined."""
    lists: dict[str, list[str]] = {}
    parts: dict[str, SchemaPart] = {}
    for name, value in slot.mapping().items():
        if isinstance(value, list) and slot.name != "dependentSchemas":
            lists[name] = slot.with_value(value).texts()
        elif slot.name != "dependentRequired":
            parts[name] = slot.schema(value, name, here=True)
        else:
            raise KeywordError(f"{format_value(name)}: expected a list of names, not {format_value(value)}")

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if not isinstance(frame.value, dict):
            return None
        validator.spend(len(lists) + len(parts))
        for name, needed in lists.items():
            validator.spend(len(needed))
            if name in frame.value and (absent := [each for each in needed if each not in frame.value]):
                return frame.problem(
                    lambda: f"{format_value(absent[0])} is a required property next to {format_value(name)}"  # noqa: B023
                )
        for name, part in parts.items():
            if name in frame.value and (problem := validator.apply_here(part, frame)) is not None:
                return problem
        return None

    return check


def _all_of(slot: KeywordValue) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        for part in parts:
            if (problem := validator.apply_here(part, frame)) is not None:
                return problem
        return None

    return check


def _any_of(slot: KeywordValue) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        problems = []
        for part in parts:
            problem = validator.apply_here(part, frame)
            if problem is not None:
                problems.append(problem)
            elif not validator.tracks:
                return None
        return _nearest_mismatch(frame, problems) if len(problems) == len(parts) else None

    return check


def _exactly_one_of(slot: KeywordValue) -> KeywordCheck:
    parts = slot.schemas(here=True)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        problems = [problem for part in parts if (problem := validator.apply_here(part, frame)) is not None]
        fit = len(parts) - len(problems)
        if fit == 1:
            return None
        if fit > 1:
            return frame.problem(lambda: f"{format_value(frame.value)} fits {fit} of what it may fit one of")
        return _nearest_mismatch(frame, problems)

    return check


def _nearest_mismatch(frame: ValueFrame, problems: list[Mismatch]) -> Mismatch:
    """Return the mismatch of the alternative that matched deepest, if one matched a part at all."""
    deepest = max(problems, key=lambda problem: path_depth(problem.path))
    if path_depth(deepest.path) > path_depth(frame.path) or len(problems) == 1:
        return deepest
    return frame.problem(
        lambda: f"{format_value(frame.value)} fits none of {len(problems)}; the first: {problems[0].what()}"
    )


def _not(slot: KeywordValue) -> KeywordCheck:
    part = slot.schema(slot.value, here=True)

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if validator.apply_here(part, frame) is not None:
            return None
        return frame.problem(lambda: f"{format_value(frame.value)} fits what it must not fit")

    return check


def _if(slot: KeywordValue) -> KeywordCheck:
    condition = slot.schema(slot.value, here=True)
    then, other = (slot.sibling(name).optional() for name in ("then", "else"))

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        branch = then if validator.apply_here(condition, frame) is None else other
        return None if branch is None else validator.apply_here(branch, frame)

    return check


def _unevaluated_items(slot: KeywordValue) -> KeywordCheck:
    part = slot.schema(slot.value)
    slot.track()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, list):
            for index, value in enumerate(frame.value):
                validator.spend()
                if index not in frame.items and (problem := validator.apply_to_item(part, frame, index, value)):
                    return problem
        return None

    return check


def _unevaluated_properties(slot: KeywordValue) -> KeywordCheck:
    part = slot.schema(slot.value)
    slot.track()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        if isinstance(frame.value, dict):
            for name, value in frame.value.items():
                validator.spend()
                if name not in frame.keys and (problem := _additional_key(validator, part, frame, name, value)):
                    return problem
        return None

    return check


def _ref(slot: KeywordValue) -> KeywordCheck:
    reference = slot.reference()
    return lambda validator, frame: validator.apply_here(reference.to, frame)


def _dynamic_ref(slot: KeywordValue) -> KeywordCheck:
    reference = slot.reference()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        part, scope = reference.to, frame.scope
        if part.resource.dynamic.get(reference.name) is part:
            while scope is not None:  # the outermost one wins
                validator.spend()
                part, scope = scope[0].dynamic.get(reference.name, part), scope[1]
        return validator.apply_here(part, frame)

    return check


def _recursive_ref(slot: KeywordValue) -> KeywordCheck:
    reference = slot.reference()

    def check(validator: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
        part, scope = reference.to, frame.scope
        while part.resource.recursive is not None and scope is not None:
            validator.spend()
            if scope[0].recursive is None:
                break
            part, scope = scope[0].recursive, scope[1]
        return validator.apply_here(part, frame)

    return check


def _definitions(slot: KeywordValue) -> None:
    for name, value in slot.mapping().items():
        slot.schema(value, name)


KEYWORDS: Mapping[str, SchemaKeyword] = {
    "$ref": SchemaKeyword(_ref),
    "$recursiveRef": SchemaKeyword(_recursive_ref, 2019, 2019),
    "$dynamicRef": SchemaKeyword(_dynamic_ref, 2020),
    "$defs": SchemaKeyword(_definitions),
    "definitions": SchemaKeyword(_definitions),
    "type": SchemaKeyword(_type),
    "enum": SchemaKeyword(_enum),
    "const": SchemaKeyword(_const, 6),
    "maximum": SchemaKeyword(_maximum),
    "minimum": SchemaKeyword(_minimum),
    "exclusiveMaximum": SchemaKeyword(lambda slot: _numeric_bound(slot, operator.lt, "not less than"), 6),
    "exclusiveMinimum": SchemaKeyword(lambda slot: _numeric_bound(slot, operator.gt, "not more than"), 6),
    "multipleOf": SchemaKeyword(_multiple_of),
    "maxLength": SchemaKeyword(_length(str, "characters", least=False)),
    "minLength": SchemaKeyword(_length(str, "characters", least=True)),
    "maxItems": SchemaKeyword(_length(list, "items", least=False)),
    "minItems": SchemaKeyword(_length(list, "items", least=True)),
    "maxProperties": SchemaKeyword(_length(dict, "keys", least=False)),
    "minProperties": SchemaKeyword(_length(dict, "keys", least=True)),
    "pattern": SchemaKeyword(_pattern),
    "prefixItems": SchemaKeyword(_prefix, 2020),
    "items": SchemaKeyword(_items),
    "additionalItems": SchemaKeyword(_additional_items, until=2019),
    "contains": SchemaKeyword(_contains, 6),
    "uniqueItems": SchemaKeyword(_unique_items),
    "required": SchemaKeyword(_required),
    "properties": SchemaKeyword(_properties),
    "patternProperties": SchemaKeyword(_pattern_properties),
    "additionalProperties": SchemaKeyword(_additional_properties),
    "propertyNames": SchemaKeyword(_property_names, 6),
    "dependencies": SchemaKeyword(_dependent, until=7),
    "dependentRequired": SchemaKeyword(_dependent, 2019),
    "dependentSchemas": SchemaKeyword(_dependent, 2019),
    "allOf": SchemaKeyword(_all_of),
    "anyOf": SchemaKeyword(_any_of),
    "oneOf": SchemaKeyword(_exactly_one_of),
    "not": SchemaKeyword(_not),
    "if": SchemaKeyword(_if, 7),
    "unevaluatedItems": SchemaKeyword(_unevaluated_items, 2019, late=True),
    "unevaluatedProperties": SchemaKeyword(_unevaluated_properties, 2019, late=True),
}
