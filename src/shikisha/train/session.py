"""A run of training from beginning to end: lessons, then steps of reinforcement, each told, written down and kept.

What comes first is refused first: settings, tasks and money, the model; then the warm start, if there is one; then
GRPO, by our own loop or by TRL. Invariants: a run that is killed anywhere and begun again goes on as the unbroken one
(same weights, same figures but seconds), and repeats at most what was done since its last checkpoint; a step's line is
on the disk before anybody is told of it, and before its checkpoint; weights that are no numbers are never kept.
Deliberately absent: where settings, tasks and workers come from (`config.training`), and any view.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from shikisha.errors import CapReached, ConfigError, Diverged, ShikishaError
from shikisha.train import card, keeping
from shikisha.train.adapted import added, put_back
from shikisha.train.exam import examined
from shikisha.train.ground import Ground
from shikisha.train.keeping import Kept, Place, Shelf, State
from shikisha.train.memory import recall, remember
from shikisha.train.opening import TEMPLATE, Begun, located, opened
from shikisha.train.progress import Judged, Step, Watcher
from shikisha.train.record import Record
from shikisha.train.reference import Loop
from shikisha.train.refusals import refuse_ground, refuse_model, refuse_settings
from shikisha.train.rollout import END, PAD
from shikisha.train.scoring import Scorer
from shikisha.train.settings import TrainSettings
from shikisha.train.source import Source
from shikisha.train.tiny import Size, fresh
from shikisha.train.warm import WarmStep, optimizer_of, warm_up

if TYPE_CHECKING:
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
    nothing was refused and the lessons are done, before the first step.
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
    refuse_settings(order.settings)
    shelf = Shelf(order.folder, order.settings.keep.last, order.note)
    kept = _kept(order, shelf)
    refuse_ground(order.settings, order.ground)
    begun = _begun(order, kept)
    refuse_model(begun, order.settings, order.ground)
    done = kept.place.step if kept is not None and kept.place.stage == "step" else 0
    order.note(f"the run is kept in {order.folder}")
    run = Run(order, shelf, begun, Record(order.folder, done))
    try:
        if kept is None or kept.place.stage == "warm":
            run.warmed(kept)
            kept = None
        if not order.settings.grpo.steps:
            return run.ended(0)
        return await (run.reinforced(kept) if order.settings.backend == "plain" else _by_trl(run, kept))
    finally:
        run.record.close()


async def _by_trl(run: "Run", kept: Kept | None) -> Result:
    """Hand the run over to TRL: the one seam of the other backend."""
    if find_spec(_TRL) is None:
        raise ConfigError('backend: TRL cannot be used yet; expected backend = "plain"')
    reinforced = cast("Reinforced", import_module(_TRL).reinforced)
    return await reinforced(run, kept)


class Run:
    """A run on its way: what it trains, and everything that it writes."""

    def __init__(self, order: Order, shelf: Shelf, begun: Begun, record: Record) -> None:
        self.order, self.shelf, self.begun, self.record = order, shelf, begun, record
        settings, ground = order.settings, order.ground
        self.model = cast("Qwen2ForCausalLM", begun.model)
        self.source = Source(
            ground.stream, settings.seed, near_half=settings.curriculum.near_half, floor=settings.curriculum.floor
        )
        self.scorer = Scorer(
            settings.reward.weights(),
            ground.caps,
            settings.spend.at_once,
            None if ground.purse is not None else settings.spend.dollars,
            ground.purse,
            ground.engine,
        )

    def warmed(self, kept: Kept | None) -> None:
        """Take what is left of the lessons; then keep the model with which reinforcement begins."""
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
            first = kept.place.step if kept is not None else 0
            every = self.order.settings.keep.every * _WARM_EVERY
            for step in warm_up(self.model, optimizer, self.begun.tokenizer, school.lessons, table, first):
                self.order.taught(step)
                if step.number % every == 0 and step.number < table.steps:
                    self.save(Place("warm", step.number), remember(optimizer, {}))
        self.save(Place("step", 0), State())

    async def reinforced(self, kept: Kept | None, backend: "Callable[..., Loop | TrlLoop]" = Loop) -> Result:
        """Take what is left of the steps of GRPO, by our own loop or what does as it does."""
        settings = self.order.settings
        loop = backend(self.model, self.begun.tokenizer, self.source, self.scorer, settings, self.reference(kept))
        generators = {"sampling": loop.generator}
        if kept is not None and kept.place.step:
            recall(kept.state, loop.optimizer, generators)
            self.recalled(kept)
            loop.step = kept.place.step
        self.order.begin()
        beside = await self.beside() if loop.step < settings.grpo.steps else {}
        while loop.step < settings.grpo.steps:
            at, drawn, dice = loop.step, self.source.state(), loop.generator.get_state()
            try:
                step = await whole(loop.advance())
            except (CapReached, asyncio.CancelledError):
                if loop.step == at:  # no weight was touched: what was learned since the last checkpoint is kept
                    self.source.restore(drawn)
                    loop.generator.set_state(dice)
                    self.save(Place("step", at), remember(loop.optimizer, generators))
                raise
            await self.after(step, beside)
            if self.due(step.number):
                self.save(Place("step", step.number), remember(loop.optimizer, generators))
        return self.ended(loop.step)

    def reference(self, kept: Kept | None) -> "Qwen2ForCausalLM | None":
        """Return the model that reinforcement began with, where divergences from it are counted."""
        if not self.order.settings.grpo.kl:
            return None
        if kept is None or not kept.place.step:
            return deepcopy(self.model)
        return cast("Qwen2ForCausalLM", opened(str(self.shelf.read(Place("step", 0)).folder)).model)

    def recalled(self, kept: Kept) -> None:
        """Take up adapters, the curriculum and the count of dollars where they were."""
        put_back(self.model, kept.state.tensors)
        facts = kept.state.facts
        self.source.restore(cast("dict[str, object]", facts["source"]))
        self.scorer.spent = float(cast("float", facts["spent"]))

    async def beside(self) -> Mapping[str, float]:
        """Return what others come to on the judged tasks."""
        ground = self.order.ground
        return await ground.beside() if ground.judged and ground.beside is not None else {}

    async def after(self, step: Step, beside: Mapping[str, float]) -> None:
        """Judge where it is time to, write the step down, tell whoever watches; Diverged where it is no number."""
        settings, ground = self.order.settings, self.order.ground
        if not (isfinite(step.loss) and isfinite(step.gradient)):
            raise Diverged(f"step {step.number}: the loss is {step.loss}, the gradient's length {step.gradient}")
        if ground.judged and (step.number % settings.tasks.every == 0 or step.number == settings.grpo.steps):
            words = self.begun.tokenizer
            exam = examined(self.model, words, self.scorer, ground.judged, settings.grpo.longest, beside)
            step = replace(step, judged=await whole(exam))
        self.record.add(step)
        for watcher in self.order.watchers:
            watcher(step)

    def due(self, number: int) -> bool:
        """Whether this step is followed by a checkpoint."""
        return number % self.order.settings.keep.every == 0 or number == self.order.settings.grpo.steps

    def save(self, place: Place, state: State) -> Path:
        """Write a checkpoint; Diverged, with the one before in its place, where a weight is no number."""
        for name, parameter in self.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise Diverged(f"{place.name}: the weights in {name} are no numbers")
        facts = {**state.facts, **self._facts()}
        tensors = {**state.tensors, **added(self.model)}
        return self.shelf.save(place, lambda folder: self._fill(folder, place), State(tensors, facts))

    def ended(self, steps: int) -> Result:
        """Write the conductor without the state of its training, and say where it is."""
        place = Place("step", steps)
        with keeping.written(self.order.folder / FINAL) as folder:
            self._fill(folder, place)
        simulated = self.order.ground.origin.simulated
        return Result(self.order.folder / FINAL, steps, self.record.judged, self.spent, simulated)

    @property
    def spent(self) -> float:
        """What calls of workers came to in dollars."""
        purse = self.order.ground.purse
        return self.scorer.spent if purse is None else purse.spent

    def _fill(self, folder: Path, place: Place) -> None:
        begun = self.begun
        keeping.save_model(self.model, folder, {"pad_token_id": begun.pad, "eos_token_id": begun.end})
        begun.tokenizer.save(str(folder / keeping.TOKENIZER))
        if begun.template:
            (folder / TEMPLATE).write_text(begun.template, encoding="utf-8")
        about = card.About(
            place, self.order.ground.origin, self.order.settings, self.record.judged, self.spent, begun.start
        )
        card.write(folder, about)

    def _facts(self) -> dict[str, object]:
        return {
            "settings": _bound(self.order.settings),
            "ground": dict(self.order.ground.identity),
            "start": dict(self.begun.start),
            "source": self.source.state(),
            "spent": self.spent,
            "versions": card.versions(),
        }


async def whole(work: Awaitable[T]) -> T:
    """Await what performs many runs at once; what one of them raises is raised as itself."""
    try:
        return await work
    except ExceptionGroup as group:
        raise _first(group) from None


def _first(group: ExceptionGroup[Exception]) -> Exception:
    ours, _ = group.split(ShikishaError)
    inner: Exception = ours or group
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _kept(order: Order, shelf: Shelf) -> Kept | None:
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
    _refuse_other(kept, order)
    order.note(f"goes on after {kept.place.name}")
    return kept


def _refuse_other(kept: Kept, order: Order) -> None:
    facts = kept.state.facts
    before, now = cast("dict[str, object]", facts["settings"]), _bound(order.settings)
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
