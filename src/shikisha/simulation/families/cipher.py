"""Ciphers: words encoded sign by sign, and two texts woven into one."""

import random
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from shikisha.simulation.operations import Operation, QuestionFamily
from shikisha.simulation.values import SimulatedValue, ValueKind
from shikisha.simulation.vocabulary import compile_paraphrases, word_set

Move: TypeAlias = Callable[[int, int], int]  # the place of a sign among so many, to its new place

_NAME = "cipher"
_LETTERS, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"


def _caesar(inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]) -> SimulatedValue:
    shift = int(str(constants[0]))
    return _encoded(str(inputs[0]), lambda place, count: (place + shift) % count)


def _atbash(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    return _encoded(str(inputs[0]), lambda place, count: count - 1 - place)


def _woven(inputs: Sequence[SimulatedValue], _constants: Sequence[SimulatedValue]) -> SimulatedValue:
    pairs = zip_longest(str(inputs[0]), str(inputs[1]), fillvalue="")
    return "".join(one + other for one, other in pairs)


def _encoded(text: str, move: Move) -> str:
    found = ""
    for sign in text:
        signs = _DIGITS if sign.isdigit() else _LETTERS
        found += signs[move(signs.index(sign), len(signs))]
    return found


def _shift(dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return None if str(inputs[0]).isdigit() else (dice.randint(2, 9),)


def _has_letters(_dice: random.Random, inputs: Sequence[SimulatedValue]) -> tuple[SimulatedValue, ...] | None:
    return None if str(inputs[0]).isdigit() else ()


FAMILY = QuestionFamily(
    name=_NAME,
    operations=(
        Operation(
            "cipher.caesar",
            _NAME,
            (ValueKind.WORD,),
            ValueKind.WORD,
            compile_paraphrases(
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
            (ValueKind.WORD,),
            ValueKind.WORD,
            compile_paraphrases(
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
            (ValueKind.TEXT, ValueKind.TEXT),
            ValueKind.WORD,
            compile_paraphrases(
                "{x} (woven|braided) (with|into) {y}",
                "{x} in a (weave|braid) with {y}",
                "the cipher that {x} (woven|braided) (with|into) {y} (makes|gives)",
            ),
            _woven,
        ),
    ),
    instructions=("do the cipher", "encode the name"),
    descriptions=(
        "(encodes|enciphers) (names|messages)",
        "(knows|handles) (ciphers|codes) for (names|messages)",
        "(does|is good at) (cipher|code) work",
    ),
    keywords=word_set("cipher ciphers enciphers encode encodes code codes caesar atbash woven braided weave braid"),
)
