"""Ciphers: words encoded sign by sign, and two texts woven into one."""

import random
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from shikisha.orchestra.operation import Family, Operation
from shikisha.orchestra.values import Sort, Value
from shikisha.orchestra.wording import bag, wordings

Move: TypeAlias = Callable[[int, int], int]  # the place of a sign among so many, to its new place

_NAME = "cipher"
_LETTERS, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"


def _caesar(inputs: Sequence[Value], constants: Sequence[Value]) -> Value:
    shift = int(str(constants[0]))
    return _encoded(str(inputs[0]), lambda place, count: (place + shift) % count)


def _atbash(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    return _encoded(str(inputs[0]), lambda place, count: count - 1 - place)


def _woven(inputs: Sequence[Value], _constants: Sequence[Value]) -> Value:
    pairs = zip_longest(str(inputs[0]), str(inputs[1]), fillvalue="")
    return "".join(one + other for one, other in pairs)


def _encoded(text: str, move: Move) -> str:
    found = ""
    for sign in text:
        signs = _DIGITS if sign.isdigit() else _LETTERS
        found += signs[move(signs.index(sign), len(signs))]
    return found


def _shift(dice: random.Random, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
    return None if str(inputs[0]).isdigit() else (dice.randint(2, 9),)


def _has_letters(_dice: random.Random, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
    return None if str(inputs[0]).isdigit() else ()


FAMILY = Family(
    name=_NAME,
    operations=(
        Operation(
            "cipher.caesar",
            _NAME,
            (Sort.WORD,),
            Sort.WORD,
            wordings(
                "the caesar (cipher|code) of {x} (with|by) a (shift|offset) of {a}",
                "the (cipher|code) of {x} after caesar (with|by) a (shift|offset) of {a}",
            ),
            _caesar,
            _shift,
            slots="a",
        ),
        Operation(
            "cipher.atbash",
            _NAME,
            (Sort.WORD,),
            Sort.WORD,
            wordings(
                "the atbash (cipher|code) of {x} in (plain|full) (form|shape)",
                "the atbash (cipher|code) that {x} (gives|yields) in full",
                "the (form|shape) that {x} (takes|gets) in the atbash (cipher|code)",
            ),
            _atbash,
            _has_letters,
        ),
        Operation(
            "cipher.woven",
            _NAME,
            (Sort.TEXT, Sort.TEXT),
            Sort.WORD,
            wordings(
                "{x} (woven|braided) (with|into) {y}",
                "{x} in a (weave|braid) with {y}",
                "the cipher that {x} (woven|braided) (with|into) {y} (makes|gives)",
            ),
            _woven,
        ),
    ),
    tell=("do the cipher", "encode the name"),
    offers=(
        "(encodes|enciphers) (names|messages)",
        "(knows|handles) (ciphers|codes) for (names|messages)",
        "(does|is good at) (cipher|code) work",
    ),
    cues=bag("cipher ciphers enciphers encode encodes code codes caesar atbash woven braided weave braid"),
)
