"""A conductor that reads a task, and points at who does which part.

`task_reader` reads the parts, `pointer_network` decides for each part who does it, how it is worded, what it sees and
whether it is checked, and `part_plans` writes the rounds. Cards are read once.

Invariants: it names only workers of the pool (1); the same task and cards give the same plan; a decision needs
numpy alone. Where a task has no part that it can tell, the fallback plans, and the plan says so (9).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import Field

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.conductors import SHIPPED
from shikisha.config.config_table import ConfigTable
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.prompts import WORDINGS
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor, ConductorKind, ConductorParts, NoPlan, Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.retrieval.code_probe import check_probe, probe_code
from shikisha.routing.arrays import Flags, Floats32, Ints
from shikisha_train.pointer.part_plans import (
    PartChoice,
    PartedTask,
    PartPolicy,
    PartsConductor,
    TreatmentKind,
)
from shikisha_train.pointer.part_tagger import tagger_sizes
from shikisha_train.pointer.pointer_network import (
    TREATMENTS,
    EncodedPool,
    PointerInput,
    PointerNetwork,
    join_with_next,
    layer_sizes,
    pointer_features,
)
from shikisha_train.pointer.reading_range import KNOWN_FEATURES, ReadingRange
from shikisha_train.pointer.task_reader import OTHER_ROLES, REFERENCES, WORDS_BUCKETS, ReadTask, TaskReader
from shikisha_train.pointer.weight_file import WeightFile, open_weights, state_metadata, write_weights

POINTER_FILE, FORMAT = "pointer.safetensors", "shikisha-pointer/4"
VOTE_KIND = "vote"
_READS, _DECIDES = "probe of the reader", "probe of the network"  # of a file's metadata
_KNOWN_ROWS = 256  # in which the weights of a reading range are stored, each with its scale
_FEATURES = tuple(WORDINGS)


@dataclass(frozen=True)
class PoolKnowledge:
    """What outcomes say of W workers: tries and right answers by kind [W, K], and by kind and wording [W, K, 2^F]
    (`pointer_network`); `family` [W] numbers those that err together (-1: unknown)."""

    tries: Floats32
    right: Floats32
    told_tries: Floats32
    told_right: Floats32
    family: Ints

    @classmethod
    def nothing(cls, workers: int, kinds: int) -> "PoolKnowledge":
        """Return the knowledge before any outcome."""
        by_kind = np.zeros((workers, kinds), np.float32)
        by_wording = np.zeros((workers, kinds, 2 ** len(_FEATURES)), np.float32)
        return cls(by_kind, by_kind, by_wording, by_wording, np.full(workers, -1))


@dataclass(frozen=True)
class PointerModel:
    """A reader and a network that were trained together; `version` is the hash of their file."""

    reader: TaskReader
    network: PointerNetwork
    version: str

    def decide(self, read: ReadTask, cards: Sequence[Card], known: PoolKnowledge) -> "PointerPlan":
        """Return the likeliest choices for a task that was read."""
        claims = np.stack([self.claims(card.description) for card in cards])
        return self.plan(read, claims, np.array([call_price(card) for card in cards], np.float32), known)

    def plan(self, read: ReadTask, claims: Floats32, prices: Floats32, known: PoolKnowledge) -> "PointerPlan":
        """Return the likeliest choices for workers with these claims [W, K] and prices [W]."""
        paths = _paths(read.parts)
        given = pointer_input(read, paths, claims, prices, known)
        plan = likeliest_choices(self.network, self.network.encode(pointer_features(given)), given, paths)
        # A task that was left whole is one call: what would be checked is not known.
        return replace(plan, mode=np.zeros_like(plan.mode)) if read.whole else plan

    def claims(self, description: str) -> Floats32:
        """Return which kinds of work a card claims."""
        return _read_claims(self.reader, description)


@lru_cache(maxsize=4096)
def _read_claims(reader: TaskReader, description: str) -> Floats32:
    return reader.claims(description)


def call_price(card: Card) -> float:
    """Return about what a call costs, in dollars: 500 tokens in and 200 out where the price is a token's."""
    price = card.price
    if price is None:
        return 0.0
    return price.call + (500 * price.input + 200 * price.output) / 1e6


def _paths(task: PartedTask) -> list[tuple[int, ...]]:
    """Return the paths that a task may take: one, or one for each branch."""
    rule = task.condition
    if rule is None:
        return [tuple(range(len(task)))]
    return [task.taken(rule.threshold + 1), task.taken(None)]


@dataclass(frozen=True)
class PointerPlan:
    """Choices by path: `join`, `mode` [R, P], `workers` [R, P, 3], `told` [R, P, 3, F], `shown` [R, P, P]."""

    paths: list[tuple[int, ...]]
    join: Flags
    mode: Ints
    workers: Ints
    told: Flags
    shown: Flags

    def policy(self) -> PartPolicy:
        """Return the choices as a policy; parts before a condition are done as on the first path."""
        where = {part: (row, at) for row, path in reversed(list(enumerate(self.paths))) for at, part in enumerate(path)}

        def choose(left: tuple[int, ...]) -> PartChoice:
            row, at = where[left[0]]
            block = [left[0]]
            for part in left[1:]:
                other, place = where[part]
                if other != row or place != at + len(block) or not self.join[row, place]:
                    break
                block.append(part)
            kind = TREATMENTS[self.mode[row, at]]
            slots = 3 if kind in (TreatmentKind.SECOND_OPINION, TreatmentKind.VOTE) else 2
            slots = 1 if kind is TreatmentKind.CALL else slots
            told = tuple(
                frozenset(name for name, said in zip(_FEATURES, self.told[row, at, slot], strict=True) if said)
                for slot in range(slots)
            )
            seen = self.shown[row, at : at + len(block)]  # a call sees what one of its parts is to see
            shown = frozenset(part for place, part in enumerate(self.paths[row][:at]) if seen[:, place].any())
            return PartChoice(tuple(block), kind, tuple(map(int, self.workers[row, at, :slots])), told, shown)

        return choose


def pointer_input(
    read: ReadTask, paths: Sequence[Sequence[int]], claims: Floats32, prices: Floats32, known: PoolKnowledge
) -> PointerInput:
    """Return what the network sees of a task, one row for each path."""
    rows, most, workers = len(paths), max(map(len, paths)), len(prices)
    kinds = np.zeros((rows, most, read.kinds.shape[1]), np.float32)
    parts, joinable = np.zeros((rows, most), bool), np.zeros((rows, most), bool)
    needs = np.zeros((rows, most, most), np.float32)
    rule = read.parts.condition
    for row, path in enumerate(paths):
        count = len(path)
        kinds[row, :count], parts[row, :count] = read.kinds[list(path)], True
        needs[row, :count, :count] = read.needs[np.ix_(path, path)]
        for at in range(1, count):
            before, later = path[at - 1], path[at + 1 :]
            decides = rule is not None and rule.on == before
            joinable[row, at] = not decides and not any(before in read.parts.uses[part] for part in later)

    def repeated(array: Floats32) -> Floats32:
        return np.broadcast_to(array[None], (rows, *array.shape))

    return PointerInput(
        kinds, parts, np.ones((rows, workers), bool), repeated(claims), repeated(known.tries), repeated(known.right),
        repeated(known.told_tries), repeated(known.told_right), repeated(prices),
        np.broadcast_to(known.family[None], (rows, workers)), np.full(rows, read.value, np.float32), joinable, needs,
    )  # fmt: skip


def likeliest_choices(
    network: PointerNetwork, seen: EncodedPool, given: PointerInput, paths: list[tuple[int, ...]]
) -> PointerPlan:
    """Return the choice with the highest score at each decision, in the order in which they depend on one another."""
    rows, most = given.parts.shape
    first = network.score_first(seen).argmax(-1)
    workers, mode = np.zeros((rows, most, 3), np.int64), np.zeros((rows, most), np.int64)
    join = np.zeros((rows, most), bool)
    every = np.arange(rows)
    one_hot = np.eye(len(TREATMENTS), dtype=np.float32)
    workers[..., 0] = first
    for at in range(1, most):
        running = workers[:, at - 1, 0]
        can = given.parts[:, at] & given.joinable[:, at]
        join[:, at] = can & (network.score_join(seen, every, np.full(rows, at), running) > 0)
        workers[:, at, 0] = np.where(join[:, at], running, first[:, at])
    alone = ~(join | join_with_next(join))
    for at in range(most):
        place, own = np.full(rows, at), workers[:, at, 0]
        mode[:, at] = np.where(alone[:, at], network.score_modes(seen, every, place, own).argmax(-1), 0)
        how = one_hot[mode[:, at]]
        workers[:, at, 1] = network.score_second(seen, every, place, own, how).argmax(-1)
        workers[:, at, 2] = network.score_third(seen, every, place, own, workers[:, at, 1], how).argmax(-1)
    told = (network.score_wordings(seen) > 0)[every[:, None, None], workers]
    shown = (network.score_access(seen) > 0) & np.tril(np.ones((most, most), bool), -1)
    return PointerPlan(paths, join, mode, workers, told, shown)


class PointerConductor:
    """Plans by a pointer model; `known` is what outcomes say of the pool.

    `tells`: it adds to subtasks what it learned to tell the simulated office's workers, which is no help elsewhere.
    """

    def __init__(
        self,
        name: str,
        model: PointerModel,
        known: PoolKnowledge | None = None,
        fallback: Conductor | None = None,
        *,
        tells: bool = False,
    ) -> None:
        self.name, self.fallback = name, fallback
        self._model, self._known, self._tells = model, known, tells

    @property
    def purpose(self) -> str:
        """What it is for, in words."""
        kinds = ", ".join(self._model.reader.kinds)
        after = f"{self.fallback.name} plans" if self.fallback else "one worker gets all of it"
        unlike = f"; where a question is unlike its own, {after}" if self._model.reader.known else ""
        return f"for tasks made of the kinds of work that it was trained on ({kinds}){unlike}"

    def unreadable(self, _cards: Sequence[Card], task: Task | None = None) -> str | None:
        """Return why the task cannot be read; None if it can. Cards are read whatever they say."""
        problem = None if task is None else self._model.reader.unlike(task.prompt)
        advice = "" if self.fallback else "; name a fallback (pointer:FILE?fallback=CONDUCTOR), or another conductor"
        return problem and f"{problem}{advice}"

    async def propose(self, situation: Situation) -> Proposal:
        """Return the next round's plan."""
        read = self._model.reader.read(situation.task.prompt)
        problem = self.unreadable(situation.cards, situation.task) if read.foreign else None
        if problem and self.fallback is not None:
            proposal = await self._fall_back(situation)
            return replace(proposal, note=f"{self.name}: {problem}; {proposal.note}")
        places = [at for at, card in enumerate(situation.cards) if card.kind != VOTE_KIND]
        if not len(read.parts) or not places or (read.whole and self.fallback is not None):
            return await self._fall_back(situation)
        cards = [situation.cards[at] for at in places]
        known = self._known or PoolKnowledge.nothing(len(cards), len(self._model.reader.kinds))
        plan = self._model.decide(read, cards, known)
        policy = (plan if self._tells else replace(plan, told=np.zeros_like(plan.told))).policy()
        votes = next((at for at, card in enumerate(situation.cards) if card.kind == VOTE_KIND), None)
        planner = PartsConductor(
            self.name, read.parts, _placed(policy, places, has_votes=votes is not None), votes or 0
        )
        proposal = await planner.propose(situation)
        said = "; ".join(one_line(sentence, 60) for sentence in read.parts.sentences)
        parts = "left whole, in doubt" if read.whole else f"{len(read.parts)} parts"
        parts = f"left whole, since {problem}" if problem else parts
        return replace(proposal, note=f"{parts}: {said}", version=self._model.version)

    async def _fall_back(self, situation: Situation) -> Proposal:
        if self.fallback is None:
            raise NoPlan("no part of the task could be read", "task")
        proposal = await self.fallback.propose(situation)
        return replace(proposal, substituted=self.fallback.name)


def _placed(policy: PartPolicy, places: Sequence[int], *, has_votes: bool) -> PartPolicy:
    """Return the policy with places in the whole pool; a vote without a counter becomes a second opinion."""

    def choose(left: tuple[int, ...]) -> PartChoice:
        choice = policy(left)
        kind = choice.kind
        if kind is TreatmentKind.VOTE and not has_votes:
            kind = TreatmentKind.SECOND_OPINION
        return replace(choice, kind=kind, workers=tuple(places[at] for at in choice.workers))

    return choose


def shipped_pointer() -> Path:
    """Return the file of the shipped pointer model."""
    return Path(str(files("shikisha_train.pointer") / POINTER_FILE))


def save_pointer(file: Path, model: PointerModel, more: Mapping[str, str]) -> None:
    """Write a model; `more` is what else its header says."""
    reader = model.reader
    arrays = {f"network.{name}": array for name, array in model.network.weights.items()}
    arrays |= {f"tagger.{name}": array for name, array in reader.tagger.items()}
    arrays |= {"reader.words": reader.words, "reader.bias": reader.bias}
    packed = {name for name, array in arrays.items() if not name.startswith("network.") and np.ndim(array) > 1}
    told = {"format": FORMAT, "kinds": " ".join(reader.kinds), "wordings": " ".join(_FEATURES), **more}
    if (known := reader.known) is not None:
        arrays["known.weights"] = known.weights.reshape(_KNOWN_ROWS, -1)
        packed.add("known.weights")
        told["known"] = f"{known.bias} {known.threshold}"
    write_weights(file, arrays, told, packed)
    bind_pointer(file)


def load_pointer(file: Path) -> PointerModel:
    """Read a model; ConfigError where there is none, it is not whole, or it goes with other code."""
    held, model = open_pointer(file)
    with _refusal(file):
        check_probe(held.metadata.get(_READS), model.reader.behavior())
        check_probe(held.metadata.get(_DECIDES), _decisions(model))
    return model


def open_pointer(file: Path) -> tuple[WeightFile, PointerModel]:
    """Read a model without asking whether it goes with this code; ConfigError where it is not whole."""
    held = open_weights(file, "pointer model")
    with _refusal(file):
        reader = _read_reader(file, held)
        shapes = layer_sizes(len(reader.kinds))
        weights = {name: held.read(f"network.{name}", shape) for name, shape in shapes.items()}
    return held, PointerModel(reader, PointerNetwork(weights, np), held.version)


def bind_pointer(file: Path) -> None:
    """Write into a model what this code makes of it, so that code that makes something else refuses it."""
    held, model = open_pointer(file)
    told = {_READS: probe_code(model.reader.behavior()), _DECIDES: probe_code(_decisions(model))}
    state_metadata(held, {**held.metadata, **told})


def _decisions(model: PointerModel) -> Iterator[Floats32]:
    """Yield the features and scores of three workers at three parts (`retrieval.code_probe`)."""
    kinds = len(model.reader.kinds)
    some = np.arange(3 * kinds, dtype=np.float32).reshape(1, 3, kinds)
    told = np.arange(3 * kinds * 2 ** len(_FEATURES), dtype=np.float32).reshape(1, 3, kinds, -1) % 5
    right, told_right = (some % 7 / 2).astype(np.float32), (told / 2).astype(np.float32)
    yes, shares = np.ones((1, 3), bool), some % 4 / (some % 4).sum(-1, keepdims=True).clip(1)
    features = pointer_features(
        PointerInput(
            shares, yes, yes, some % 2, some % 7, right, told, told_right,
            np.array([[0.0001, 0.001, 0.02]], np.float32), np.array([[0, 1, 0]]), np.array([2.0], np.float32), yes,
            np.tril(np.full((1, 3, 3), 0.5, np.float32), -1),
        )
    )  # fmt: skip
    yield from (features.x, features.c, features.y, features.a, features.pairs)
    seen = model.network.encode(features)
    yield from (model.network.score_first(seen), model.network.score_wordings(seen), model.network.score_access(seen))


def load_reader(file: Path) -> TaskReader:
    """Read a model's reader alone: its network may go with other code."""
    held = open_weights(file, "pointer model")
    with _refusal(file):
        reader = _read_reader(file, held)
        check_probe(held.metadata.get(_READS), reader.behavior())
        return reader


@contextmanager
def _refusal(file: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no pointer model: {type(error).__name__}: {error}") from None


def _read_reader(file: Path, held: WeightFile) -> TaskReader:
    told = held.metadata
    if told["format"] != FORMAT:
        raise ConfigError(f"{file}: expected the format {FORMAT}, found {told['format']!r}: train it again")
    kinds = tuple(str(told["kinds"]).split())
    if tuple(str(told["wordings"]).split()) != _FEATURES:
        raise ConfigError(f"{file}: it was trained with other wordings than {', '.join(_FEATURES)}")
    columns = 2 * len(kinds) + len(OTHER_ROLES) + len(REFERENCES) + 2
    sizes = tagger_sizes(len(kinds) + len(OTHER_ROLES), len(REFERENCES))
    return TaskReader(
        kinds,
        {name: held.read(f"tagger.{name}", shape) for name, shape in sizes.items()},
        held.read("reader.words", (WORDS_BUCKETS, columns)),
        held.read("reader.bias", (columns,)),
        _read_known(held) if "known" in told else None,
    )


def _read_known(held: WeightFile) -> ReadingRange:
    bias, threshold = map(float, held.metadata["known"].split())
    if not np.isfinite([bias, threshold]).all():
        raise ValueError("known: expected finite numbers")
    return ReadingRange(
        held.read("known.weights", (_KNOWN_ROWS, KNOWN_FEATURES // _KNOWN_ROWS)).ravel(), bias, threshold
    )


class PointerTable(ConfigTable):
    """[conductors.NAME] kind = "pointer": a pointer model plans, which `shikisha train pointer` wrote."""

    file: Path = Field(description='the model, relative to this file, or "shipped"')
    fallback: str | None = Field(default=None, description="the conductor of tasks that it cannot read")


def build(table: PointerTable, parts: ConductorParts) -> PointerConductor:
    """Return the conductor of a pointer model; ConfigError when there is none."""
    fallback = parts.conductor(table.fallback, parts.pool) if table.fallback else None
    file = shipped_pointer() if table.file.name == SHIPPED else table.file
    return PointerConductor(parts.name, load_pointer(file), fallback=fallback)


def _read(target: str, options: Mapping[str, str]) -> Mapping[str, object]:
    return {**options, "file": target}


KIND = ConductorKind(settings=PointerTable, build=build, double=lambda: ScriptedConductor(()), read=_read)
