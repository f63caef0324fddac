"""The kind of conductor `head`: cuts a task into parts, and gives each to the worker that a linear head names.

The head reads one frozen state of a part's words, from the encoder in the package, and knows its workers by name. A
worker is a model in one wording, or a tool. One more worker, the file's `join`, puts the answers together.

Invariants: it names only workers of the pool (1); a worker that the pool lacks gets no part; the same task and pool
give the same plan. Where it cannot plan, the fallback does, and the plan says so (9). Deliberately absent: prices. What
a second is worth was part of the reward, and is in the weights.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import Field

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.conductors import SHIPPED
from shikisha.config.config_table import ConfigTable
from shikisha.core.errors import ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor, ConductorKind, ConductorParts, NoPlan, Proposal, Situation
from shikisha.engine.worker import Card
from shikisha.retrieval.code_probe import check_probe, probe_code
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.routing.arrays import Floats32, Ints
from shikisha_train.head.part_cutter import BUCKETS, MAX_CHARACTERS, PLACES, Cutter, token_features
from shikisha_train.head.weight_file import open_weights, write_weights

FORMAT, JOIN = "shikisha-head/1", "Put the answers together, each on a line, in this order."
SHAPES = 4  # numbers that say what a text looks like
_SCALE = 4.0  # of states, whose norm is 1 or less
_MOST_READ = 4_000
_TRIED = 'First, sort these: pear, fig. Then, what is (3 + 4) * 2? And "who is it"?'


def text_shape(text: str) -> list[float]:
    """Return a text's length, lines, and shares of digits and signs, each about -1 to 1."""
    read = text[:_MOST_READ]
    size = max(1, len(read))
    signs = sum(not (one.isalnum() or one.isspace()) for one in read)
    lines = min(read.count("\n") + 1, 21)
    shares = (4 * sum(map(str.isdigit, read)) / size - 0.8, lines / 10 - 0.6, 4 * signs / size - 1)
    return [float(np.log(max(size, 10))) / 1.5 - 3.5, *shares]


def part_states(vectors: Floats32, middle: Floats32, texts: Sequence[str]) -> Floats32:
    """Return states (texts, width + SHAPES) from vectors (texts, width) about `middle`, with the texts' shapes."""
    shapes = np.array([text_shape(text) for text in texts], np.float32).reshape(-1, SHAPES)
    return np.hstack([(vectors - middle) * _SCALE, shapes]).astype(np.float32)


@dataclass(frozen=True)
class PartHead:
    """A cutter, and scores of A workers: `middle` (width,), `weights` (width + SHAPES, A), `bias` (A,)."""

    cutter: Cutter
    workers: tuple[str, ...]
    join: str
    middle: Floats32
    weights: Floats32
    bias: Floats32
    version: str = ""

    def scores(self, parts: Sequence[str]) -> Floats32:
        """Return unnormalized log-probabilities, shape (parts, workers)."""
        vectors = np.asarray(shipped_encoder().encode(list(parts)), np.float32)
        return np.asarray(part_states(vectors, self.middle, parts) @ self.weights + self.bias)

    def choose(self, parts: Sequence[str], present: Sequence[int]) -> Ints:
        """Return the likeliest of the present workers for each part."""
        best: Ints = np.array(present)[self.scores(parts)[:, list(present)].argmax(1)]
        return best


class HeadConductor:
    """Plans one round: a step a part, and one that joins where there are several."""

    def __init__(self, name: str, head: PartHead, fallback: Conductor | None = None) -> None:
        self.name, self.fallback, self._head = name, fallback, head

    @property
    def purpose(self) -> str:
        """What it is for, in words."""
        return f"for tasks joined as those that it learned from, by these workers: {', '.join(self._head.workers)}"

    def unreadable(self, cards: Sequence[Card]) -> str | None:
        """Return why no task of this pool can be planned; None where some can."""
        if any(card.name in self._head.workers for card in cards):
            return None
        return f"the pool has none of its workers: {', '.join(self._head.workers)}"

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan, then the empty one; NoPlan where nothing can be planned and no fallback is named."""
        if situation.rounds and (self.fallback is None or situation.rounds[0].version == self._head.version):
            return Proposal(Plan())
        places = {card.name: at for at, card in enumerate(situation.cards)}
        present = [at for at, worker in enumerate(self._head.workers) if worker in places]
        prompt = situation.task.prompt
        readable = len(prompt) <= MAX_CHARACTERS
        # In a thread: signs alone take most of a second, in which other runs go on.
        parts = await asyncio.to_thread(self._head.cutter.cut, prompt) if readable else []
        joined = len(parts) > 1
        problem = self.unreadable(situation.cards)
        if problem is None and not parts:
            problem = f"no part could be read in {len(prompt):,} characters"
        elif problem is None and joined and self._head.join not in places:
            problem = f"the task has {len(parts)} parts, and the pool lacks the worker {self._head.join!r}"
        elif problem is None and len(parts) + joined > situation.left.plan_steps:
            problem = f"{len(parts)} parts take more than the {situation.left.plan_steps} steps of a plan"
        if problem is not None:
            if self.fallback is None:
                raise NoPlan(problem, self.name)
            proposal = await self.fallback.propose(situation)
            return replace(proposal, substituted=self.fallback.name, note=f"{self.name}: {problem}; {proposal.note}")
        chosen = [places[self._head.workers[at]] for at in self._head.choose(parts, present)]
        steps = [Step(part, worker) for part, worker in zip(parts, chosen, strict=True)]
        if joined:
            steps.append(Step(JOIN, places[self._head.join], tuple(range(len(parts)))))
        note = f"{len(parts)} parts: " + "; ".join(one_line(part, 60) for part in parts)
        return Proposal(Plan(tuple(steps)), note=note, version=self._head.version, final=True)


def shipped_head() -> Path:
    """Return the file of the shipped head."""
    return Path(str(files("shikisha_train.head") / "head.safetensors"))


def _behavior(head: PartHead) -> str:
    return probe_code([head.cutter.labels[token_features(_TRIED)].sum(1), head.scores([_TRIED])])


def save_head(file: Path, head: PartHead, more: Mapping[str, str]) -> None:
    """Write a head; `more` is what else its metadata say. It is bound to this code and encoder."""
    arrays = {
        "labels": head.cutter.labels.T, "moves": head.cutter.moves, "places": head.cutter.places,
        "middle": head.middle, "weights": head.weights, "bias": head.bias,
    }  # fmt: skip
    kept = {**more, "format": FORMAT, "workers": "\n".join(head.workers), "join": head.join}
    write_weights(file, arrays, kept, packed={"labels"})
    write_weights(file, arrays, {**kept, "probe": _behavior(_open(file)[0])}, packed={"labels"})


def load_head(file: Path) -> PartHead:
    """Read a head; ConfigError where there is none, it is not whole, or it goes with other code or another encoder."""
    head, metadata = _open(file)
    try:
        check_probe(metadata.get("probe"), [head.cutter.labels[token_features(_TRIED)].sum(1), head.scores([_TRIED])])
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    return head


def _open(file: Path) -> tuple[PartHead, Mapping[str, str]]:
    kept = open_weights(file, "head")
    try:
        metadata = kept.metadata
        if metadata["format"] != FORMAT:
            raise ValueError(f"expected the format {FORMAT}, got {metadata['format']!r}")
        workers = tuple(metadata["workers"].split("\n"))
        width, count = len(shipped_encoder().encode([""])[0]), len(workers)
        cutter = Cutter(
            kept.read("labels", (3, BUCKETS)).T, kept.read("moves", (3, 3)), kept.read("places", (PLACES, 3))
        )
        weights, bias = kept.read("weights", (width + SHAPES, count)), kept.read("bias", (count,))
        return PartHead(
            cutter, workers, metadata["join"], kept.read("middle", (width,)), weights, bias, kept.version
        ), metadata
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no head: {type(error).__name__}: {error}") from None


class HeadTable(ConfigTable):
    """[conductors.NAME] kind = "head": a head that reinforcement trained on real outcomes gives out the parts."""

    file: Path = Field(description='the head, relative to this file, or "shipped"')
    fallback: str | None = Field(default=None, description="the conductor of tasks that it cannot plan")


def build(table: HeadTable, parts: ConductorParts) -> HeadConductor:
    """Return the conductor of a head; ConfigError when there is none."""
    fallback = parts.conductor(table.fallback, parts.pool) if table.fallback else None
    return HeadConductor(parts.name, load_head(shipped_head() if table.file.name == SHIPPED else table.file), fallback)


def _read(target: str, options: Mapping[str, str]) -> Mapping[str, object]:
    return {**options, "file": target}


KIND = ConductorKind(settings=HeadTable, build=build, double=lambda: ScriptedConductor(()), read=_read)
