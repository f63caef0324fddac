"""What a run of training stands on besides its settings: the tasks, their pools, who grades, what may be spent.

Invariant: `stream(i)` is the same item for the same i, in this process and the next, so that a resumed run learns from
what the unbroken one would have; `identity` says by what another ground is told from this one. Deliberately absent:
where tasks and workers come from (`config.training`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shikisha.budget import Caps
from shikisha.conduct import Engine
from shikisha.evaluate.calls import Purse
from shikisha.taskset import Item
from shikisha.train.card import Origin
from shikisha.train.slates import Lessons

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PEEKED = 32  # items that stand for all where something is to be refused beforehand


@dataclass(frozen=True, slots=True)
class School:
    """What a model from scratch is taught by: lessons, and the tokenizer of their words.

    `readings` are lessons in reading alone, `copies` in writing down one ordinal. `maker` is a module whose processes
    make lessons too (`slates.made_ahead`), given `told`; "": there is none.
    """

    lessons: Lessons
    readings: Lessons
    copies: Lessons
    tokenizer: "Callable[[], Tokenizer]"
    maker: str = ""
    told: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ground:
    """Tasks to learn from and, in `judged`, tasks that tell how it goes; `largest` pool; `caps` of one run.

    `purse` holds the money where calls are really paid (None: the scorer counts what runs cost). `engine` knows the
    workers' keys. `beside` says what others come to on the judged tasks.
    """

    origin: Origin
    identity: Mapping[str, str]
    stream: Callable[[int], Item]
    largest: int
    judged: tuple[Item, ...] = ()
    caps: Caps = field(default_factory=Caps)
    school: School | None = None
    purse: Purse | None = None
    engine: Engine | None = None
    beside: Callable[[], Awaitable[Mapping[str, float]]] | None = None

    def peek(self) -> list[Item]:
        """Return the first items; they are not used up by it."""
        return [self.stream(place) for place in range(_PEEKED)]
