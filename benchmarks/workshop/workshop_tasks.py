"""1,500 tasks composed of parts: which family a part is of is not told, and where to cut is not marked.

A task joins one, two or three parts in one of several ways (order, brackets, relative clauses, what does not matter in
between). 600 are to learn from, 200 to choose by, 700 held out; four pairs of families and two families occur in
held-out tasks alone, in half of them. A split has so many parts of a family (`PARTS`), each of which occurs in several
of its tasks and in no other split's: the cache takes some four hours of one core, and intervals are over parts.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

from workshop_items import FAMILIES, Part

SPLITS: Mapping[str, Mapping[int, int]] = {  # tasks of one, two and three parts: 500, 600 and 400 in all
    "train": {1: 200, 2: 240, 3: 160},
    "choose": {1: 67, 2: 80, 3: 53},
    "test": {1: 233, 2: 280, 3: 187},
}
PARTS: Mapping[str, int] = {"train": 35, "choose": 10, "test": 40}
HELD_FAMILIES = ("booleans", "dates")
HELD_PAIRS = (
    frozenset({"arithmetic", "sorting"}),
    frozenset({"intents", "word problems"}),
    frozenset({"stories", "tables"}),
    frozenset({"sorting", "word problems"}),
)
_JOINS = {
    1: ("{0}", "Hello! {0}", "{0} Thank you in advance."),
    2: (
        "{0} {1}",
        "First of all: {0} After that, {1}",
        "{0} And while you are at it, {1}",
        "I need two things today. {0} The other one: {1}",
        "{1} (Before you answer that, though: {0})",
        "Before anything else {1} But even before that, {0}",
        "{0} Never mind the weather here, it has rained for days. {1}",
        "My colleague, who also wants to know this ({0}), asked me to pass on the following. {1}",
        "{0} That was from Monday's list. From Tuesday's: {1}",
        "Do not answer this one first: {1} Begin with this: {0}",
        "{0} Next, {1}",
        "We talked about it at lunch, where nobody knew. {0} Nor this. {1}",
    ),
    3: (
        "{0} {1} {2}",
        "{0} Then {1} And last, {2}",
        "{2} (But answer these two before it: {0} and {1})",
        "Three notes on my desk. {0} Under the coffee cup: {1} On the back: {2}",
        "{0} {1} The meeting was moved, by the way. {2}",
        "Last comes this: {2} The first is: {0} In the middle: {1}",
    ),
}
_ASKS: Mapping[str, Sequence[str]] = {
    "intents": (
        'Somebody writes to a help desk: "{text}". Which of these is it about: {labels}?',
        'Sort this message under one of {labels}: "{text}".',
    ),
    "arithmetic": ("What is {text}?", "Work out {text}.", "I get lost in {text}; what does it come to?"),
    "booleans": ("What does {text} evaluate to?", "Is {text} true or false?"),
    "sorting": ("Put these words into alphabetical order: {text}.", "Alphabetically, how do these go: {text}?"),
    "word problems": ("{text}",),
    "dates": ("{text}",),
    "tables": ("Here is a table.\n{table}\n{text}",),
    "stories": ("{story} {text} Is it {options}?",),
    "programs": ("Complete this Python function.\n```python\n{text}```\n",),
}


@dataclass(frozen=True, slots=True)
class WorkshopTask:
    """A task: its words, its parts in the order in which answers are wanted with what asks for each, and its split."""

    name: str
    prompt: str
    parts: tuple[Part, ...]
    split: str
    asks: tuple[str, ...] = ()

    @property
    def families(self) -> frozenset[str]:
        """The families of its parts."""
        return frozenset(part.family for part in self.parts)


def asked(part: Part, draw: random.Random) -> str:
    """Return the part as somebody would ask for it."""
    table = "\n".join(" | ".join(line) for line in _rows(part.more.get("table")))
    words = {
        "labels": ", ".join(map(str, _list(part.more.get("labels")))),
        "options": " / ".join(map(str, _list(part.more.get("options")))),
        "story": str(part.more.get("story", "")),
        "table": table,
        "text": part.text,
    }
    template = draw.choice(_ASKS[part.family])
    for name, value in words.items():
        template = template.replace("{" + name + "}", value)
    return template


def compose(parts: Mapping[str, Sequence[Part]], seed: int = 1) -> list[WorkshopTask]:
    """Return the tasks, in order of the hash of their words. No part is in two splits: its own hash says in which."""
    draw = random.Random(f"workshop {seed}")
    tasks: list[WorkshopTask] = []
    for split, sizes in SPLITS.items():
        pools = {
            family: [part for part in parts[family] if _split_of(part) == split][: PARTS[split]] for family in FAMILIES
        }
        places = dict.fromkeys(FAMILIES, 0)
        for count, number in sizes.items():
            groups = [frozenset(each) for each in combinations(FAMILIES, count)]
            shown = [each for each in groups if not _held(each)]
            held = [each for each in groups if _held(each)]
            for index in range(number):
                now = held if split == "test" and index % 2 else shown
                chosen = sorted(now[index // (2 if split == "test" else 1) % len(now)])
                draw.shuffle(chosen)
                taken = []
                for family in chosen:
                    taken.append(pools[family][places[family] % len(pools[family])])
                    places[family] += 1
                asks = tuple(asked(part, draw) for part in taken)
                prompt = _joined(asks, draw)
                name = sha256(prompt.encode()).hexdigest()[:12]
                tasks.append(WorkshopTask(name, prompt, tuple(taken), split, asks))
    return sorted(tasks, key=lambda task: task.name)


def _joined(said: Sequence[str], draw: random.Random) -> str:
    template = draw.choice(_JOINS[len(said)])
    pieces = re.split(r"\{(\d)\}", template)
    return "".join(said[int(piece)] if place % 2 else piece for place, piece in enumerate(pieces))


def _split_of(part: Part) -> str:
    share = int.from_bytes(sha256(f"{part.family} {part.name}".encode()).digest()[:4]) / 2**32
    return "train" if share < 0.4 else "choose" if share < 0.53 else "test"


def _held(families: frozenset[str]) -> bool:
    return bool(families & set(HELD_FAMILIES)) or any(pair <= families for pair in HELD_PAIRS)


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) else ()


def _rows(value: object) -> Sequence[Sequence[str]]:
    return value if isinstance(value, Sequence) else ()
