"""A run of training from beginning to end: lessons, then steps of reinforcement, each told, written down and kept.

What comes first is refused first: settings, tasks and money, the model; then the warm start, if there is one; then
GRPO, by our own loop or by TRL. Invariants: a run that is killed anywhere and begun again goes on as the unbroken one
(same weights, same figures but seconds), and repeats at most what was done since its last checkpoint; a step's line is
on the disk before anybody is told of it, and before its checkpoint; weights that are no numbers are never kept; of
several processes the main one alone writes and tells, and all end together. Deliberately absent: where settings, tasks
and workers come from (`config.training`), and any view.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from shikisha.errors import CapReached, ConfigError, Diverged
from shikisha.taskset import Item
from shikisha.train import card, keeping
from shikisha.train.adapted import added, put_back
from shikisha.train.cores import lesson_makers, our_device, settled
from shikisha.train.crew import first_of, our_crew
from shikisha.train.exam import examined, likeliest
from shikisha.train.ground import Ground, School
from shikisha.train.keeping import Kept, Place, Shelf, State
from shikisha.train.memory import dice, recall, remember, with_dice
from shikisha.train.opening import TEMPLATE, Begun, located, opened
from shikisha.train.progress import Judged, Step, Watcher
from shikisha.train.record import Record
from shikisha.train.reference import Loop
from shikisha.train.refusals import refuse_ground, refuse_model, refuse_settings
from shikisha.train.replay import replay_of
from shikisha.train.rollout import END, PAD
from shikisha.train.scoring import Scorer
from shikisha.train.settings import TrainSettings
from shikisha.train.slates import CHUNK, Chunks, chunk_of, made_ahead
from shikisha.train.source import Source
from shikisha.train.tiny import Size, fresh
from shikisha.train.warm import WarmStep, optimizer_of, warm_up

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2ForCausalLM

    from shikisha.train.trl_backend import TrlLoop

FINAL = "final"
_TRL = "shikisha.train.trl_backend"  # its `reinforced(run, kept)` does what `Run.reinforced` does
_WARM_EVERY = 10  # times as many steps between the checkpoints of a warm start: they are that much shorter
_UNBOUND = frozenset({"keep", "spend"})  # settings that no figure hangs on: they may change when a run goes on
T = TypeVar("T")
Reinforced = Callable[["Run", Kept | None], Awaitable["Result"]]


@dataclass(frozen=True, slots=True)
class Order:
    """What to train on what, where it is kept, and who is told: of steps, of lessons, of what must be known.

    `home` is where the relative path of `model.start` begins: the training file's folder. `begin` is called when
    nothing was refused and the lessons are done, before the first step. `clock` is what checkpoints get old by.
    """

    settings: TrainSettings
    ground: Ground
    folder: Path
    resume: bool = False
    watchers: Sequence[Watcher] = ()
    taught: Callable[[WarmStep], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    begin: Callable[[], None] = lambda: None
    home: Path = Path()
    clock: Callable[[], float] = monotonic


@dataclass(frozen=True, slots=True)
class Result:
    """Where the conductor is, after how many steps, what it came to, and what calls of workers cost in dollars."""

    folder: Path
    steps: int
    judged: tuple[int, Judged] | None
    spent: float
    simulated: bool


async def train(order: Order) -> Result:
    """Train, in a folder that is `keeping.claimed`.

    ConfigError before anything is paid for where it cannot work; Diverged where a loss is no number; CapReached where
    the dollars are spent.
    """
    crew = our_crew()
    if not crew.main:
        order = replace(order, watchers=(), taught=lambda _: None, note=lambda _: None, begin=lambda: None)
    shelf = Shelf(order.folder, order.settings.keep.last, order.note, order.clock)
    with crew.agreed():
        refuse_settings(order.settings, crew.count)
        kept = _kept(order, shelf, crew.count) if crew.main else None
    found = crew.texts("" if kept is None else kept.place.name)[0]
    with crew.agreed():
        if not crew.main:
            kept = _same(shelf, found, crew.rank)
        refuse_ground(order.settings, order.ground)
        begun = _begun(order, kept)
        refuse_model(begun, order.settings, order.ground)
        done = kept.place.step if kept is not None and kept.place.stage == "step" else 0
        order.note(f"the run is kept in {order.folder}")
        run = Run(order, shelf, begun, Record(order.folder, done) if crew.main else None)
    try:
        if kept is None or kept.place.stage == "warm":
            with crew.agreed():
                await run.warmed(kept)
            kept = None
        if not order.settings.grpo.steps:
            return run.ended(0)
        with settled():
            return await (run.reinforced(kept) if order.settings.backend == "plain" else _by_trl(run, kept))
    finally:
        if run.record is not None:
            run.record.close()


async def _by_trl(run: "Run", kept: Kept | None) -> Result:
    """Hand the run over to TRL: the one seam of the other backend."""
    if find_spec(_TRL) is None:
        raise ConfigError('backend: TRL cannot be used yet; expected backend = "plain"')
    reinforced = cast("Reinforced", import_module(_TRL).reinforced)
    return await reinforced(run, kept)


class Run:
    """A run on its way: what it trains, and everything that it writes.

    `record` is the main process's. A backend may say otherwise how `weights` are had in one piece (None: the model
    holds them) and what the `likeliest` plans are; every process asks for these.
    """

    def __init__(self, order: Order, shelf: Shelf, begun: Begun, record: Record | None) -> None:
        self.order, self.shelf, self.begun, self.record, self.crew = order, shelf, begun, record, our_crew()
        self.weights: Callable[[], Mapping[str, Tensor] | None] = lambda: None
        self.likeliest: Callable[[Sequence[Item]], list[str]] = self._likeliest
        settings, ground = order.settings, order.ground
        self.model = cast("Qwen2ForCausalLM", begun.model)
        if settings.backend == "plain" or settings.warm.steps:  # TRL moves what it is given, if only for itself
            torch.nn.Module.to(self.model, our_device())
        self.source = Source(
            ground.stream, settings.seed, near_half=settings.curriculum.near_half, floor=settings.curriculum.floor
        )
        self.scorer = Scorer(
            settings.reward.weights(),
            ground.caps,
            max(1, settings.spend.at_once // self.crew.count),
            self._share(settings.spend.dollars) if ground.purse is None else None,
            ground.purse,
            ground.engine,
        )

    async def warmed(self, kept: Kept | None) -> None:
        """Take what is left of the lessons; then keep the model with which reinforcement begins.

        Whoever stops it is heard between two steps, and what was learned until then is kept.
        """
        table, school = self.order.settings.warm, self.order.ground.school
        if table.steps:
            if school is None:
                raise ConfigError(
                    f"warm.steps: there are no lessons for {self.order.ground.origin.taskset}: expected 0, found "
                    f"{table.steps}"
                )
            optimizer = optimizer_of(self.model, table)
            if kept is not None:
                recall(kept.state, optimizer, {})
            else:
                self.save(Place("warm", 0), remember(optimizer, {}))
            first = kept.place.step if kept is not None else 0
            every = self.order.settings.keep.every * _WARM_EVERY
            with _lessons(self, school, first) as chunks:
                for step in warm_up(self.model, optimizer, chunks, table, first):
                    self.order.taught(step)
                    stopped = await _stopped()
                    if any(self.crew.texts("stopped" if stopped else "")):
                        stopped = stopped or asyncio.CancelledError()
                    if step.number < table.steps and (stopped or self.late() or step.number % every == 0):
                        self.save(Place("warm", step.number), remember(optimizer, {}))
                    if stopped:
                        raise stopped
        self.save(Place("step", 0), State())

    async def reinforced(self, kept: Kept | None, backend: "Callable[..., Loop | TrlLoop]" = Loop) -> Result:
        """Take what is left of the steps of GRPO, by our own loop or what does as it does."""
        settings = self.order.settings
        with self.crew.agreed():
            loop = backend(self.model, self.begun.tokenizer, self.source, self.scorer, settings, self.reference(kept))
            generators = {"sampling": loop.generator}
            loop.replay = replay_of(settings, self.order.ground, self.begun.tokenizer)
            if kept is not None and kept.place.step:
                if loop.optimizer is None:
                    self.order.note("what the optimizer knew was not kept (FSDP, DeepSpeed): its averages begin anew")
                recall(kept.state, loop.optimizer, generators)
                self.recalled(kept)
                loop.step = kept.place.step
            self.order.begin()
            beside = await self.beside() if loop.step < settings.grpo.steps else {}
        while loop.step < settings.grpo.steps:
            at, drawn, lot = loop.step, self.source.state(), loop.generator.get_state()
            try:
                with self.crew.agreed():
                    step = await whole(loop.advance())
            except (CapReached, asyncio.CancelledError):
                if loop.step == at:  # no weight was touched: what was learned since the last checkpoint is kept
                    self.source.restore(drawn)
                    loop.generator.set_state(lot)
                    self.save(Place("step", at), remember(loop.optimizer, generators))
                raise
            texts = self.examined(step.number)
            with self.crew.agreed():
                await self.after(step, texts, beside)
            if self.due(step.number):
                self.save(Place("step", step.number), remember(loop.optimizer, generators))
        return self.ended(loop.step)

    def reference(self, kept: Kept | None) -> "Qwen2ForCausalLM | None":
        """Return the model that reinforcement began with, where divergences from it are counted."""
        if not self.order.settings.grpo.kl:
            return None
        if kept is None or not kept.place.step:
            return deepcopy(self.model)
        first = opened(str(self.shelf.read(Place("step", 0)).folder)).model
        return cast("Qwen2ForCausalLM", torch.nn.Module.to(first, self.model.device))

    def recalled(self, kept: Kept) -> None:
        """Take up adapters, the curriculum and the count of dollars where they were."""
        put_back(self.model, kept.state.tensors)
        facts = kept.state.facts
        self.source.restore(cast("dict[str, object]", facts["source"]))
        self.scorer.spent = float(cast("float", facts["spent"])) / self.crew.count

    async def beside(self) -> Mapping[str, float]:
        """Return what others come to on the judged tasks."""
        ground = self.order.ground
        wanted = self.crew.main and ground.judged
        return await ground.beside() if wanted and ground.beside is not None else {}

    def examined(self, number: int) -> list[str]:
        """Return the likeliest plans for the judged tasks where this step is followed by an exam, else nothing."""
        settings, items = self.order.settings, self.order.ground.judged
        due = number % settings.tasks.every == 0 or number == settings.grpo.steps
        return self.likeliest(items) if items and due else []

    async def after(self, step: Step, texts: Sequence[str], beside: Mapping[str, float]) -> None:
        """Judge what texts there are, write the step down, tell whoever watches; Diverged where it is no number."""
        if not (isfinite(step.loss) and isfinite(step.gradient)):
            raise Diverged(f"step {step.number}: the loss is {step.loss}, the gradient's length {step.gradient}")
        if self.record is None:
            return
        if texts:
            exam = examined(texts, self.scorer, self.order.ground.judged, beside)
            step = replace(step, judged=await whole(exam))
        self.record.add(step)
        for watcher in self.order.watchers:
            watcher(step)

    def due(self, number: int) -> bool:
        """Whether this step is followed by a checkpoint: by its number, or by the clock."""
        late = self.late()  # asked in every process, whatever the number says
        return late or number % self.order.settings.keep.every == 0 or number == self.order.settings.grpo.steps

    def late(self) -> bool:
        """Whether the last checkpoint is old by the main process's clock."""
        return bool(self.crew.texts("late" if self.shelf.is_old(self.order.settings.keep.minutes) else "")[0])

    def save(self, place: Place, state: State) -> None:
        """Write a checkpoint; Diverged, with the one before in its place, where a weight is no number."""
        weights, spent = self.weights(), self.crew.total(self._spent())
        lots = self.crew.texts(dice(state)) if self.crew.count > 1 and state.tensors else []
        with self.crew.agreed():
            for name, each in (dict(self.model.named_parameters()) if weights is None else weights).items():
                if not bool(torch.isfinite(each).all()):
                    raise Diverged(f"{place.name}: the weights in {name} are no numbers")
            if self.crew.main:
                facts = {**state.facts, **self._facts(spent), **({"dice": lots} if lots else {})}
                tensors = {**state.tensors, **added(self.model)}
                self.shelf.save(place, lambda folder: self._fill(folder, place, spent, weights), State(tensors, facts))

    def ended(self, steps: int) -> Result:
        """Write the conductor without the state of its training, and say where it is."""
        place, weights, spent = Place("step", steps), self.weights(), self.crew.total(self._spent())
        with self.crew.agreed():
            if self.crew.main:
                with keeping.written(self.order.folder / FINAL) as folder:
                    self._fill(folder, place, spent, weights)
        judged = None if self.record is None else self.record.judged
        return Result(self.order.folder / FINAL, steps, judged, spent, self.order.ground.origin.simulated)

    def _spent(self) -> float:
        """Return what this process's calls of workers came to in dollars."""
        purse = self.order.ground.purse
        return self.scorer.spent if purse is None else purse.spent

    def _share(self, dollars: float | None) -> float | None:
        """Return what each of the processes may spend."""
        return None if dollars is None else dollars / self.crew.count

    def _likeliest(self, items: Sequence[Item]) -> list[str]:
        if not self.crew.main:
            return []
        return likeliest(self.model, self.begun.tokenizer, items, self.order.settings.grpo.longest)

    def _fill(self, folder: Path, place: Place, spent: float, weights: "Mapping[str, Tensor] | None") -> None:
        begun, judged = self.begun, None if self.record is None else self.record.judged
        tokens = {"pad_token_id": begun.pad, "eos_token_id": begun.end}
        keeping.save_model(self.model, folder, tokens, weights)
        begun.tokenizer.save(str(folder / keeping.TOKENIZER))
        keeping.save_for_others(folder, begun.tokenizer, self.model, tokens)
        if begun.template:
            (folder / TEMPLATE).write_text(begun.template, encoding="utf-8")
        card.write(folder, card.About(place, self.order.ground.origin, self.order.settings, judged, spent, begun.start))

    def _facts(self, spent: float) -> dict[str, object]:
        return {
            "settings": _bound(self.order.settings),
            "ground": dict(self.order.ground.identity),
            "start": dict(self.begun.start),
            "source": self.source.state(),
            "spent": spent,
            "processes": self.crew.count,
            "versions": card.versions(),
        }


@contextmanager
def _lessons(run: Run, school: School, first: int) -> Iterator[Chunks]:
    """Yield a run's lessons as tokens; a GPU's are made by other processes, ahead of time."""
    table, tokenizer = run.order.settings.warm, run.begun.tokenizer
    if not school.maker or run.model.device.type == "cpu":
        yield lambda number: chunk_of(number, school.lessons, tokenizer, table)
        return
    told = {**school.told, "tokenizer": tokenizer.to_str()}
    with made_ahead(school.maker, told, lesson_makers(), first // CHUNK) as chunks:
        yield chunks


async def whole(work: Awaitable[T]) -> T:
    """Await what performs many runs at once; what one of them raises is raised as itself."""
    try:
        return await work
    except ExceptionGroup as group:
        raise first_of(group) from None


async def _stopped() -> asyncio.CancelledError | None:
    """Let the event loop run; return what it stops this task with."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as stop:
        return stop
    return None


def _kept(order: Order, shelf: Shelf, processes: int) -> Kept | None:
    """Return the checkpoint to go on from; ConfigError where that was not asked for, or it is of something else."""
    there = shelf.places()
    if not order.resume:
        if there:
            raise ConfigError(
                f"{order.folder}: there is a run of training here already ({there[-1].name}): --resume goes on with "
                "it, or choose another --out"
            )
        return None
    shelf.tidy()
    kept = shelf.newest()
    if kept is None:
        order.note("there is no checkpoint to go on from yet: it begins at the beginning")
        return None
    _refuse_other(kept, order, processes)
    order.note(f"goes on after {kept.place.name}")
    return kept


def _same(shelf: Shelf, found: str, rank: int) -> Kept | None:
    """Return the checkpoint that the main process has found, with this process's own sources of chance."""
    place = Place.of(found)
    if place is None:
        return None
    kept = shelf.read(place)
    lots = cast("list[str]", kept.state.facts.get("dice", []))
    return replace(kept, state=with_dice(kept.state, lots[rank])) if lots else kept


def _refuse_other(kept: Kept, order: Order, processes: int) -> None:
    facts = kept.state.facts
    if (count := facts.get("processes", 1)) != processes:
        raise ConfigError(
            f"{kept.folder}: a checkpoint of {count} processes, and now there are {processes}: a run goes on with as "
            "many as it began with, or begins anew in another --out (model.start may be this checkpoint)"
        )
    before, now = cast("dict[str, object]", facts["settings"]), _bound(order.settings)
    before = _bound(TrainSettings()) | before  # a key that is newer than the checkpoint had its default
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{kept.folder}: a checkpoint of other settings: {key} was {before.get(key)!r}, and is "
                f"{now.get(key)!r}: a run goes on with what it began with, or begins anew in another --out"
            )
    before, now = cast("dict[str, object]", facts["ground"]), dict(order.ground.identity)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(f"{kept.folder}: a checkpoint of another {key}: was {before.get(key)}, is {now.get(key)}")
    was, found = cast("dict[str, str]", facts["versions"]), card.versions()
    changed = [f"{name} {was.get(name)} → {found.get(name)}" for name in found if was.get(name) != found.get(name)]
    if changed:
        order.note(f"libraries have changed, so figures may differ in the last digits: {', '.join(changed)}")


def _bound(settings: TrainSettings) -> dict[str, object]:
    """Return the settings that figures hang on, by dotted key."""
    found: dict[str, object] = {}
    for key, value in settings.model_dump(mode="json", exclude=set(_UNBOUND)).items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _begun(order: Order, kept: Kept | None) -> Begun:
    """Open what the run goes on from, or begins with."""
    table = order.settings.model
    if kept is not None:
        first = kept.folder.with_name(Place("step", 0).name)  # what adapters were added to
        found = opened(str(first if table.lora and kept.place.stage == "step" else kept.folder), table.dtype)
        return replace(found, start=cast("dict[str, object]", kept.state.facts["start"]))
    if table.start:
        return opened(located(table.start, order.home), table.dtype)
    school = order.ground.school
    if school is None:
        raise ConfigError(
            f"model.start: there are no lessons for {order.ground.origin.taskset}, so it cannot begin from scratch: "
            "expected a checkpoint's folder or a model on the hub"
        )
    order.note("counts the words of lessons, for a tokenizer")
    tokenizer = school.tokenizer()
    size = Size(table.layers, table.width, table.heads, table.inner, table.longest)
    return Begun(fresh(tokenizer.get_vocab_size(), size, order.settings.seed), tokenizer, PAD, END)
