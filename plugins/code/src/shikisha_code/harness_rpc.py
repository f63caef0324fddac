"""The protocol between the test runner's process and the program's: requests and answers as JSON lines.

This file's text is sent to both processes, after `harness_proxy` and `harness_codec`. Invariant: a container that a
request sends is the same container afterwards, with the changes made to it. Deliberately absent: which requests are
granted and which comparisons are believed (`harness_solution`, `harness_runner`).
"""

import json
import operator
import sys
from collections import deque
from collections.abc import Callable
from os import read, write
from threading import RLock
from types import FunctionType
from typing import Any

from shikisha_code.harness_codec import (
    ERRORS,
    PRIVATE_MODULES,
    UNSHARED_MODULES,
    MessageDecoder,
    MessageEncoder,
    WireValue,
    function_parts,
    stdlib_location,
    to_json,
)
from shikisha_code.harness_proxy import (
    MUTABLE_BASES,
    OPERATIONS,
    PROXY_ADAPTERS,
    STATELESS_KINDS,
    HarnessRefusal,
    PeerGone,
    Proxy,
    RemoteClass,
    make_proxy_type,
)

LONGEST_MESSAGE = 64 * 2**20  # bytes of one message
_CHUNK = 2**20
_parse = json.JSONDecoder().raw_decode


class RpcPeer:
    """One end: it asks, answers requests while it waits, and knows the objects that the other end holds."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._taken = b""
        # Objects that the other side knows by number; kept alive, so that no id is reused.
        self._held: list[object] = []
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, object] = {}
        self._classes: dict[int, RemoteClass] = {}
        self._made: dict[tuple[frozenset[str], str], type] = {}
        self._errors: dict[int, type[BaseException]] = {}
        self._talking = RLock()
        self.seen_modules: set[str] = set()  # where the other side says that its objects' classes are defined
        self.common: dict[str, type] = {}  # classes that both sides define: their instances cross as data

    # Policies of a side. By default everything is granted and believed, as in one process.

    def grant(self, operation: str, arguments: list[object]) -> Callable[..., object]:
        """Return the operation that the other side requests; HarnessRefusal when it may not."""
        del arguments
        return OPERATIONS[operation]

    def attribute(self, proxy: Proxy, kind: RemoteClass, name: str) -> object:
        """Return an attribute of an object of the other side."""
        del kind
        return self.ask("getattr", proxy, name)

    def equal(self, proxy: Proxy, other: object) -> bool:
        """Whether an object of the other side equals something."""
        return proxy is other or (isinstance(other, Proxy) and bool(self.ask("eq", proxy, other)))

    def compare(self, operation: str, proxy: Proxy, other: object) -> object:
        """Return the result of `<` and the like."""
        return self.ask(operation, proxy, other)

    def combine(self, operation: str, *operands: object) -> object:
        """Return the result of `+`, `in` and the like."""
        return self.ask(operation, *operands)

    def shared_object(self, module: str, name: str) -> object:
        """Return a standard library function or class that the other side named."""
        return getattr(__import__(module, fromlist=[name]), name)

    def shareable(self, value: object) -> tuple[str, str] | None:
        """Return where the other side finds the same function or class; None where it does not."""
        return stdlib_location(value)

    sends_code = False  # whether functions that need nothing of this side are sent as code

    def portable(self, value: object) -> list[object] | None:
        """Return a function's parts if the other side can rebuild it, else None."""
        return function_parts(value) if self.sends_code and isinstance(value, FunctionType) else None

    def function(self, parts: list[object]) -> object:
        """Build a function from the parts that the other side sent."""
        del parts
        raise HarnessRefusal("the program sent code")

    def module(self, name: str) -> object:
        """Return a module that the other side named."""
        raise HarnessRefusal(f"the program sent the module {name}")

    def trusts(self, kind: RemoteClass) -> bool:  # noqa: ARG002 - a policy of the runner's side
        """Whether the other side's class decides what methods of a built-in do that it overrides."""
        return True

    def replace(self, one: object, contents: object) -> None:
        """Replace the contents of a container that the other side has changed."""
        _replace_contents(one, contents)

    # An array that the other side sent, as it is here.
    array: Callable[[Any], Any] = staticmethod(lambda made: made)

    def outgoing_state(self) -> dict[str, WireValue]:
        """Return the state that goes with every message: text printed since the last one, for example."""
        return {}

    def receive_state(self, carried: dict[str, WireValue]) -> None:
        """Apply the state that came with a message."""

    # Messages.

    def text(self, operation: str, proxy: Proxy) -> str:
        """Return the result of `str` or `repr`."""
        return str(self.ask(operation, proxy))

    def ask(self, operation: str, *arguments: object, **named: object) -> object:
        """Perform an operation on the other side and return its result, or raise its exception."""
        with self._talking:
            result = self._request(operation, arguments, named)
            if operation != "itself":
                for one in arguments:
                    if type(one).__dict__.get("_refills_"):  # its contents here are a copy
                        self._request("itself", (one,), {})
            return result

    def _request(self, operation: str, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        sent = MessageEncoder(self)
        first: WireValue = [sent.value(one) for one in arguments]
        second: WireValue = {name: sent.value(one) for name, one in named.items()}
        self._send(["ask", operation, first, second, self.outgoing_state()])
        while True:
            message = self._receive()
            if message[0] == "ask":
                self._answer(message)
            else:
                # The value of an answer, or raise its error, after applying the changes to the arguments.
                got = MessageDecoder(self, sent.slots)
                kind, wire, changed, carried = message
                value = got.value(wire)
                if not isinstance(changed, list):
                    raise HarnessRefusal("the program sent what is no answer")
                own = len(sent.slots)
                for place, contents in changed:  # type: ignore[misc,str-unpack]  # anything but a pair is an error
                    if type(place) is not int or not 0 <= place < own:
                        raise HarnessRefusal("the program changed what it was not given")
                    self.replace(got.slots[place], got.value(contents))
                self._take(carried)
                if kind == "raise":
                    raise (
                        value
                        if isinstance(value, BaseException)
                        else HarnessRefusal("the program raised what is no exception")
                    )
                return value

    def serve(self) -> None:
        """Answer requests until the other side has gone."""
        try:
            while True:
                self._answer(self._receive())
        except PeerGone:
            return

    def _answer(self, message: list[WireValue]) -> None:
        got = MessageDecoder(self)
        _, operation, first, second, carried = message
        if not (isinstance(operation, str) and isinstance(first, list) and isinstance(second, dict)):
            raise HarnessRefusal("the program sent what is no request")
        arguments = [got.value(one) for one in first]
        named = {name: got.value(one) for name, one in second.items()}
        before = [_container_contents(one) for one in got.slots]
        self._take(carried)
        kind, result = "value", None
        try:
            result = self.grant(operation, arguments)(*arguments, **named)
        except (HarnessRefusal, PeerGone):
            raise
        except BaseException as error:
            if self.must_end(error):
                raise
            kind, result = "raise", error
        reply = MessageEncoder(self, got.slots)
        try:
            value = reply.value(result)
        except (HarnessRefusal, PeerGone):
            raise
        except BaseException as error:
            if self.must_end(error):
                raise
            reply = MessageEncoder(self, got.slots)
            kind, value = "raise", reply.value(TypeError(f"a value that cannot be read: {type(error).__name__}"))
        changed: list[WireValue] = []
        for place, (one, old) in enumerate(zip(got.slots, before, strict=False)):
            if not _same_contents(_container_contents(one), old):
                changed.append([place, reply.contents(one)])
        self._send([kind, value, changed, self.outgoing_state()])

    def must_end(self, error: BaseException) -> bool:
        """Whether an error ends this side instead of being sent to the other."""
        del error
        return False

    def _take(self, carried: WireValue) -> None:
        if carried:
            self.receive_state(carried if isinstance(carried, dict) else {})

    def _send(self, message: list[WireValue]) -> None:
        data = memoryview(f"{to_json(message)}\n".encode())
        try:
            while data:
                data = data[write(self._writes, data) :]
        except OSError:
            raise PeerGone from None

    def _receive(self) -> list[WireValue]:
        pieces = [self._taken]
        size = len(self._taken)
        while b"\n" not in pieces[-1]:
            piece = read(self._reads, _CHUNK)
            size += len(piece)
            if not piece:
                raise PeerGone
            if size > LONGEST_MESSAGE:
                raise HarnessRefusal(f"the program sent more than {LONGEST_MESSAGE:,} bytes at once")
            pieces.append(piece)
        line, _, self._taken = b"".join(pieces).partition(b"\n")
        try:
            message, _ = _parse(line.decode())
        except (ValueError, RecursionError):
            message = None
        if not (isinstance(message, list) and len(message) == (5 if message[:1] == ["ask"] else 4)):
            raise HarnessRefusal("the program sent what cannot be read")
        return message

    # Objects by number.

    def number(self, one: object) -> int:
        """Return the number by which the other side knows an object of this side."""
        if id(one) not in self._numbers:
            self._numbers[id(one)] = len(self._held)
            self._held.append(one)
        return self._numbers[id(one)]

    def held_object(self, number: WireValue) -> object:
        """Return an object of this side by its number."""
        if type(number) is not int or not 0 <= number < len(self._held):
            raise HarnessRefusal("the program named an object that it was not given")
        return self._held[number]

    def proxy(self, wire: list[WireValue], got: MessageDecoder) -> object:
        """Return the proxy for an object of the other side: always the same proxy for the same object."""
        number, base, contents, about = wire
        if type(number) is not int or not isinstance(base, str):
            raise HarnessRefusal("the program sent what is no object")
        if number in self._proxies:
            found = self._proxies[number]
            held = got.value(contents)
            if base in MUTABLE_BASES:
                _replace_contents(found, held)
            return found
        if not isinstance(about, list):
            raise HarnessRefusal("the program sent an object without its class")
        kind = self._class(about)
        made = self._type(kind, base)
        if base == "class":
            one = self._new_class(made, kind, contents)
            type.__setattr__(one, "_shikisha_", (self, number, kind))
            self._proxies[number] = one
            return one
        if base in STATELESS_KINDS:
            one = object.__new__(made)
        else:
            held = got.value(contents)
            one = made.__new__(made, held)
            if base in MUTABLE_BASES:
                made.__init__(one, held)  # type: ignore[misc]
        object.__setattr__(one, "_shikisha_", (self, number, kind))
        self._proxies[number] = PROXY_ADAPTERS[base](one) if base in PROXY_ADAPTERS else one  # type: ignore[arg-type]
        return self._proxies[number]

    def _new_class(self, made: type, kind: RemoteClass, place: WireValue) -> type:
        """Return a proxy class with the same base as the other side's class, if that base is known here."""
        module, name = place if isinstance(place, list) else ("", "")
        found = (
            None
            if str(module).partition(".")[0] in UNSHARED_MODULES
            else getattr(sys.modules.get(str(module)), str(name), None)
        )
        try:
            bases = (found,) if isinstance(found, type) and type(found) is type else ()
            return made(kind.name, bases, {"__module__": "program"})  # type: ignore[no-any-return]
        except TypeError:  # a final class
            return made(kind.name, (), {"__module__": "program"})  # type: ignore[no-any-return]

    def _class(self, about: list[WireValue]) -> RemoteClass:
        number, name, methods, module = about
        self.seen_modules.add(str(module).partition(".")[0])
        if type(number) is not int or not isinstance(name, str) or not isinstance(methods, list):
            raise HarnessRefusal("the program sent what is no class")
        if number not in self._classes:
            self._classes[number] = RemoteClass(number, name[:100], frozenset(map(str, methods)))
        return self._classes[number]

    def _type(self, kind: RemoteClass, base: str) -> type:
        known = (frozenset({kind.name, *kind.methods}), base)
        if known not in self._made:
            self._made[known] = make_proxy_type(kind, base)
        return self._made[known]

    def error_here(self, number: WireValue, module: str, name: str) -> type[BaseException] | None:
        """Return the exception class of this name that both sides have, or None."""
        if module == "yours":
            found = self.held_object(number)
        elif module == "builtins":
            found = ERRORS.get(name)
        elif module.partition(".")[0] in UNSHARED_MODULES or module in PRIVATE_MODULES:
            found = None
        else:  # what stands in for a module would ask for it again
            found = vars(sys.modules[module]).get(name) if module in sys.modules else None
        return found if isinstance(found, type) and issubclass(found, BaseException) else None

    def error_class(self, number: int, name: str, parent: type[BaseException]) -> type[BaseException]:
        """Return the stand-in for an exception class of the other side."""
        if number not in self._errors:
            body = {"__str__": _error_text, "_text_": None, "_other_": number, "__module__": "program"}
            self._errors[number] = type(name, (parent,), body)
        return self._errors[number]


def _error_text(error: BaseException) -> str:
    text = vars(error).get("_text_")
    return text if isinstance(text, str) else BaseException.__str__(error)


def _container_contents(one: object) -> object:
    """Return a container's items, without descending into them."""
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


def _same_contents(now: object, then: object) -> bool:
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(operator.is_, now, then))
    if isinstance(now, set) and isinstance(then, set):
        return set(map(id, now)) == set(map(id, then))
    return now == then


def _replace_contents(one: object, contents: object) -> None:
    """Replace a container's contents."""
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
            raise HarnessRefusal("the program made another kind of container of what it was given")
