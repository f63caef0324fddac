"""Records whose methods are compiled late do what the standard library's do."""

import abc
import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shikisha.core import fast_dataclass
from shikisha.core.budget import Price
from shikisha.core.events import RunStarted

Make = Callable[[type], type]
LATE: Make = fast_dataclass.dataclass(frozen=True, slots=True)
LATE_BY_NAME: Make = fast_dataclass.dataclass(frozen=True, slots=True, kw_only=True)
USUAL: Make = dataclasses.dataclass(frozen=True, slots=True)
USUAL_BY_NAME: Make = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)


def classes(make: Make, by_name: Make) -> dict[str, Any]:
    """Return classes with every feature that the package uses."""

    class Base:
        first: int
        names: list[str] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=7, repr=False, compare=False)
        loose: list[int] = dataclasses.field(default_factory=list, hash=False)
        derived: str = dataclasses.field(init=False, default="")

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", f"<{self.first}>")

    base = make(Base)

    class Heir(base):  # type: ignore[misc, valid-type]
        last: tuple[int, ...] = ()

    class Named:
        first: int
        second: str | None = None

        def __repr__(self) -> str:
            return "mine"

    class Hashless:
        first: int

        def __eq__(self, other: object) -> bool:
            return True

    return {"Base": base, "Heir": make(Heir), "Named": by_name(Named), "Hashless": make(Hashless)}


CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Base", (1,), {}),
    ("Base", (1, ["a"]), {"hidden": 3}),
    ("Base", (), {}),
    ("Base", (1, [], 2, [], 3), {}),
    ("Base", (1, ()), {}),
    ("Base", (1,), {"nothing": 1}),
    ("Heir", (1,), {"last": (2,)}),
    ("Named", (), {"first": 1}),
    ("Named", (1,), {}),
    ("Hashless", (1,), {}),
]


def told(work: Callable[[], object]) -> str:
    try:
        return repr(work())
    except Exception as error:  # noqa: BLE001 - compared, whatever it is
        return f"{type(error).__name__}: {error}"


def set_first(one: Any) -> None:  # noqa: ANN401
    one.first = 2


def delete_first(one: Any) -> None:  # noqa: ANN401
    del one.first


@pytest.mark.parametrize(("name", "given", "named"), CASES)
def test_late_methods_do_what_the_standard_library_s_do(
    name: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    def seen(make: Make, by_name: Make) -> list[str]:
        cls = classes(make, by_name)[name]
        again = classes(make, by_name)[name]

        def one() -> Any:  # noqa: ANN401
            return cls(*given, **named)

        works: tuple[Callable[[], object], ...] = (
            one,
            lambda: one() == one(),
            lambda: one() == again(*given, **named),
            lambda: one() in (None, one()),
            lambda: hash(one()) == hash(one()),
            lambda: hash(dataclasses.replace(one(), first=5)) == hash(dataclasses.replace(one(), first=5)),
            lambda: copy.copy(one()),
            lambda: copy.deepcopy(one()),
            lambda: dataclasses.asdict(one()),
            lambda: [each.name for each in dataclasses.fields(one())],
            lambda: cls.__match_args__,
            lambda: set_first(one()),
            lambda: delete_first(one()),
            lambda: one().__dict__,
        )
        return [told(work) for work in works]

    assert seen(LATE, LATE_BY_NAME) == seen(USUAL, USUAL_BY_NAME)


def test_a_record_is_pickled_whole() -> None:
    price = Price(1.0, 2.0)
    assert pickle.loads(pickle.dumps(price)) == price  # noqa: S301 - our own


def test_a_plug_in_s_usual_dataclass_may_inherit_from_a_late_one() -> None:
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class More(RunStarted):
        more: int = 1

    made = More(run="r", at=0.0, conductor="c", pool=(), caps=None, prompt="p", more=2)  # type: ignore[arg-type]
    assert (made.more, made.prompt) == (2, "p")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.prompt = "q"  # type: ignore[misc]


def test_a_constructor_is_compiled_when_it_is_first_called() -> None:
    late = classes(LATE, LATE_BY_NAME)["Base"]
    before = late.__init__
    assert (before.__name__, late(1).first, late.__init__.__name__) == ("create", 1, "__init__")


def refused(make: Make) -> list[str]:
    """Return what is said of classes that cannot be, or differ from usual ones in how they are."""

    class Base:
        first: float

    base, changed = make(Base), dataclasses.make_dataclass("Changed", ["first"])

    def failed_heir() -> object:
        with pytest.raises(ValueError, match="mutable default"):
            make(type("Heir", (base,), {"__annotations__": {"names": list}, "names": []}))
        return base.__dataclass_params__.frozen  # type: ignore[attr-defined]

    class OutOfOrder:
        first: int = 1
        second: int

    class OwnSetter:
        first: int

        def __setattr__(self, name: str, value: object) -> None: ...

    class Itself:
        self: int

    class Abstract(abc.ABC):
        @abc.abstractmethod
        def __repr__(self) -> str: ...

    no_number = float("nan")
    works: tuple[Callable[[], object], ...] = (
        failed_heir,
        lambda: make(type("Heir", (changed,), {"__annotations__": {"last": int}})),
        lambda: told(lambda: make(OutOfOrder))[:10],
        lambda: make(OwnSetter),
        lambda: make(Itself)(self=2).self,
        lambda: make(type("Whole", (Abstract,), {"__annotations__": {"first": int}}))(1),
        lambda: base(no_number) == base(no_number),
        lambda: type(base(np.zeros(1)) == base(np.zeros(1))),
    )
    return [told(work) for work in works]


def test_what_the_standard_library_refuses_is_refused_where_it_is_defined() -> None:
    assert refused(LATE) == refused(USUAL)
