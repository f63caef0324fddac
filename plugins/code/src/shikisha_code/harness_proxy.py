"""Proxies: what stands for objects of the other process, by what Python can ask of them.

This file's text is sent to both processes, so it needs nothing but the standard library. Invariant: a proxy decides
nothing; whatever Python asks of it goes to its RpcPeer, which asks the other side or refuses. Deliberately absent: how
values are encoded (`harness_codec`), and the exchange of messages (`harness_rpc`).
"""

import builtins
import operator
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shikisha_code.harness_rpc import RpcPeer

BUILTIN_BASES = (
    str,
    int,
    float,
    complex,
    bytes,
    tuple,
    frozenset,
    list,
    dict,
    set,
)  # their subclasses cross with their contents
MUTABLE_BASES = frozenset({"list", "dict", "set"})


class HarnessRefusal(BaseException):
    """A refusal: of a malformed message, or of a comparison that the program alone would decide."""


class PeerGone(BaseException):
    """The other process has ended."""


class RemoteClass:
    """The class of an object on the other side, as far as it is known here."""

    __slots__ = ("methods", "name", "number")

    def __init__(self, number: int, name: str, methods: frozenset[str]) -> None:
        self.number, self.name, self.methods = number, name, methods


# --- the operations on an object of the other side: Python's own, by name


def _call(target: object, *arguments: object, **named: object) -> object:
    return target(*arguments, **named)  # type: ignore[operator]  # fails if it is not callable


def _enter(target: object) -> object:
    return type(target).__enter__(target)  # type: ignore[attr-defined]


def _exit(target: object, *error: object) -> object:
    return type(target).__exit__(target, *error)  # type: ignore[attr-defined]


def _await(target: Coroutine[object, object, object]) -> object:
    # Imported only here: few programs await, and each process would pay for the import.
    import asyncio
    from asyncio import events

    outer = events._get_running_loop()
    events._set_running_loop(None)  # a test may await a call that awaits an object of the tests
    try:
        return asyncio.run(_await_target(target))
    finally:
        events._set_running_loop(outer)


async def _await_target(target: object) -> object:
    return await target  # type: ignore[misc]


def _send(target: Generator[object, object, object], value: object) -> object:
    return target.send(value)


def _anext(target: object) -> object:
    return _await(target.__anext__())  # type: ignore[attr-defined]


def _copy_target(target: object, deep: bool) -> object:
    import copy

    return copy.deepcopy(target) if deep else copy.copy(target)


_ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and"]
_ARITHMETIC += ["or", "xor"]
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
    "copied": _copy_target,
    "dir": dir,
    "hash": hash,
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
_FORWARDED = {  # special methods that a proxy has if the object has them, and their operations
    **{f"__{name}__": name for name in ("call", "len", "iter", "next", "reversed", "bool", "format", "enter", "exit")},
    **{f"__{name}__": name for name in ("getitem", "setitem", "delitem", "int", "float", "complex", "round", "abs")},
    **{f"__{name}__": name for name in ("index", "neg", "pos", "invert", "trunc", "floor", "ceil", "bytes", "fspath")},
    "__anext__": "anext",
}
_COMBINED = {"__contains__": "contains"} | {f"__{name}__": name for name in (*_ARITHMETIC, "divmod")}
_COMBINED |= {f"__i{name}__": f"i{name}" for name in _ARITHMETIC}
PROXIED_METHODS = frozenset({*_FORWARDED, *_COMBINED, "__await__", "__aiter__", "__eq__", "__lt__", "__hash__"})
PROXIED_METHODS |= {"__missing__"}
_OVERRIDES = {f"__{name}__" for name in ("getitem", "len", "iter", "reversed", "contains", "missing", "bool")}
# Methods whose argument is what a test expects.
REVEALING_METHODS = frozenset(
    {"startswith", "endswith", "issubset", "issuperset", "isdisjoint", "match", "fullmatch", "equals"}
)
_VISIBLE_ATTRIBUTES = frozenset({"__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__"})
_VISIBLE_ATTRIBUTES |= {"__wrapped__", "__self__", "__members__", "__slots__", "__version__", "__cause__"}
_VISIBLE_ATTRIBUTES |= {
    "__context__",
    "__closure__",
    "__defaults__",
    "__mro__",
    "__bases__",
    "__dataclass_fields__",
    "__aenter__",
}


class Proxy:
    """Stands for an object of the other side. Every operation is performed there."""

    _shikisha_: "tuple[RpcPeer, int, RemoteClass]"

    def __getattr__(self, name: str) -> object:
        peer, _, kind = object.__getattribute__(self, "_shikisha_")
        if name[:2] == "__" and name not in _VISIBLE_ATTRIBUTES:
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
        peer, number, kind = self._shikisha_
        found = peer.ask("hash", self) if {"__eq__", "__hash__"} <= kind.methods else number
        if type(found) is not int:
            raise TypeError("__hash__ method should return an integer")
        return hash(found)

    def __lt__(self, other: object) -> object:
        return self._shikisha_[0].compare("lt", self, other)

    def __le__(self, other: object) -> object:
        return self._shikisha_[0].compare("le", self, other)

    def __gt__(self, other: object) -> object:
        return self._shikisha_[0].compare("gt", self, other)

    def __ge__(self, other: object) -> object:
        return self._shikisha_[0].compare("ge", self, other)

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
    """The metaclass of proxies for classes of the other side: real classes without instances here."""

    _shikisha_: "tuple[RpcPeer, int, RemoteClass]"

    def __new__(meta, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
        """Return a stand-in; a class here that derives from one of the other side is made over there."""
        peer = next((one._shikisha_[0] for one in bases if isinstance(one, ClassProxy)), None)
        if peer is None:
            return type.__new__(meta, name, bases, body)
        cell = body.pop("__classcell__", None)
        parts = [
            (key, type(one).__name__, getattr(one, "fget", None) or getattr(one, "__func__", one))
            for key, one in body.items()
            if key not in {"__module__", "__qualname__"}
        ]
        made = peer.ask("subclass", name, bases, parts)
        if cell is not None:
            cell.cell_contents = made  # type: ignore[attr-defined]
        return made  # type: ignore[return-value]  # a class, or a test fails

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
        return proxied_object(one) is not None and bool(cls._shikisha_[0].ask("isinstance", one, cls))

    def __subclasscheck__(cls, one: object) -> bool:
        return proxied_object(one) is not None and bool(cls._shikisha_[0].ask("issubclass", one, cls))

    def __call__(cls, *arguments: object, **named: object) -> object:
        """Create an instance on the other side."""
        return cls._shikisha_[0].ask("call", cls, *arguments, **named)


def proxied_object(one: object) -> "tuple[RpcPeer, int, RemoteClass] | None":
    """Return the peer, number and class of a proxy of any kind; None for everything else."""
    if isinstance(type(one), type) and (issubclass(type(one), Proxy) or issubclass(type(one), ClassProxy)):
        return one._shikisha_  # type: ignore[attr-defined,no-any-return]
    own = type(one).__dict__.get("_proxy_")
    return object.__getattribute__(one, "_shikisha_") if own else None


def _proxy_generator(proxy: Proxy) -> Generator[object, object, object]:
    """Stand for a generator: a real one that performs each step on the other side."""
    peer, _, _ = proxy._shikisha_
    try:
        sent = yield peer.ask("next", proxy)
        while True:
            sent = yield (peer.ask("next", proxy) if sent is None else peer.ask("send", proxy, sent))
    except StopIteration as end:
        return end.value


async def _proxy_coroutine(proxy: Proxy) -> object:
    """Stand for a coroutine: the other side awaits it in a loop of its own."""
    return proxy._shikisha_[0].ask("await", proxy)


_MUTATORS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update"})
_MUTATORS |= {"setdefault", "popitem", "add", "discard", "difference_update", "intersection_update"}
_MUTATORS |= {"symmetric_difference_update", "__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__"}
_MUTATORS |= {"__iand__", "__isub__", "__ixor__"}


def _refreshing_attribute(self: Proxy, name: str) -> object:
    """Return an attribute of a container; calling a method may change the container's contents."""
    found = Proxy.__getattr__(self, name)
    return _refreshing_method(self, found) if callable(found) else found


def _refreshing_method(one: Proxy, method: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        result = method(*arguments, **named)
        one._shikisha_[0].ask("itself", one)
        return result

    return call


def _make_mutator(name: str) -> Callable[..., object]:
    def change(self: Proxy, *arguments: object, **named: object) -> object:
        peer = self._shikisha_[0]
        method = peer.ask("getattr", self, name)
        result = method(*arguments, **named)  # type: ignore[operator]  # a method, or a test fails
        peer.ask("itself", self)
        return result

    return change


def _make_override(name: str, parent: type) -> Callable[..., object]:
    """Return a method of a built-in that the class overrides: its own where the tests use it as a class."""
    usual = getattr(parent, name, None)

    def method(self: Proxy, *arguments: object, **named: object) -> object:
        peer, _, kind = object.__getattribute__(self, "_shikisha_")
        if not peer.trusts(kind):
            if usual is None:
                raise KeyError(*arguments)
            return usual(self, *arguments, **named)
        if name in _COMBINED:
            return peer.combine(_COMBINED[name], self, *arguments)
        if name[:2] == "__":
            return peer.ask(_FORWARDED.get(name, "getitem"), self, *arguments, **named)
        found = peer.ask("getattr", self, name)
        result = found(*arguments, **named)
        if parent.__name__ in MUTABLE_BASES:
            peer.ask("itself", self)
        return result

    return method


def _make_getter(name: str) -> Callable[[Proxy], object]:
    def get(self: Proxy) -> object:
        return self._shikisha_[0].ask("getattr", self, name)

    return get


def _make_forwarder(operation: str) -> Callable[..., object]:
    def method(self: Proxy, *arguments: object, **named: object) -> object:
        return self._shikisha_[0].ask(operation, self, *arguments, **named)

    return method


def _make_combiner(operation: str) -> Callable[..., object]:
    def method(self: Proxy, *arguments: object) -> object:
        return self._shikisha_[0].combine(operation, self, *arguments)

    return method


def _make_reflector(operation: str) -> Callable[..., object]:
    def method(self: Proxy, other: object) -> object:
        return self._shikisha_[0].combine(operation, other, self)

    return method


def make_proxy_type(kind: RemoteClass, base: str) -> type:
    """Return a class for proxies; for a built-in base it is a subclass, whose methods and comparisons work here."""
    body: dict[str, object] = {"__module__": "program"}
    if base not in STATELESS_KINDS:
        (parent,) = [one for one in BUILTIN_BASES if one.__name__ == base] or [None]  # type: ignore[list-item]
        if parent is None:
            raise HarnessRefusal("the program sent an object of an unknown kind")
        body |= {
            "__getattr__": Proxy.__getattr__,
            "__str__": Proxy.__str__,
            "__repr__": Proxy.__repr__,
            "_proxy_": True,
        }
        if "__call__" in kind.methods:
            body["__call__"] = _make_forwarder("call")
        own = _OVERRIDES & kind.methods
        own |= {name for name in kind.methods if name[:1] != "_"} - REVEALING_METHODS
        body |= {name: _make_override(name, parent) for name in own}
        if base in MUTABLE_BASES:
            body |= {"_refills_": True, "__getattr__": _refreshing_attribute}
            body |= {name: _make_mutator(name) for name in _MUTATORS & set(dir(parent))}
        return type(kind.name, (parent,), body)
    # Every class has these, so __getattr__ would not be called for them.
    for name in ("__doc__", "__annotations__"):
        body[name] = property(_make_getter(name))
    for name in kind.methods & PROXIED_METHODS:
        if name in _FORWARDED:
            body[name] = _make_forwarder(_FORWARDED[name])
        elif name in _COMBINED:
            body[name] = _make_combiner(_COMBINED[name])
            if name[2:-2] in _ARITHMETIC:
                body[f"__r{name[2:]}"] = _make_reflector(_COMBINED[name])
    if base == "class":
        body.pop("__call__", None)
        return type("type", (ClassProxy,), body)
    if "__anext__" in kind.methods:
        body |= {"__aiter__": lambda self: self, "__anext__": _proxy_anext}
    return type(kind.name, (Proxy,), body)


async def _proxy_anext(self: Proxy) -> object:
    return self._shikisha_[0].ask("anext", self)


PROXY_ADAPTERS: dict[str, Callable[[Proxy], object]] = {"generator": _proxy_generator, "coroutine": _proxy_coroutine}
ITERATION_KINDS: dict[type, str] = {GeneratorType: "generator", CoroutineType: "coroutine"}
STATELESS_KINDS = frozenset({"", "class", *PROXY_ADAPTERS})  # kinds of proxies without contents
