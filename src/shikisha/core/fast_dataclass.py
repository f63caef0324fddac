"""`dataclass` as in the standard library, but quick to define: a constructor is compiled when it is first called.

A command defines two hundred frozen records and makes a few of them, and the standard library compiles seven methods
for each: a fifth of what a start costs. Invariant: what a record does is what the standard library's would do
(`tests/core/test_fast_dataclass.py` compares them). Deliberately absent: InitVar, and classes that are not frozen or
have no slots, which the standard library makes.
"""

import dataclasses
from abc import update_abstractmethods
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["MISSING", "Field", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **others):  # noqa: ANN001, ANN003, ANN201 - see above
        """Return a class as a dataclass, or what makes one."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, slots=slots, kw_only=kw_only, **others)
        known = [vars(base)["__dataclass_params__"] for base in cls.__mro__ if "__dataclass_params__" in vars(base)]
        thawed = "__setattr__" in vars(cls) or "__delattr__" in vars(cls) or not all(each.frozen for each in known)
        if others or thawed or not (frozen and slots):  # who thaws what is frozen gets the standard library's error
            return dataclasses.dataclass(cls, frozen=frozen, slots=slots, kw_only=kw_only, **others)
        own = vars(cls).keys() - {"__hash__"} if vars(cls).get("__hash__", 0) is None else vars(cls).keys()
        try:
            for each in known:  # or the standard library refuses an heir that it is not to freeze
                each.frozen = False
            made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True, kw_only=kw_only)
        finally:
            for each in known:
                each.frozen = True
        made.__dataclass_params__.frozen = True
        begun = False
        for each in fields(made):
            if each.init and not each.kw_only:
                optional = each.default is not MISSING or each.default_factory is not MISSING
                if begun and not optional:
                    raise TypeError(f"{cls.__qualname__}: {each.name} has no default and follows one that has")
                begun = optional
        for name, method in _methods(made).items():
            if name not in own:
                setattr(made, name, method)
        return update_abstractmethods(made)


def _methods(cls: Any) -> dict[str, Callable[..., object]]:  # noqa: ANN401 - a dataclass
    compared = [each.name for each in fields(cls) if each.compare]
    hashed = [each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)]
    # One value twice: then it is a tuple as well, whose values are equal to themselves.
    pairs = [names * 2 if len(names) == 1 else names for names in (compared, hashed)]
    values, keys = (attrgetter(*names) if names else lambda _: () for names in pairs)

    def create(self: object, /, *given: object, **named: object) -> None:
        scope: dict[str, Any] = {"_missing": MISSING}
        lines, parameters = list[str](), {False: ["_self"], True: ["*"]}
        for each in fields(cls):
            default, make, value = f"_default_{each.name}", f"_make_{each.name}", each.name
            scope |= {default: each.default, make: each.default_factory, f"_set_{value}": getattr(cls, value).__set__}
            optional = each.default is not MISSING or each.default_factory is not MISSING
            if each.init:
                parameters[bool(each.kw_only)].append(each.name + f"={default}" * optional)
            elif not optional:
                continue
            value = value if each.init else default
            made = f"{make}() if {value} is _missing else {value}" if each.default_factory is not MISSING else value
            lines.append(f"_set_{each.name}(_self, {made})")
        signature = ", ".join(parameters[False] + parameters[True] * (len(parameters[True]) > 1))
        lines += ["_self.__post_init__()"] if hasattr(cls, "__post_init__") else ["pass"]
        exec(f"def __init__({signature}):\n " + "\n ".join(lines), scope)  # noqa: S102 - names of fields only
        cls.__init__ = scope["__init__"]
        cls.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__(self, *given, **named)

    return {
        "__init__": create,
        "__eq__": lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        ),
        "__hash__": lambda self: hash(keys(self)),
        "__repr__": _describe,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": lambda self: [getattr(self, each.name) for each in fields(self)],
        "__setstate__": _set_state,
    }


@recursive_repr()
def _describe(self: Any) -> str:  # noqa: ANN401 - a dataclass
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse(self: object, name: str, *value: object) -> None:  # noqa: ARG001 - as it is called
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401 - a dataclass
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
