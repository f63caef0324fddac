"""How the judge's process and the program's talk: requests and values as JSON lines, objects by number.

This file's text is sent into both processes, so it needs the standard library and nothing else. Plain data (exact
built-in types) crosses as data and is built anew; an object of any other class stays where it is, and the other side
holds a `Proxy` for it. Invariants: nothing here unpickles or evaluates what arrives; what arrives is data of one form
or an error; a container that a request sends is the same container afterwards, with what was done to it.
Deliberately absent: which requests are granted, and which comparisons are believed (`inside`, `inside_judge`).
"""

import array
import builtins
import datetime
import json
import marshal
import operator
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Coroutine, Generator, ItemsView, Iterable, KeysView, Mapping, ValuesView
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from os import read, write
from pathlib import Path, PurePath
from threading import RLock
from types import BuiltinFunctionType, CodeType, CoroutineType, FunctionType, GeneratorType, ModuleType
from typing import TypeAlias

Wire: TypeAlias = "bool | int | float | str | list[Wire] | dict[str, Wire] | None"

LONGEST = 64 * 2**20  # bytes of one message
_CHUNK = 2**20
_SMALL = 2**60
_MOST_PRINTED = 1_000_000  # characters of one message's prints
quote = json.JSONEncoder().encode
_parse = json.JSONDecoder().raw_decode
_CONTENTS: dict[type, str] = {
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
_CHANGEABLE = frozenset({list, dict, set, deque, OrderedDict, Counter, defaultdict, bytearray})
_BASES = (str, int, float, complex, bytes, tuple, frozenset, list, dict, set)  # whose subclasses cross with contents
_REFILLED = frozenset({"list", "dict", "set"})
_EXACT: dict[type, Callable[..., object]] = {  # what a subclass's object holds, past methods of its own
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: lambda one: complex(one.real, one.imag),
    bytes: lambda one: bytes.__getitem__(one, slice(None)),
    tuple: lambda one: tuple.__getitem__(one, slice(None)),
    frozenset: lambda one: frozenset([*frozenset.__iter__(one)]),
}
_TYPES: dict[str, object] = {
    kind.__name__: kind
    for kind in (*_BASES, bool, bytearray, object, type, type(None), range, slice, deque, OrderedDict, Counter)
} | {
    "defaultdict": defaultdict,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "Ellipsis": ...,
    "NotImplemented": NotImplemented,
}
_TYPES |= {kind.__name__: kind for kind in (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)}
ERRORS: dict[str, type[BaseException]] = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}


class Refused(BaseException):
    """What may not be: a message of no known form, or a comparison that the program would decide by itself."""


class Gone(BaseException):
    """The other process has ended."""


class Named:
    """What a peer knows of the class of an object that stays on the other side."""

    __slots__ = ("methods", "name", "number")

    def __init__(self, number: int, name: str, methods: frozenset[str]) -> None:
        self.number, self.name, self.methods = number, name, methods


# --- what can be asked of an object on the other side: Python's own operations, by name


def _call(target: object, *arguments: object, **named: object) -> object:
    return target(*arguments, **named)  # type: ignore[operator]  # whatever it is, it is asked to be callable


def _enter(target: object) -> object:
    return type(target).__enter__(target)  # type: ignore[attr-defined]


def _exit(target: object, *error: object) -> object:
    return type(target).__exit__(target, *error)  # type: ignore[attr-defined]


def _await(target: Coroutine[object, object, object]) -> object:
    import asyncio

    return asyncio.run(_awaited(target))


async def _awaited(target: object) -> object:
    return await target  # type: ignore[misc]


def _send(target: Generator[object, object, object], value: object) -> object:
    return target.send(value)


def _anext(target: object) -> object:
    return _await(target.__anext__())  # type: ignore[attr-defined]


def _copied(target: object, deep: bool) -> object:
    import copy

    return copy.deepcopy(target) if deep else copy.copy(target)


_ARITHMETIC = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
]
OPERATIONS: dict[str, Callable[..., object]] = {
    "call": _call,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "isinstance": isinstance,
    "issubclass": issubclass,
    "enter": _enter,
    "exit": _exit,
    "await": _await,
    "send": _send,
    "itself": lambda one: one,
    "anext": _anext,
    "copied": _copied,
    "dir": dir,
    **{name: getattr(builtins, name) for name in ("len", "iter", "next", "reversed", "str", "repr", "bool", "format")},
    **{name: getattr(builtins, name) for name in ("int", "float", "complex", "round", "abs", "bytes", "divmod")},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains", "index")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert")},
    **{name: getattr(operator, f"{name}_" if name in {"and", "or"} else name) for name in _ARITHMETIC},
    **{f"i{name}": getattr(operator, f"i{name}") for name in _ARITHMETIC},
    "trunc": __import__("math").trunc,
    "floor": __import__("math").floor,
    "ceil": __import__("math").ceil,
    "fspath": __import__("os").fspath,
}
_FORWARDED = {  # special methods that a proxy has where the object has them, and the operation that they ask for
    **{f"__{name}__": name for name in ("call", "len", "iter", "next", "reversed", "bool", "format", "enter", "exit")},
    **{f"__{name}__": name for name in ("getitem", "setitem", "delitem", "int", "float", "complex", "round", "abs")},
    **{f"__{name}__": name for name in ("index", "neg", "pos", "invert", "trunc", "floor", "ceil", "bytes", "fspath")},
    "__anext__": "anext",
}
_JUDGED = {"__contains__": "contains"} | {f"__{name}__": name for name in (*_ARITHMETIC, "divmod")}
_JUDGED |= {f"__i{name}__": f"i{name}" for name in _ARITHMETIC}
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_OWN_METHODS = frozenset({*_FORWARDED, *_JUDGED, "__await__", "__aiter__", "__eq__", "__lt__", "__hash__"})
_TOLD_ATTRIBUTES = frozenset({"__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__"})
_TOLD_ATTRIBUTES |= {"__wrapped__", "__self__", "__members__", "__slots__", "__version__", "__cause__", "__context__"}
_TOLD_ATTRIBUTES |= {"__closure__", "__defaults__", "__mro__", "__bases__", "__dataclass_fields__", "__aenter__"}


class Proxy:
    """Stands for an object of the other side. What Python asks of it is asked over there."""

    _shikisha_: "tuple[Peer, int, Named]"

    def __getattr__(self, name: str) -> object:
        peer, _, kind = object.__getattribute__(self, "_shikisha_")
        if name[:2] == "__" and name not in _TOLD_ATTRIBUTES:
            raise AttributeError(f"{kind.name!r} object has no attribute {name!r}")
        return peer.attribute(self, kind, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._shikisha_[0].ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._shikisha_[0].ask("delattr", self, name)

    def __eq__(self, other: object) -> bool:
        return self._shikisha_[0].equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._shikisha_[1])

    def __lt__(self, other: object) -> object:
        return self._shikisha_[0].ordered("lt", self, other)

    def __le__(self, other: object) -> object:
        return self._shikisha_[0].ordered("le", self, other)

    def __gt__(self, other: object) -> object:
        return self._shikisha_[0].ordered("gt", self, other)

    def __ge__(self, other: object) -> object:
        return self._shikisha_[0].ordered("ge", self, other)

    def __str__(self) -> str:
        return self._shikisha_[0].text("str", self)

    def __repr__(self) -> str:
        return self._shikisha_[0].text("repr", self)

    def __dir__(self) -> Iterable[str]:
        return self._shikisha_[0].ask("dir", self)  # type: ignore[return-value]  # a list of names, or a test fails

    def __copy__(self) -> object:
        return self._shikisha_[0].ask("copied", self, False)

    def __deepcopy__(self, _: object) -> object:
        return self._shikisha_[0].ask("copied", self, True)

    def __reduce_ex__(self, _: object) -> str:
        raise TypeError("cannot pickle an object of the program's own class")


class ClassProxy(type):
    """The class of what stands for classes of the other side: real classes, which nothing here is an instance of."""

    _shikisha_: "tuple[Peer, int, Named]"

    def __getattribute__(cls, name: str) -> object:
        if name[:2] == "__" or name in {"_shikisha_", "mro"}:
            return type.__getattribute__(cls, name)
        return cls._shikisha_[0].ask("getattr", cls, name)

    def __setattr__(cls, name: str, value: object) -> None:
        if name == "_shikisha_":
            type.__setattr__(cls, name, value)
        else:
            cls._shikisha_[0].ask("setattr", cls, name, value)

    def __instancecheck__(cls, one: object) -> bool:
        return stands_for(one) is not None and bool(cls._shikisha_[0].ask("isinstance", one, cls))

    def __subclasscheck__(cls, one: object) -> bool:
        return stands_for(one) is not None and bool(cls._shikisha_[0].ask("issubclass", one, cls))

    def __call__(cls, *arguments: object, **named: object) -> object:
        """Make one over there."""
        return cls._shikisha_[0].ask("call", cls, *arguments, **named)


def stands_for(one: object) -> "tuple[Peer, int, Named] | None":
    """Return what a proxy of any kind stands for; None for everything else."""
    if isinstance(type(one), type) and (issubclass(type(one), Proxy) or issubclass(type(one), ClassProxy)):
        return one._shikisha_  # type: ignore[attr-defined,no-any-return]
    own = type(one).__dict__.get("_proxy_")
    return object.__getattribute__(one, "_shikisha_") if own else None


def _generated(proxy: Proxy) -> Generator[object, object, object]:
    """Stand for a generator: a real one, that takes each step over there."""
    peer, _, _ = proxy._shikisha_
    try:
        sent = yield peer.ask("next", proxy)
        while True:
            sent = yield (peer.ask("next", proxy) if sent is None else peer.ask("send", proxy, sent))
    except StopIteration as end:
        return end.value


async def _coroutine(proxy: Proxy) -> object:
    """Stand for a coroutine: it is awaited over there, in a loop of its own."""
    return proxy._shikisha_[0].ask("await", proxy)


_CHANGERS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "remove",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "popitem",
        "add",
        "discard",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
        "__setitem__",
        "__delitem__",
        "__iadd__",
        "__imul__",
        "__ior__",
        "__iand__",
        "__isub__",
        "__ixor__",
    ]
)


def _refilling(self: Proxy, name: str) -> object:
    """Return an attribute of a container; calling a method of it may change what the container holds."""
    found = Proxy.__getattr__(self, name)
    return _calling(self, found) if callable(found) else found


def _calling(one: Proxy, method: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        result = method(*arguments, **named)
        one._shikisha_[0].ask("itself", one)
        return result

    return call


def _changer(name: str) -> Callable[..., object]:
    def change(self: Proxy, *arguments: object, **named: object) -> object:
        peer = self._shikisha_[0]
        method = peer.ask("getattr", self, name)
        result = method(*arguments, **named)  # type: ignore[operator]  # a method, or a test fails
        peer.ask("itself", self)
        return result

    return change


def _forwarder(operation: str) -> Callable[..., object]:
    def method(self: Proxy, *arguments: object, **named: object) -> object:
        return self._shikisha_[0].ask(operation, self, *arguments, **named)

    return method


def _combiner(operation: str) -> Callable[..., object]:
    def method(self: Proxy, *arguments: object) -> object:
        return self._shikisha_[0].combined(operation, self, *arguments)

    return method


def _reflector(operation: str) -> Callable[..., object]:
    def method(self: Proxy, other: object) -> object:
        return self._shikisha_[0].combined(operation, other, self)

    return method


class Peer:
    """One end: it asks, answers while it waits for an answer, and knows the objects that the other end holds."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._taken = b""
        self._held: list[object] = []  # what the other side knows by number; kept, so that no id comes twice
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, object] = {}
        self._classes: dict[int, Named] = {}
        self._made: dict[tuple[frozenset[str], str], type] = {}
        self._errors: dict[int, type[BaseException]] = {}
        self._talking = RLock()
        self.common: dict[str, type] = {}  # classes of which either side has its own, by name: instances cross as data

    # what a side decides: by default everything is granted and believed, as in one process

    def grant(self, operation: str, arguments: list[object]) -> Callable[..., object]:
        """Return what is to be done when the other side asks; Refused when it may not."""
        del arguments
        return OPERATIONS[operation]

    def attribute(self, proxy: Proxy, kind: Named, name: str) -> object:
        """Return an attribute of an object of the other side."""
        del kind
        return self.ask("getattr", proxy, name)

    def equal(self, proxy: Proxy, other: object) -> bool:
        """Whether an object of the other side equals something."""
        return proxy is other or (isinstance(other, Proxy) and bool(self.ask("eq", proxy, other)))

    def ordered(self, operation: str, proxy: Proxy, other: object) -> object:
        """Return what `<` and the like come to."""
        return self.ask(operation, proxy, other)

    def combined(self, operation: str, *operands: object) -> object:
        """Return what `+`, `in` and the like come to."""
        return self.ask(operation, *operands)

    def shared(self, module: str, name: str) -> object:
        """Return a function or class of the standard library that the other side named."""
        return getattr(__import__(module, fromlist=[name]), name)

    def shareable(self, value: object) -> tuple[str, str] | None:
        """Return where the other side finds the same function or class; None where it does not."""
        return _importable(value)

    sends_code = False  # whether functions that need nothing of this side are sent as they are

    def portable(self, value: object) -> list[object] | None:
        """Return what a function is made of, where the other side can make the same; None where it cannot."""
        return _parts(value) if self.sends_code and isinstance(value, FunctionType) else None

    def function(self, parts: list[object]) -> object:
        """Make a function of what the other side sent."""
        del parts
        raise Refused("the program sent code")

    def module(self, name: str) -> object:
        """Return a module that the other side named."""
        raise Refused(f"the program sent the module {name}")

    def carried(self) -> dict[str, Wire]:
        """Return what goes with every message: what was printed since the last one, say."""
        return {}

    def received(self, carried: dict[str, Wire]) -> None:
        """Take what came with a message."""

    # talking

    def text(self, operation: str, proxy: Proxy) -> str:
        """Return what `str` or `repr` say."""
        return str(self.ask(operation, proxy))

    def ask(self, operation: str, *arguments: object, **named: object) -> object:
        """Have something done over there and return what came of it, or raise what it raised."""
        with self._talking:
            result = self._asked(operation, arguments, named)
            if operation != "itself":
                for one in arguments:
                    if type(one).__dict__.get("_refills_"):  # what it holds here is a copy
                        self._asked("itself", (one,), {})
            return result

    def _asked(self, operation: str, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        sent = _Encoding(self)
        first: Wire = [sent.value(one) for one in arguments]
        second: Wire = {name: sent.value(one) for name, one in named.items()}
        self._send(["ask", operation, first, second, self.carried()])
        while True:
            message = self._receive()
            if message[0] == "ask":
                self._answer(message)
            else:
                return self._settled(message, sent)

    def serve(self) -> None:
        """Answer until the other side has gone."""
        try:
            while True:
                self._answer(self._receive())
        except Gone:
            return

    def _answer(self, message: list[Wire]) -> None:
        got = _Decoding(self)
        _, operation, first, second, carried = message
        if not (isinstance(operation, str) and isinstance(first, list) and isinstance(second, dict)):
            raise Refused("the program sent what is no request")
        arguments = [got.value(one) for one in first]
        named = {name: got.value(one) for name, one in second.items()}
        before = [_contents(one) for one in got.slots]
        self._take(carried)
        kind, result = "value", None
        try:
            result = self.grant(operation, arguments)(*arguments, **named)
        except (Refused, Gone):
            raise
        except BaseException as error:
            if self.must_end(error):
                raise
            kind, result = "raise", error
        told = _Encoding(self, got.slots)
        try:
            value = told.value(result)
        except (Refused, Gone):
            raise
        except BaseException as error:
            if self.must_end(error):
                raise
            told = _Encoding(self, got.slots)
            kind, value = "raise", told.value(TypeError(f"a value that cannot be read: {type(error).__name__}"))
        changed: list[Wire] = []
        for place, (one, old) in enumerate(zip(got.slots, before, strict=False)):
            if not _same(_contents(one), old):
                changed.append([place, told.contents(one)])
        self._send([kind, value, changed, self.carried()])

    def must_end(self, error: BaseException) -> bool:
        """Whether an error is this side's own affair and none of the other side's."""
        del error
        return False

    def _settled(self, message: list[Wire], sent: "_Encoding") -> object:
        """Return the value of an answer, or raise its error, after what was done to the arguments is done here."""
        got = _Decoding(self, sent.slots)
        kind, wire, changed, carried = message
        value = got.value(wire)
        if not isinstance(changed, list):
            raise Refused("the program sent what is no answer")
        own = len(sent.slots)
        for place, contents in changed:  # type: ignore[misc,str-unpack]  # what is no pair is an error as any other
            if type(place) is not int or not 0 <= place < own:
                raise Refused("the program changed what it was not given")
            _refill(got.slots[place], got.value(contents))
        self._take(carried)
        if kind == "raise":
            raise value if isinstance(value, BaseException) else Refused("the program raised what is no exception")
        return value

    def _take(self, carried: Wire) -> None:
        if carried:
            self.received(carried if isinstance(carried, dict) else {})

    def _send(self, message: list[Wire]) -> None:
        data = memoryview(f"{quote(message)}\n".encode())
        try:
            while data:
                data = data[write(self._writes, data) :]
        except OSError:
            raise Gone from None

    def _receive(self) -> list[Wire]:
        pieces = [self._taken]
        size = len(self._taken)
        while b"\n" not in pieces[-1]:
            piece = read(self._reads, _CHUNK)
            size += len(piece)
            if not piece:
                raise Gone
            if size > LONGEST:
                raise Refused(f"the program sent more than {LONGEST:,} bytes at once")
            pieces.append(piece)
        line, _, self._taken = b"".join(pieces).partition(b"\n")
        try:
            message, _ = _parse(line.decode())
        except (ValueError, RecursionError):
            message = None
        if not (isinstance(message, list) and len(message) == (5 if message[:1] == ["ask"] else 4)):
            raise Refused("the program sent what cannot be read")
        return message

    # objects by number

    def number(self, one: object) -> int:
        """Return the number by which the other side knows an object of ours."""
        if id(one) not in self._numbers:
            self._numbers[id(one)] = len(self._held)
            self._held.append(one)
        return self._numbers[id(one)]

    def held(self, number: Wire) -> object:
        """Return an object of ours."""
        if type(number) is not int or not 0 <= number < len(self._held):
            raise Refused("the program named an object that it was not given")
        return self._held[number]

    def proxy(self, wire: list[Wire], got: "_Decoding") -> object:
        """Return what stands for an object of the other side: always the same for the same object."""
        number, base, contents, about = wire
        if type(number) is not int or not isinstance(base, str):
            raise Refused("the program sent what is no object")
        if number in self._proxies:
            found = self._proxies[number]
            held = got.value(contents)
            if base in _REFILLED:
                _refill(found, held)
            return found
        if not isinstance(about, list):
            raise Refused("the program sent an object without its class")
        kind = self._class(about)
        made = self._type(kind, base)
        if base == "class":
            one = self._new_class(made, kind, contents)
            type.__setattr__(one, "_shikisha_", (self, number, kind))
            self._proxies[number] = one
            return one
        if base in _BARE:
            one = object.__new__(made)
        else:
            held = got.value(contents)
            one = made.__new__(made, held)
            if base in _REFILLED:
                made.__init__(one, held)  # type: ignore[misc]
        object.__setattr__(one, "_shikisha_", (self, number, kind))
        self._proxies[number] = _STANDING_FOR[base](one) if base in _STANDING_FOR else one  # type: ignore[arg-type]
        return self._proxies[number]

    def _new_class(self, made: type, kind: Named, place: Wire) -> type:
        """Return a class that is derived from what the other side's is derived from, if that is known here."""
        module, name = place if isinstance(place, list) else ("", "")
        found = (
            None
            if str(module).partition(".")[0] in _UNSHARED
            else getattr(sys.modules.get(str(module)), str(name), None)
        )
        try:
            bases = (found,) if isinstance(found, type) and type(found) is type else ()
            return made(kind.name, bases, {"__module__": "program"})  # type: ignore[no-any-return]
        except TypeError:  # a class that nothing can be derived from
            return made(kind.name, (), {"__module__": "program"})  # type: ignore[no-any-return]

    def _class(self, about: list[Wire]) -> Named:
        number, name, methods = about
        if type(number) is not int or not isinstance(name, str) or not isinstance(methods, list):
            raise Refused("the program sent what is no class")
        if number not in self._classes:
            self._classes[number] = Named(number, name[:100], frozenset(map(str, methods)))
        return self._classes[number]

    def _type(self, kind: Named, base: str) -> type:
        known = (frozenset({kind.name, *kind.methods}), base)
        if known not in self._made:
            self._made[known] = _new_type(kind, base)
        return self._made[known]

    def error_here(self, number: Wire, module: str, name: str) -> type[BaseException] | None:
        """Return the exception class of this name that both sides have; None: there is none."""
        if module == "yours":
            found = self.held(number)
        elif module == "builtins":
            found = ERRORS.get(name)
        elif module.partition(".")[0] in _UNSHARED or module in _PRIVATE:
            found = None
        else:
            found = getattr(sys.modules.get(module), name, None)
        return found if isinstance(found, type) and issubclass(found, BaseException) else None

    def error_class(self, number: int, name: str, parent: type[BaseException]) -> type[BaseException]:
        """Return what stands here for an exception class of the other side."""
        if number not in self._errors:
            body = {"__str__": _told, "_text_": None, "_other_": number, "__module__": "program"}
            self._errors[number] = type(name, (parent,), body)
        return self._errors[number]


def _told(error: BaseException) -> str:
    text = vars(error).get("_text_")
    return text if isinstance(text, str) else BaseException.__str__(error)


def _new_type(kind: Named, base: str) -> type:
    """Return a class for proxies: of a subclass of a built-in type, whose own methods and comparisons then hold."""
    body: dict[str, object] = {"__module__": "program"}
    if base not in _BARE:
        (parent,) = [one for one in _BASES if one.__name__ == base] or [None]  # type: ignore[list-item]
        if parent is None:
            raise Refused("the program sent an object of an unknown kind")
        body |= {
            "__getattr__": Proxy.__getattr__,
            "__str__": Proxy.__str__,
            "__repr__": Proxy.__repr__,
            "_proxy_": True,
        }
        if "__call__" in kind.methods:
            body["__call__"] = _forwarder("call")
        if base in _REFILLED:
            body |= {"_refills_": True, "__getattr__": _refilling}
            body |= {name: _changer(name) for name in _CHANGERS & set(dir(parent))}
        return type(kind.name, (parent,), body)
    for name in kind.methods & _OWN_METHODS:
        if name in _FORWARDED:
            body[name] = _forwarder(_FORWARDED[name])
        elif name in _JUDGED:
            body[name] = _combiner(_JUDGED[name])
            if name[2:-2] in _ARITHMETIC:
                body[f"__r{name[2:]}"] = _reflector(_JUDGED[name])
    if base == "class":
        body.pop("__call__", None)
        return type("type", (ClassProxy,), body)
    if "__anext__" in kind.methods:
        body |= {"__aiter__": lambda self: self, "__anext__": _later}
    return type(kind.name, (Proxy,), body)


async def _later(self: Proxy) -> object:
    return self._shikisha_[0].ask("anext", self)


def _contents(one: object) -> object:
    """Return what is in a container now, without looking into it further."""
    match one:
        case dict():
            return [*one.keys(), *one.values()]
        case set():
            return set(one)
        case bytearray():
            return bytes(one)
        case list() | deque():
            return list(one)
        case _:
            return [*vars(one).keys(), *vars(one).values()]


def _same(now: object, then: object) -> bool:
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(operator.is_, now, then))
    if isinstance(now, set) and isinstance(then, set):
        return set(map(id, now)) == set(map(id, then))
    return now == then


def _refill(one: object, contents: object) -> None:
    """Put these contents in place of what a container holds."""
    match one, contents:
        case (list(), list()):
            list.__setitem__(one, slice(None), contents)
        case (bytearray(), bytearray()):
            one[:] = contents
        case (dict(), dict()):
            dict.clear(one)
            dict.update(one, contents)
        case (set(), set()):
            set.clear(one)
            set.update(one, contents)
        case (deque(), list()):
            one.clear()
            one.extend(contents)
        case _ if type(one) is type(contents):
            vars(one).clear()
            vars(one).update(vars(contents))
        case _:
            raise Refused("the program made another kind of container of what it was given")


_STANDING_FOR: dict[str, Callable[[Proxy], object]] = {"generator": _generated, "coroutine": _coroutine}
_STEPPING: dict[type, str] = {GeneratorType: "generator", CoroutineType: "coroutine"}
_BARE = frozenset({"", "class", *_STANDING_FOR})  # kinds of proxies that hold nothing themselves


class _Encoding:
    """Writes the values of one message; a container that occurs again, or that came with the request, is named."""

    def __init__(self, peer: Peer, slots: list[object] | None = None) -> None:
        self._peer = peer
        self.slots: list[object] = [] if slots is None else list(slots)
        self._places = {id(one): place for place, one in enumerate(self.slots)}

    def value(self, value: object) -> Wire:
        """Return a value as JSON has it."""
        kind = type(value)
        if value is None or kind is str or kind is bool:
            return value  # type: ignore[return-value]
        if kind is int:
            return value if -_SMALL < value < _SMALL else {"int": f"{value:x}"}  # type: ignore[operator,return-value]
        if kind is float:
            return value if value - value == 0 else {"float": repr(value)}  # type: ignore[operator,return-value]
        if kind in _CHANGEABLE:
            if id(value) in self._places:
                return {"again": self._places[id(value)]}
            self._places[id(value)] = len(self.slots)
            self.slots.append(value)
            return self.contents(value)
        if self._peer.common and (shared := self._common(value)) is not None:
            return shared
        if kind is tuple or kind is frozenset:
            return {_CONTENTS[kind]: self._all(value)}  # type: ignore[arg-type]
        return _scalar(value) or self._object(value)

    def _common(self, value: object) -> Wire:
        """Return an instance of a class that both sides have; None when it is none."""
        kind = type(value)
        if self._peer.common.get(kind.__name__) is not kind or isinstance(value, BaseException):
            return None
        if isinstance(value, Enum):
            return {"member": [kind.__name__, value.name]}
        if not hasattr(value, "__dict__") or next((one for one in _BASES if isinstance(value, one)), None):
            return None
        if id(value) in self._places:
            return {"again": self._places[id(value)]}
        self._places[id(value)] = len(self.slots)
        self.slots.append(value)
        return self.contents(value)

    def contents(self, one: object) -> Wire:
        """Return what is in a container."""
        kind = type(one)
        if self._peer.common.get(kind.__name__) is kind:
            parts: list[Wire] = [[self.value(name), self.value(value)] for name, value in vars(one).items()]
            return {"instance": [kind.__name__, parts]}
        match one:
            case bytearray():
                return {"bytearray": one.hex()}
            case dict():
                pairs: list[Wire] = [[self.value(key), self.value(value)] for key, value in dict.items(one)]
                if isinstance(one, defaultdict):
                    factory = getattr(one.default_factory, "__name__", None)
                    return {"default": [factory if factory in _TYPES else None, pairs]}
                return {_CONTENTS.get(kind, "dict"): pairs}
            case deque():
                return {"deque": [self._all(one), one.maxlen]}
            case set():
                return {"set": self._all(set.__iter__(one))}
            case list():
                return self._all(list.__iter__(one))
        raise TypeError("no container")

    def _all(self, values: Iterable[object]) -> list[Wire]:
        return [
            one if (kind := type(one)) is str or kind is bool or one is None else self.value(one)  # type: ignore[misc]
            for one in values
        ]

    def _object(self, value: object) -> Wire:
        """Return how the other side is to know an object that stays here."""
        if issubclass(type(value), BaseException):
            return self._error(value)  # type: ignore[arg-type]
        if (known := stands_for(value)) is not None and known[0] is self._peer:
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

    def _type(self, kind: type) -> Wire:
        if _TYPES.get(kind.__name__) is kind or kind is type(None):
            return {"type": kind.__name__}
        if issubclass(kind, BaseException):
            return {"error_class": self._lineage(kind)}
        if other := getattr(kind, "_other_", None):
            return {"yours": other}
        if shared := self._peer.shareable(kind):
            return {"global": list(shared)}
        about: list[Wire] = [-1 - self._peer.number(kind), kind.__name__, list(_special(type(kind)))]
        bases = [one for one in type.mro(kind)[1:-1] if one.__module__.partition(".")[0] in sys.stdlib_module_names]
        base: Wire = [bases[0].__module__, bases[0].__qualname__] if bases else None
        return {"own": [self._peer.number(kind), "class", base, about]}

    def _own(self, value: object) -> Wire:
        kind = type(value)
        base = next((one for one in _BASES if issubclass(kind, one)), None)
        contents: Wire = None
        if base in {list, dict, set}:
            self.slots.append(value)  # the other side reads a container here
            contents = self.contents(value)
        elif base is not None:
            contents = self.value(_EXACT[base](value))
        about: list[Wire] = [self._peer.number(kind), kind.__name__, list(_special(kind))]
        name = "" if base is None else base.__name__
        if base is None and kind in _STEPPING:
            name = _STEPPING[kind]
        return {"own": [self._peer.number(value), name, contents, about]}

    def _error(self, error: BaseException) -> Wire:
        arguments = self._all(error.args)
        told: dict[str, Wire] = {
            name: self.value(one) for name, one in list(vars(error).items()) if name[:1] != "_" and _is_plain(one)
        }
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - a text of the program's own making
            text = ""
        return {"error": [self._lineage(type(error)), arguments, told, text]}

    def _lineage(self, kind: type) -> list[Wire]:
        """Return an exception class as the other side finds or makes it: itself, and then what it is derived from."""
        line: list[Wire] = []
        for one in type.mro(kind):
            if not issubclass(one, BaseException):
                continue
            if (other := one.__dict__.get("_other_")) is not None:
                line.append([other, "yours", one.__name__])
            elif ERRORS.get(one.__name__) is one:
                line.append([None, "builtins", one.__name__])
                break
            elif one.__module__ in sys.modules and one.__module__ not in _PRIVATE:
                line.append([self._peer.number(one), one.__module__, one.__qualname__])
            else:
                line.append([self._peer.number(one), "", one.__name__])
        return line


DATA_MODULES = frozenset(
    {"builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "uuid", "enum", "re"}
)
_PRIVATE = frozenset({"__main__", "program", "tests", "builtins"})
_UNSHARED = frozenset({"unittest", "_pytest", "pytest", "gc", "ctypes", "_ctypes", "inspect", "sys", "importlib"})


def _importable(value: object) -> tuple[str, str] | None:
    """Return where both sides find the same function or class: in a module of the standard library."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(value, BuiltinFunctionType | FunctionType | type) or not isinstance(name, str):
        return None
    if getattr(value, "__self__", None) is not None and not isinstance(getattr(value, "__self__", None), ModuleType):
        return None
    if not isinstance(module, str) or module in _PRIVATE - {"builtins"} or module.partition(".")[0] in _UNSHARED:
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names or "." in name:
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def _parts(function: FunctionType) -> list[object] | None:
    """Return a function's parts; None when it needs more than built-ins and modules, or changes anything outside."""
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


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (str, int, float, bool, list, tuple, dict)


def _special(kind: type) -> list[str]:
    """Return the special methods that objects of a class have."""
    found: list[str] = []
    for one in type.mro(kind):
        if one is not object:
            found += [name for name in _OWN_METHODS if name not in found and one.__dict__.get(name) is not None]
    return found


def _scalar(value: object) -> Wire:
    """Return data of one exact type of the standard library; None for everything else."""
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
        return _moment(value)
    if kind is zoneinfo.ZoneInfo:
        return {"zone": value.key}  # type: ignore[attr-defined]
    if kind is uuid.UUID:
        return {"uuid": value.hex}  # type: ignore[attr-defined]
    if isinstance(value, PurePath) and kind.__module__.startswith("pathlib"):
        return {"path" if isinstance(value, Path) else "pure_path": str(value)}
    if kind is re.Pattern:
        return {"pattern": [_scalar(value.pattern) or value.pattern, value.flags]}  # type: ignore[attr-defined]
    if kind is array.array:
        return {"array": [value.typecode, value.tobytes().hex()]}  # type: ignore[attr-defined]
    if value is ... or value is NotImplemented:
        return {"type": "Ellipsis" if value is ... else "NotImplemented"}
    return _of_library(value)


def _of_library(value: object) -> Wire:
    """Return numpy's scalars as the numbers that they equal, and its arrays as bytes."""
    if type(value).__module__.partition(".")[0] != "numpy":
        return None
    item, shape = getattr(value, "item", None), getattr(value, "shape", None)
    if shape == () and callable(item):
        number = item()
        return {"tuple": [number]} if number is None else {"scalar": _scalar(number) or number}
    tobytes, dtype = getattr(value, "tobytes", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and callable(tobytes) and getattr(dtype, "kind", "O") in "biufcSU":
        return {"ndarray": [str(dtype.str), list(shape), tobytes().hex()]}  # type: ignore[union-attr]
    return None


def _moment(value: object) -> Wire:
    match value:
        case datetime.datetime():
            numbers: list[Wire] = [value.year, value.month, value.day, value.hour, value.minute, value.second]
            return {"datetime": [[*numbers, value.microsecond], _zone(value.tzinfo), value.fold]}
        case datetime.time():
            numbers = [value.hour, value.minute, value.second, value.microsecond]
            return {"time": [numbers, _zone(value.tzinfo), value.fold]}
        case datetime.date():
            return {"date": [value.year, value.month, value.day]}
        case datetime.timedelta():
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        case datetime.timezone():
            return {"timezone": [_moment(value.utcoffset(None)), value.tzname(None)]}
    return None


def _zone(zone: datetime.tzinfo | None) -> Wire:
    if zone is None:
        return None
    if (known := _scalar(zone)) is None:
        raise TypeError("a time zone of the program's own class")
    return known


class _Decoding:
    """Reads the values of one message. Whatever is in it, it comes to a value or to Refused."""

    def __init__(self, peer: Peer, slots: list[object] | None = None) -> None:
        self._peer = peer
        self.slots: list[object] = [] if slots is None else list(slots)

    def value(self, wire: Wire) -> object:
        """Return the value that was sent."""
        try:
            return self._value(wire)
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, IndexError, AttributeError) as error:
            raise Refused(f"a value that cannot be read: {type(error).__name__}") from None

    def _value(self, wire: Wire) -> object:
        if isinstance(wire, list):
            made: list[object] = []
            self.slots.append(made)
            made.extend([one if type(one) in _SIMPLE else self._value(one) for one in wire])
            return made
        if not isinstance(wire, dict):
            return wire
        ((kind, body),) = wire.items()
        if kind in _SCALARS:
            return _SCALARS[kind](body)
        return getattr(self, f"_{kind}")(body) if kind in _STRUCTURES else self._unknown(kind)

    def _unknown(self, kind: str) -> object:
        raise ValueError(kind)

    def _each(self, body: Wire) -> list[object]:
        if not isinstance(body, list):
            raise TypeError("expected a list")
        return [self._value(one) for one in body]

    def _tuple(self, body: Wire) -> object:
        return tuple(self._each(body))

    def _frozenset(self, body: Wire) -> object:
        return frozenset(self._each(body))

    def _set(self, body: Wire) -> object:
        made: set[object] = set()
        self.slots.append(made)
        made.update(self._each(body))
        return made

    def _pairs(self, made: dict[object, object], body: Wire) -> object:
        self.slots.append(made)
        for key, value in body:  # type: ignore[union-attr,misc,str-unpack]  # what is no pair is an error
            made[self._value(key)] = self._value(value)
        return made

    def _dict(self, body: Wire) -> object:
        return self._pairs({}, body)

    def _ordered(self, body: Wire) -> object:
        return self._pairs(OrderedDict(), body)

    def _counter(self, body: Wire) -> object:
        return self._pairs(Counter(), body)  # type: ignore[arg-type]

    def _default(self, body: Wire) -> object:
        name, pairs = body  # type: ignore[misc,str-unpack]
        factory = _TYPES[name] if isinstance(name, str) else None
        return self._pairs(defaultdict(factory), pairs)  # type: ignore[call-overload]

    def _deque(self, body: Wire) -> object:
        items, most = body  # type: ignore[misc,str-unpack]
        made: deque[object] = deque(maxlen=most)  # type: ignore[arg-type]
        self.slots.append(made)
        made.extend(self._each(items))
        return made

    def _instance(self, body: Wire) -> object:
        name, parts = body  # type: ignore[misc,str-unpack]
        kind = self._peer.common[str(name)]
        made = kind.__new__(kind)  # type: ignore[call-overload]
        self.slots.append(made)
        for key, value in parts:  # type: ignore[union-attr,misc,str-unpack]
            vars(made)[str(key)] = self._value(value)
        return made

    def _member(self, body: Wire) -> object:
        kind, name = body  # type: ignore[misc,str-unpack]
        return vars(self._peer.common[str(kind)])["_member_map_"][str(name)]

    def _code(self, body: Wire) -> object:
        return self._peer.function(self._each(body))

    def _module(self, body: Wire) -> object:
        return self._peer.module(str(body))

    def _bytearray(self, body: Wire) -> object:
        made = bytearray.fromhex(body)  # type: ignore[arg-type]
        self.slots.append(made)
        return made

    def _again(self, body: Wire) -> object:
        if type(body) is not int or body < 0:
            raise TypeError("expected a place")
        return self.slots[body]

    def _dict_keys(self, body: Wire) -> object:
        return dict.fromkeys(self._each(body)).keys()

    def _dict_values(self, body: Wire) -> object:
        return dict(enumerate(self._each(body))).values()

    def _dict_items(self, body: Wire) -> object:
        return dict(self._each(body)).items()  # type: ignore[arg-type]

    def _type(self, body: Wire) -> object:
        return type(None) if body == "NoneType" else _TYPES[str(body)]

    def _global(self, body: Wire) -> object:
        module, name = map(str, body)  # type: ignore[arg-type]
        if module.partition(".")[0] not in sys.stdlib_module_names or module.partition(".")[0] in _UNSHARED:
            raise ValueError(module)
        return self._peer.shared(module, name)

    def _yours(self, body: Wire) -> object:
        return self._peer.held(body)

    def _own(self, body: Wire) -> object:
        return self._peer.proxy(body, self)  # type: ignore[arg-type]

    def _error_class(self, body: Wire) -> object:
        return self._derived(body)

    def _error(self, body: Wire) -> object:
        line, arguments, told, text = body  # type: ignore[misc,str-unpack]
        kind = self._derived(line)
        values = self._each(arguments)
        try:
            error = kind(*values)
        except Exception:  # noqa: BLE001 - classes that want other arguments than they keep
            error = kind.__new__(kind)
            error.args = tuple(values)
        for name, one in told.items():  # type: ignore[union-attr]
            if name.isidentifier() and name[:1] != "_":
                try:
                    setattr(error, name, self._value(one))
                except (AttributeError, TypeError):
                    continue
        if hasattr(kind, "_other_"):
            error._text_ = str(text)  # type: ignore[attr-defined]
        return error

    def _derived(self, line: Wire) -> type[BaseException]:
        """Return the class of an exception: the first that is known here, and below it what the other side made."""
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


_SIMPLE = (int, str, float, bool, type(None))
_STRUCTURES = frozenset(
    [
        "instance",
        "member",
        "code",
        "module",
        "tuple",
        "frozenset",
        "set",
        "dict",
        "ordered",
        "counter",
        "default",
        "deque",
        "bytearray",
        "again",
        "dict_keys",
        "dict_values",
        "dict_items",
        "type",
        "global",
        "yours",
        "own",
        "error",
        "error_class",
    ]
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?|[-+]?(Infinity|s?NaN\d{0,9})", re.ASCII)


def _decimal(text: Wire) -> Decimal:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise ValueError("no number")
    return Decimal(text)


def _fraction(body: Wire) -> Fraction:
    top, bottom = body  # type: ignore[misc,str-unpack]
    return Fraction(int(top, 16), int(bottom, 16))  # type: ignore[arg-type]


def _ndarray(body: Wire) -> object:
    kind, shape, data = body  # type: ignore[misc,str-unpack]
    numpy = __import__("numpy")
    if not isinstance(kind, str) or not re.fullmatch(r"[<>|=][biufcSU]\d{1,4}", kind):
        raise ValueError("no kind of number")
    return numpy.frombuffer(bytes.fromhex(data), numpy.dtype(kind)).reshape(shape).copy()  # type: ignore[arg-type]


def _in_time(make: Callable[..., object], body: Wire) -> object:
    numbers, zone, fold = body  # type: ignore[misc,str-unpack]
    return make(*numbers, tzinfo=None if zone is None else _zone_of(zone), fold=fold)  # type: ignore[misc]


def _zone_of(wire: Wire) -> object:
    ((kind, body),) = wire.items()  # type: ignore[union-attr]
    return {"zone": zoneinfo.ZoneInfo, "timezone": _timezone}[kind](body)  # type: ignore[arg-type]


def _timezone(body: Wire) -> datetime.timezone:
    gap, name = body  # type: ignore[misc,str-unpack]
    return datetime.timezone(datetime.timedelta(*gap["timedelta"]), str(name))  # type: ignore[misc,index,call-overload]


def _array(body: Wire) -> object:
    code, data = body  # type: ignore[misc,str-unpack]
    return array.array(str(code), bytes.fromhex(str(data)))


def _pattern(body: Wire) -> object:
    text, flags = body  # type: ignore[misc,str-unpack]
    return re.compile(bytes.fromhex(text["bytes"]) if isinstance(text, dict) else text, flags)  # type: ignore[arg-type,type-var]


_SCALARS: Mapping[str, Callable[..., object]] = {
    "int": lambda body: int(body, 16),
    "float": float,
    "bytes": bytes.fromhex,
    "complex": complex,
    "decimal": _decimal,
    "fraction": _fraction,
    "range": lambda body: range(*map(int, body)),
    "slice": lambda body: slice(*body),
    "datetime": lambda body: _in_time(datetime.datetime, body),
    "time": lambda body: _in_time(datetime.time, body),
    "date": lambda body: datetime.date(*body),
    "timedelta": lambda body: datetime.timedelta(*body),
    "timezone": _timezone,
    "zone": zoneinfo.ZoneInfo,
    "uuid": uuid.UUID,
    "path": Path,
    "pure_path": PurePath,
    "pattern": _pattern,
    "array": _array,
    "scalar": lambda body: complex(body["complex"]) if isinstance(body, dict) else body,
    "ndarray": _ndarray,
}
