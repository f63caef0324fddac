"""Encode values that cross between the test runner's process and the program's: as JSON, copied or named by a number.

This file's text is sent to both processes, so it needs nothing but the standard library. Plain data (exact built-in
types) is copied. An object of any other class stays where it is and crosses as a number. Invariants: nothing here
unpickles or evaluates what arrives; what arrives is data of one form, or an error. Deliberately absent: the proxies for
objects that stay (`harness_proxy`), and the exchange of messages (`harness_rpc`).
"""

import array
import builtins
import datetime
import json
import marshal
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from shikisha_code.harness_proxy import (
    BUILTIN_BASES,
    ITERATION_KINDS,
    PROXIED_METHODS,
    HarnessRefusal,
    proxied_object,
)

if TYPE_CHECKING:
    from shikisha_code.harness_rpc import RpcPeer

WireValue: TypeAlias = "bool | int | float | str | list[WireValue] | dict[str, WireValue] | None"

_SMALL_INT = 2**60
to_json = json.JSONEncoder().encode
_CONTAINER_KINDS: dict[type, str] = {
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    list: "list",
    dict: "dict",
    deque: "deque",
    OrderedDict: "ordered",
    Counter: "counter",
    defaultdict: "default",
    bytearray: "bytearray",
}
_MUTABLE_TYPES = frozenset({list, dict, set, deque, OrderedDict, Counter, defaultdict, bytearray})
_PLAIN_CONTENTS: dict[type, Callable[..., object]] = {  # the contents of a subclass's object, bypassing its own methods
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: lambda one: complex(one.real, one.imag),
    bytes: lambda one: bytes.__getitem__(one, slice(None)),
    tuple: lambda one: tuple.__getitem__(one, slice(None)),
    frozenset: lambda one: frozenset([*frozenset.__iter__(one)]),
}
_TYPE_NAMES: dict[str, object] = {
    kind.__name__: kind
    for kind in (*BUILTIN_BASES, bool, bytearray, object, type, type(None), range, slice, deque, OrderedDict, Counter)
} | {
    "defaultdict": defaultdict,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "Ellipsis": ...,
    "NotImplemented": NotImplemented,
}
_TYPE_NAMES |= {kind.__name__: kind for kind in (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)}
ERRORS: dict[str, type[BaseException]] = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}


class MessageEncoder:
    """Encodes the values of one message; a container that occurs again, or came with the request, becomes a number."""

    def __init__(self, peer: "RpcPeer", slots: list[object] | None = None) -> None:
        self._peer = peer
        self.slots: list[object] = [] if slots is None else list(slots)
        self._places = {id(one): place for place, one in enumerate(self.slots)}

    def value(self, value: object) -> WireValue:
        """Return a value as JSON data."""
        kind = type(value)
        if value is None or kind is str or kind is bool:
            return value  # type: ignore[return-value]
        if kind is int:
            return value if -_SMALL_INT < value < _SMALL_INT else {"int": f"{value:x}"}  # type: ignore[operator,return-value]
        if kind is float:
            return value if value - value == 0 else {"float": repr(value)}  # type: ignore[operator,return-value]
        if kind in _MUTABLE_TYPES:
            if id(value) in self._places:
                return {"again": self._places[id(value)]}
            self._places[id(value)] = len(self.slots)
            self.slots.append(value)
            return self.contents(value)
        if self._peer.common and (shared := self._common(value)) is not None:
            return shared
        if kind is tuple or kind is frozenset:
            return {_CONTAINER_KINDS[kind]: self._all(value)}  # type: ignore[arg-type]
        if kind.__module__.partition(".")[0] == "pandas" and (frame := self._pandas(value)) is not None:
            return frame
        return _encode_scalar(value) or self._object(value)

    def _pandas(self, value: object) -> WireValue:
        """Encode frames, series, indexes and times of pandas, column by column; None for its other objects."""
        one: Any = value
        match type(value).__name__:
            case "DataFrame":
                columns: list[WireValue] = [self._column(one.iloc[:, place]) for place in range(one.shape[1])]
                return {"frame": [self.value(one.columns), self.value(one.index), columns]}
            case "Series":
                return {"series": [self.value(one.name), self.value(one.index), self._column(one)]}
            case "RangeIndex":
                return {"index_range": [one.start, one.stop, one.step, self.value(one.name)]}
            case "MultiIndex":
                return {"index_tuples": [self._all(one.tolist()), self._all(one.names)]}
            case "Index" | "DatetimeIndex" | "TimedeltaIndex":
                return {"index": [self.value(one.name), self._column(one), getattr(one, "freqstr", None)]}
            case "Timestamp" | "Timedelta":
                return {type(value).__name__.lower() + "_pandas": str(one.isoformat())}
            case "NaTType" | "NAType":
                return {"missing_pandas": type(value).__name__}
        return None

    def _column(self, column: Any) -> list[WireValue]:  # noqa: ANN401 - pandas need not be installed
        kind = str(column.dtype)
        return [kind, self.value(column.to_numpy() if _PANDAS_PLAIN.fullmatch(kind) else column.tolist())]

    def _common(self, value: object) -> WireValue:
        """Encode an instance of a class that both sides have; None for any other value."""
        kind = type(value)
        if self._peer.common.get(kind.__name__) is not kind or isinstance(value, BaseException):
            return None
        if isinstance(value, Enum):
            return {"member": [kind.__name__, value.name]}
        if not hasattr(value, "__dict__") or next((one for one in BUILTIN_BASES if isinstance(value, one)), None):
            return None
        if id(value) in self._places:
            return {"again": self._places[id(value)]}
        self._places[id(value)] = len(self.slots)
        self.slots.append(value)
        return self.contents(value)

    def contents(self, one: object) -> WireValue:
        """Encode the contents of a container."""
        kind = type(one)
        if self._peer.common.get(kind.__name__) is kind:
            parts: list[WireValue] = [[self.value(name), self.value(value)] for name, value in vars(one).items()]
            return {"instance": [kind.__name__, parts]}
        match one:
            case bytearray():
                return {"bytearray": one.hex()}
            case dict():
                pairs: list[WireValue] = [[self.value(key), self.value(value)] for key, value in dict.items(one)]
                if isinstance(one, defaultdict):
                    factory = getattr(one.default_factory, "__name__", None)
                    return {"default": [factory if factory in _TYPE_NAMES else None, pairs]}
                return {_CONTAINER_KINDS.get(kind, "dict"): pairs}
            case deque():
                return {"deque": [self._all(one), one.maxlen]}
            case set():
                return {"set": self._all(set.__iter__(one))}
            case list():
                return self._all(list.__iter__(one))
        raise TypeError("no container")

    def _all(self, values: Iterable[object]) -> list[WireValue]:
        return [
            one if (kind := type(one)) is str or kind is bool or one is None else self.value(one)  # type: ignore[misc]
            for one in values
        ]

    def _object(self, value: object) -> WireValue:
        """Encode a reference to an object that stays here."""
        if issubclass(type(value), BaseException):
            return self._error(value)  # type: ignore[arg-type]
        if (known := proxied_object(value)) is not None and known[0] is self._peer:
            return {"yours": known[1]}
        match value:
            case KeysView() | ItemsView() | ValuesView() if type(value).__module__ == "builtins":
                return {type(value).__name__: self._all(value)}
            case type():
                return self._type(value)
        if shared := self._peer.shareable(value):
            return {"global": list(shared)}
        if (parts := self._peer.portable(value)) is not None:
            return {"code": self._all(parts)}
        if isinstance(value, ModuleType) and self._peer.sends_code:
            return {"module": value.__name__}
        return self._own(value)

    def _type(self, kind: type) -> WireValue:
        if _TYPE_NAMES.get(kind.__name__) is kind or kind is type(None):
            return {"type": kind.__name__}
        if issubclass(kind, BaseException):
            return {"error_class": self._lineage(kind)}
        if other := getattr(kind, "_other_", None):
            return {"yours": other}
        if shared := self._peer.shareable(kind):
            return {"global": list(shared)}
        about: list[WireValue] = [-1 - self._peer.number(kind), kind.__name__, list(_special_methods(type(kind))), ""]
        bases = [one for one in type.mro(kind)[1:-1] if one.__module__.partition(".")[0] in sys.stdlib_module_names]
        base: WireValue = [bases[0].__module__, bases[0].__qualname__] if bases else None
        return {"own": [self._peer.number(kind), "class", base, about]}

    def _own(self, value: object) -> WireValue:
        kind = type(value)
        base = next((one for one in BUILTIN_BASES if issubclass(kind, one)), None)
        contents: WireValue = None
        if base in {list, dict, set}:
            self.slots.append(value)  # the other side counts a container here
            contents = self.contents(value)
        elif base is not None:
            contents = self.value(_PLAIN_CONTENTS[base](value))
        about: list[WireValue] = [self._peer.number(kind), kind.__name__, list(_special_methods(kind)), kind.__module__]
        name = "" if base is None else base.__name__
        if base is None and kind in ITERATION_KINDS:
            name = ITERATION_KINDS[kind]
        return {"own": [self._peer.number(value), name, contents, about]}

    def _error(self, error: BaseException) -> WireValue:
        arguments = self._all(error.args)
        attributes: dict[str, WireValue] = {
            name: self.value(one)
            for name, one in list(vars(error).items())
            if name[:1] != "_" and (one is None or type(one) in (str, int, float, bool, list, tuple, dict))
        }
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - the program's own __str__ may raise anything
            text = ""
        return {"error": [self._lineage(type(error)), arguments, attributes, text, self.value(error.__cause__)]}

    def _lineage(self, kind: type) -> list[WireValue]:
        """Encode an exception class so that the other side finds or creates it: itself and its bases."""
        line: list[WireValue] = []
        for one in type.mro(kind):
            if not issubclass(one, BaseException):
                continue
            if (other := one.__dict__.get("_other_")) is not None:
                line.append([other, "yours", one.__name__])
            elif ERRORS.get(one.__name__) is one:
                line.append([None, "builtins", one.__name__])
                break
            elif one.__module__ in sys.modules and one.__module__ not in PRIVATE_MODULES:
                line.append([self._peer.number(one), one.__module__, one.__qualname__])
            else:
                line.append([self._peer.number(one), "", one.__name__])
        return line


DATA_MODULES = frozenset(
    {"builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "uuid", "enum", "re"}
)
PRIVATE_MODULES = frozenset({"__main__", "program", "tests", "builtins"})
UNSHARED_MODULES = frozenset(
    {"unittest", "_pytest", "pytest", "gc", "ctypes", "_ctypes", "inspect", "sys", "importlib"}
)


def stdlib_location(value: object) -> tuple[str, str] | None:
    """Return the module and name by which both sides find the same standard library function or class."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(value, BuiltinFunctionType | FunctionType | type) or not isinstance(name, str):
        return None
    if getattr(value, "__self__", None) is not None and not isinstance(getattr(value, "__self__", None), ModuleType):
        return None
    if (
        not isinstance(module, str)
        or module in PRIVATE_MODULES - {"builtins"}
        or module.partition(".")[0] in UNSHARED_MODULES
    ):
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names or "." in name:
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def function_parts(function: FunctionType) -> list[object] | None:
    """Return a function's parts; None when it needs more than built-ins and standard modules, or has a closure."""
    code = function.__code__
    if code.co_freevars:
        return None
    needed: dict[str, object] = {}
    waiting = [code]
    while waiting:
        one = waiting.pop()
        waiting += [part for part in one.co_consts if isinstance(part, CodeType)]
        for name in one.co_names:
            found = function.__globals__.get(name)
            if isinstance(found, ModuleType) and found.__name__ in sys.stdlib_module_names:
                needed[name] = found
            elif name in function.__globals__:
                return None
    whole = marshal.dumps(code)
    return [whole, function.__name__, function.__defaults__, function.__kwdefaults__, function.__annotations__, needed]


def _special_methods(kind: type) -> list[str]:
    """Return the special methods of a class's objects; of one that derives from a built-in, what it overrides."""
    found: list[str] = []
    built_in: list[str] = next((dir(one) for one in BUILTIN_BASES if issubclass(kind, one)), [])
    for one in type.mro(kind):
        if one is object or (built_in and one.__module__ in {"builtins", "collections"}):
            continue
        overridden = [name for name in built_in if name[:1] != "_"]
        found += [
            name for name in (*PROXIED_METHODS, *overridden) if name not in found and one.__dict__.get(name) is not None
        ]
    return found


def _encode_scalar(value: object) -> WireValue:
    """Encode data of one exact standard library type; None for everything else."""
    kind = type(value)
    if kind is bytes:
        return {"bytes": value.hex()}  # type: ignore[attr-defined]
    if kind is complex:
        return {"complex": repr(value)}
    if kind is Decimal:
        return {"decimal": str(value)}
    if kind is Fraction:
        return {"fraction": [f"{value.numerator:x}", f"{value.denominator:x}"]}  # type: ignore[attr-defined]
    if kind is range:
        return {"range": [str(value.start), str(value.stop), str(value.step)]}  # type: ignore[attr-defined]
    if kind is slice and all(one is None or type(one) is int for one in (value.start, value.stop, value.step)):  # type: ignore[attr-defined]
        return {"slice": [value.start, value.stop, value.step]}  # type: ignore[attr-defined]
    if kind in (datetime.datetime, datetime.time, datetime.date, datetime.timedelta, datetime.timezone):
        return _encode_time(value)
    if kind is zoneinfo.ZoneInfo:
        return {"zone": value.key}  # type: ignore[attr-defined]
    if kind is uuid.UUID:
        return {"uuid": value.hex}  # type: ignore[attr-defined]
    if isinstance(value, PurePath) and kind.__module__.startswith("pathlib"):
        return {"path" if isinstance(value, Path) else "pure_path": str(value)}
    if kind is re.Pattern:
        return {"pattern": [_encode_scalar(value.pattern) or value.pattern, value.flags]}  # type: ignore[attr-defined]
    if kind is array.array:
        return {"array": [value.typecode, value.tobytes().hex()]}  # type: ignore[attr-defined]
    if value is ... or value is NotImplemented:
        return {"type": "Ellipsis" if value is ... else "NotImplemented"}
    return _encode_numpy(value)


def _encode_numpy(value: object) -> WireValue:
    """Encode NumPy's scalars and arrays as bytes; None for everything else."""
    if type(value).__module__.partition(".")[0] != "numpy":
        return None
    shape, tobytes, dtype = (getattr(value, name, None) for name in ("shape", "tobytes", "dtype"))
    if isinstance(shape, tuple) and callable(tobytes) and getattr(dtype, "kind", "O") in "biufcSUmM":
        is_array = type(value).__name__ == "ndarray"
        return {"ndarray" if is_array else "numpy_scalar": [str(dtype.str), list(shape), tobytes().hex()]}  # type: ignore[union-attr]
    return None


def _encode_time(value: object) -> WireValue:
    match value:
        case datetime.datetime():
            numbers: list[WireValue] = [value.year, value.month, value.day, value.hour, value.minute, value.second]
            return {"datetime": [[*numbers, value.microsecond], _encode_zone(value.tzinfo), value.fold]}
        case datetime.time():
            numbers = [value.hour, value.minute, value.second, value.microsecond]
            return {"time": [numbers, _encode_zone(value.tzinfo), value.fold]}
        case datetime.date():
            return {"date": [value.year, value.month, value.day]}
        case datetime.timedelta():
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        case datetime.timezone():
            return {"timezone": [_encode_time(value.utcoffset(None)), value.tzname(None)]}
    return None


def _encode_zone(zone: datetime.tzinfo | None) -> WireValue:
    if zone is None:
        return None
    if (known := _encode_scalar(zone)) is None:
        raise TypeError("a time zone of the program's own class")
    return known


class MessageDecoder:
    """Decodes the values of one message. Any input gives a value or HarnessRefusal."""

    def __init__(self, peer: "RpcPeer", slots: list[object] | None = None) -> None:
        self._peer = peer
        self.slots: list[object] = [] if slots is None else list(slots)

    def value(self, wire: WireValue) -> object:
        """Decode one value."""
        try:
            return self._value(wire)
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, IndexError, AttributeError) as error:
            raise HarnessRefusal(f"a value that cannot be read: {type(error).__name__}") from None

    def _value(self, wire: WireValue) -> object:
        if isinstance(wire, list):
            made: list[object] = []
            self.slots.append(made)
            made.extend([one if type(one) in _SIMPLE_TYPES else self._value(one) for one in wire])
            return made
        if not isinstance(wire, dict):
            return wire
        ((kind, body),) = wire.items()
        if kind in _SCALARS:
            return self._peer.array(_decode_ndarray(body)) if kind == "ndarray" else _SCALARS[kind](body)
        return getattr(self, f"_{kind}")(body) if kind in _STRUCTURES else self._unknown(kind)

    def _unknown(self, kind: str) -> object:
        raise ValueError(kind)

    def _each(self, body: WireValue) -> list[object]:
        if not isinstance(body, list):
            raise TypeError("expected a list")
        return [self._value(one) for one in body]

    def _tuple(self, body: WireValue) -> object:
        return tuple(self._each(body))

    def _frozenset(self, body: WireValue) -> object:
        return frozenset(self._each(body))

    def _set(self, body: WireValue) -> object:
        made: set[object] = set()
        self.slots.append(made)
        made.update(self._each(body))
        return made

    def _pairs(self, made: dict[object, object], body: WireValue) -> object:
        self.slots.append(made)
        for key, value in body:  # type: ignore[union-attr,misc,str-unpack]  # anything but a pair is an error
            made[self._value(key)] = self._value(value)
        return made

    def _dict(self, body: WireValue) -> object:
        return self._pairs({}, body)

    def _ordered(self, body: WireValue) -> object:
        return self._pairs(OrderedDict(), body)

    def _counter(self, body: WireValue) -> object:
        return self._pairs(Counter(), body)  # type: ignore[arg-type]

    def _default(self, body: WireValue) -> object:
        name, pairs = body  # type: ignore[misc,str-unpack]
        factory = _TYPE_NAMES[name] if isinstance(name, str) else None
        return self._pairs(defaultdict(factory), pairs)  # type: ignore[call-overload]

    def _deque(self, body: WireValue) -> object:
        items, most = body  # type: ignore[misc,str-unpack]
        made: deque[object] = deque(maxlen=most)  # type: ignore[arg-type]
        self.slots.append(made)
        made.extend(self._each(items))
        return made

    def _instance(self, body: WireValue) -> object:
        name, parts = body  # type: ignore[misc,str-unpack]
        kind = self._peer.common[str(name)]
        made = kind.__new__(kind)  # type: ignore[call-overload]
        self.slots.append(made)
        for key, value in parts:  # type: ignore[union-attr,misc,str-unpack]
            if callable(getattr(kind, str(key), None)):
                raise ValueError("a method")
            vars(made)[str(key)] = self._value(value)
        return made

    def _member(self, body: WireValue) -> object:
        kind, name = body  # type: ignore[misc,str-unpack]
        return vars(self._peer.common[str(kind)])["_member_map_"][str(name)]

    def _frame(self, body: WireValue) -> object:
        columns, index, parts = body  # type: ignore[misc,str-unpack]
        names, rows, pandas = self._value(columns), self._value(index), _pandas_module()
        made = pandas.DataFrame({place: self._series_of(part, rows) for place, part in enumerate(parts)}, index=rows)  # type: ignore[arg-type]
        made.columns = names
        return made

    def _series(self, body: WireValue) -> object:
        name, index, part = body  # type: ignore[misc,str-unpack]
        label, made = self._value(name), self._series_of(part, self._value(index))
        made.name = label
        return made

    def _series_of(self, part: WireValue, index: object) -> Any:  # noqa: ANN401 - pandas need not be installed
        kind, values = part  # type: ignore[misc,str-unpack]
        if not isinstance(kind, str) or not _PANDAS_KIND.fullmatch(kind):
            raise ValueError("no kind of column")
        return _pandas_module().Series(self._value(values), index=index, dtype=kind)

    def _index(self, body: WireValue) -> object:
        name, part, frequency = body  # type: ignore[misc,str-unpack]
        made = _pandas_module().Index(self._series_of(part, None), name=self._value(name))
        if isinstance(frequency, str) and frequency.isalnum():
            made.freq = frequency
        return made

    def _index_range(self, body: WireValue) -> object:
        start, stop, step, name = body  # type: ignore[misc,str-unpack]
        return _pandas_module().RangeIndex(start, stop, step, name=self._value(name))

    def _index_tuples(self, body: WireValue) -> object:
        rows, names = body  # type: ignore[misc,str-unpack]
        return _pandas_module().MultiIndex.from_tuples(self._each(rows), names=self._each(names))

    def _code(self, body: WireValue) -> object:
        return self._peer.function(self._each(body))

    def _module(self, body: WireValue) -> object:
        return self._peer.module(str(body))

    def _bytearray(self, body: WireValue) -> object:
        made = bytearray.fromhex(body)  # type: ignore[arg-type]
        self.slots.append(made)
        return made

    def _again(self, body: WireValue) -> object:
        if type(body) is not int or body < 0:
            raise TypeError("expected a place")
        return self.slots[body]

    def _dict_keys(self, body: WireValue) -> object:
        return dict.fromkeys(self._each(body)).keys()

    def _dict_values(self, body: WireValue) -> object:
        return dict(enumerate(self._each(body))).values()

    def _dict_items(self, body: WireValue) -> object:
        return dict(self._each(body)).items()  # type: ignore[arg-type]

    def _type(self, body: WireValue) -> object:
        return type(None) if body == "NoneType" else _TYPE_NAMES[str(body)]

    def _global(self, body: WireValue) -> object:
        module, name = map(str, body)  # type: ignore[arg-type]
        if module.partition(".")[0] not in sys.stdlib_module_names or module.partition(".")[0] in UNSHARED_MODULES:
            raise ValueError(module)
        return self._peer.shared_object(module, name)

    def _yours(self, body: WireValue) -> object:
        return self._peer.held_object(body)

    def _own(self, body: WireValue) -> object:
        return self._peer.proxy(body, self)  # type: ignore[arg-type]

    def _error_class(self, body: WireValue) -> object:
        return self._derived(body)

    def _error(self, body: WireValue) -> object:
        line, arguments, attributes, text, *causes = body  # type: ignore[misc,str-unpack]
        kind = self._derived(line)
        values = self._each(arguments)
        try:
            error = kind(*values)
        except Exception:  # noqa: BLE001 - classes whose arguments differ from `args`
            error = kind.__new__(kind)
            error.args = tuple(values)
        for name, one in attributes.items():  # type: ignore[union-attr]
            if name.isidentifier() and name[:1] != "_":
                try:
                    setattr(error, name, self._value(one))
                except (AttributeError, TypeError):
                    continue
        if hasattr(kind, "_other_"):
            error._text_ = str(text)  # type: ignore[attr-defined]
        cause = self._value(causes[0]) if causes else None
        error.__cause__ = cause if isinstance(cause, BaseException) else None
        return error

    def _derived(self, line: WireValue) -> type[BaseException]:
        """Return an exception's class: its first known base, or stand-ins for the other side's subclasses."""
        made: list[tuple[int, str]] = []
        kind: type[BaseException] = Exception
        for number, module, name in line:  # type: ignore[union-attr,misc,str-unpack]
            found = self._peer.error_here(number, str(module), str(name))
            if found is not None:
                kind = found
                break
            made.append((int(str(number)), str(name).rpartition(".")[2]))
        for number, name in reversed(made):
            kind = self._peer.error_class(number, name, kind)
        return kind


_SIMPLE_TYPES = (int, str, float, bool, type(None))
_STRUCTURES = frozenset({"instance", "member", "code", "module", "tuple", "frozenset", "set", "dict", "ordered"})
_STRUCTURES |= {"counter", "default", "deque", "bytearray", "again", "dict_keys", "dict_values", "dict_items"}
_STRUCTURES |= {"frame", "series", "index", "index_range", "index_tuples"}
_STRUCTURES |= {"type", "global", "yours", "own", "error", "error_class"}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?|[-+]?(Infinity|s?NaN\d{0,9})", re.ASCII)


def _decode_decimal(text: WireValue) -> Decimal:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise ValueError("no number")
    return Decimal(text)


def _decode_fraction(body: WireValue) -> Fraction:
    top, bottom = body  # type: ignore[misc,str-unpack]
    return Fraction(int(top, 16), int(bottom, 16))  # type: ignore[arg-type]


_PANDAS_PLAIN = re.compile("u?int(8|16|32|64)|float(32|64)|bool|complex128")
_PANDAS_KIND = re.compile(
    r"U?[Ii]nt(8|16|32|64)|uint(8|16|32|64)|[Ff]loat(32|64)|bool(ean)?|complex128|object|str(ing)?|"
    r"category|(datetime|timedelta)64\[\w{1,2}(, [\w/+:-]{1,40})?\]|period\[[\w-]{1,9}\]"
)


def _pandas_module() -> Any:  # noqa: ANN401 - pandas need not be installed
    return __import__("pandas")


def _decode_numpy_scalar(body: WireValue) -> object:
    return _decode_ndarray(body)[()]  # type: ignore[index]


def _decode_ndarray(body: WireValue) -> object:
    kind, shape, data = body  # type: ignore[misc,str-unpack]
    numpy = __import__("numpy")
    if not isinstance(kind, str) or not re.fullmatch(r"[<>|=][biufcSUmM]\d{1,4}(\[\w{1,2}\])?", kind):
        raise ValueError("no kind of number")
    return numpy.frombuffer(bytes.fromhex(data), numpy.dtype(kind)).reshape(shape).copy()  # type: ignore[arg-type]


def _decode_time(make: Callable[..., object], body: WireValue) -> object:
    numbers, zone, fold = body  # type: ignore[misc,str-unpack]
    return make(*numbers, tzinfo=None if zone is None else _decode_zone(zone), fold=fold)  # type: ignore[misc]


def _decode_zone(wire: WireValue) -> object:
    ((kind, body),) = wire.items()  # type: ignore[union-attr]
    return {"zone": zoneinfo.ZoneInfo, "timezone": _decode_timezone}[kind](body)  # type: ignore[arg-type]


def _decode_timezone(body: WireValue) -> datetime.timezone:
    gap, name = body  # type: ignore[misc,str-unpack]
    return datetime.timezone(datetime.timedelta(*gap["timedelta"]), str(name))  # type: ignore[misc,index,call-overload]


def _decode_array(body: WireValue) -> object:
    code, data = body  # type: ignore[misc,str-unpack]
    return array.array(str(code), bytes.fromhex(str(data)))


def _decode_pattern(body: WireValue) -> object:
    text, flags = body  # type: ignore[misc,str-unpack]
    return re.compile(bytes.fromhex(text["bytes"]) if isinstance(text, dict) else text, flags)  # type: ignore[arg-type,type-var]


_SCALARS: Mapping[str, Callable[..., object]] = {
    "int": lambda body: int(body, 16),
    "float": float,
    "bytes": bytes.fromhex,
    "complex": complex,
    "decimal": _decode_decimal,
    "fraction": _decode_fraction,
    "range": lambda body: range(*map(int, body)),
    "slice": lambda body: slice(*body),
    "datetime": lambda body: _decode_time(datetime.datetime, body),
    "time": lambda body: _decode_time(datetime.time, body),
    "date": lambda body: datetime.date(*body),
    "timedelta": lambda body: datetime.timedelta(*body),
    "timezone": _decode_timezone,
    "zone": zoneinfo.ZoneInfo,
    "uuid": uuid.UUID,
    "path": Path,
    "pure_path": PurePath,
    "pattern": _decode_pattern,
    "array": _decode_array,
    "numpy_scalar": _decode_numpy_scalar,
    "timestamp_pandas": lambda body: _pandas_module().Timestamp(str(body)),
    "timedelta_pandas": lambda body: _pandas_module().Timedelta(str(body)),
    "missing_pandas": lambda body: getattr(_pandas_module(), {"NaTType": "NaT", "NAType": "NA"}[body]),
    "ndarray": _decode_ndarray,
}
