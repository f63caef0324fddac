"""How much the pointer conductor loses when the office changes: noise, long cards, a silent fall of a worker.

    python benchmarks/office_robust.py [FILE...] [--tasks 100] [--seeds 7,8,9] [--rows noise,rounds,fall]

FILE are checkpoints; without one it is `pointer:shipped`. All workers are simulated; tasks and cards are by held-out
authors. Rows of `noise` and `rounds` are performed by the engine with the product's own conductor, 100
outcomes a worker; "of the clean figure" is paired over the same crews and questions (but for 10 workers), and a failure
is a run without an answer. `fall` is performed in arrays (`office_rollouts`), read perfectly:
crews with 100 outcomes a worker lose the worker that they call most (its levels fall to .15 or less, its card stays),
and every further task adds what its run teaches to the notes. Half of the loss is regained at the first task from
which the mean value of ten tasks, over all crews, is half-way from what old notes are worth after the fall to what 100
fresh outcomes are worth there.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path

import numpy as np

from common import machine
from conductor_office import (
    CAPS,
    Played,
    best_worker_alone,
    draw_items,
    gain_over,
    interval,
    knowledge,
    left_whole,
    optimum,
    perform,
    pointer,
    seen,
    share_of,
)
from shikisha import Engine
from shikisha.conductors.part_plans import DOLLAR_WEIGHT, TreatmentKind
from shikisha.conductors.pointer_conductor import (
    PointerConductor,
    PointerModel,
    likeliest_choices,
    load_pointer,
    shipped_pointer,
)
from shikisha.conductors.pointer_network import TREATMENTS, PointerChoices, PointerInput, pointer_features
from shikisha.engine.recorder import MemoryRecorder
from shikisha.notes.run_chances import PartForm, PartTrial
from shikisha.notes.worker_falls import LIMIT, FallWatch
from shikisha.routing.arrays import Flags, Floats, Floats32, Ints
from shikisha.simulation.office.office_rollouts import (
    OfficeTruth,
    draw_luck,
    draw_notes,
    office_truth,
    perform_choices,
    true_input,
)
from shikisha.simulation.office.office_tasks import OFFICE, QUIET_OFFICE, OfficeTask
from shikisha.simulation.office.questions import AuthorSplit, OfficeNoise, OfficePart
from shikisha.simulation.office.staff import CrewDistribution

OUTCOMES = 100
FALLEN = 0.15  # the most that is left of each level
BLAME_ROUNDS = 5  # in which blame is shared again after a fall
FORMS = {
    TreatmentKind.CALL: PartForm.CALL,
    TreatmentKind.CHECK: PartForm.CHECK,
    TreatmentKind.SECOND_OPINION: PartForm.OPINIONS,
    TreatmentKind.VOTE: PartForm.OPINIONS,
}
WINDOW = 10  # tasks whose mean value is compared with half of the loss
# Without stakes, whose draw comes after the noise: rows with the same crews have the same questions, too.
CALM = replace(QUIET_OFFICE, stakes=0.0)
NOISE = {
    "clean": CALM,
    "a polite sentence": replace(CALM, noise=OfficeNoise(1, 0, 0, 0)),
    "typing errors": replace(CALM, noise=OfficeNoise(0, 0, 0, 1)),
    "a filler paragraph": replace(CALM, noise=OfficeNoise(0, 0, 1, 0)),
    "distractors": replace(CALM, noise=OfficeNoise(0, 1, 0, 0)),
    "10 workers": replace(CALM, crew=CrewDistribution(sizes=(10,))),
}
# What long cards are full of; none of it says what a worker can do.
CARD_FILLER = (
    "Available in all regions on working days, with the usual service windows and a status page of its own.",
    "Subject to the terms of use, which the owner may change at any time with thirty days of notice.",
    "Contact the owner of this entry for support, access requests and everything that is not covered here.",
    "Version history: see the release notes in the portal, under the heading of the same name.",
    "Requests are logged for thirty days and then deleted, as the retention schedule demands.",
    "This text was last reviewed by the platform team and supersedes all earlier descriptions.",
    "Please do not share credentials, and rotate them when a member leaves your group.",
    "Throughput is limited per tenant; ask for a raise of the limit two weeks in advance.",
    "The service level is best effort outside of the core hours that are listed above.",
    "For escalations use the ordinary channel and mention the name of this entry in the subject.",
)
CARD_WORDS = 200


def long_card(card: str, rng: random.Random) -> str:
    """Return a card of at least 200 words that says the same."""
    said, length = [card] if card else [], len(card.split())
    while length < CARD_WORDS:
        sentence = rng.choice(CARD_FILLER)
        said.insert(rng.randint(0, len(said)), sentence)
        length += len(sentence.split())
    return " ".join(said)


def with_long_cards(item: OfficeTask) -> OfficeTask:
    """Return the task with long cards: a pool of them has a thousand words or more."""
    rng = random.Random(f"long {item.task.id}")
    return item.with_crew(replace(item.crew, cards=tuple(long_card(card, rng) for card in item.crew.cards)))


@dataclass(frozen=True)
class Served:
    """What the product's conductor made of tasks, and how many runs ended without an answer."""

    played: Played
    failures: int


async def serve(model: PointerModel, items: Sequence[OfficeTask], outcomes: int = OUTCOMES) -> Served:
    """Perform every task with `PointerConductor`, which reads the task and the cards of its pool."""
    recorder = MemoryRecorder()
    engine, found, failures = Engine(recorder), list[tuple[float, float, float, float]](), 0
    for item in items:
        known = knowledge(item, outcomes)
        conductor = PointerConductor("pointer", model, lambda _cards, _labels, known=known: known)  # type: ignore[misc]
        run = await engine.run(item.task, item.pool, conductor, CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        failures += run.answer is None
        right, dollars = item.grade(run.answer), run.charged.dollars or 0.0
        found.append((item.value * right - DOLLAR_WEIGHT * dollars, right, dollars, run.charged.tokens))
    return Served(Played(*np.array(found, float).T), failures)


async def serve_all(models: Sequence[PointerModel], items: Sequence[OfficeTask]) -> Served:
    """Return the mean over checkpoints, and all failures."""
    served = [await serve(model, items) for model in models]
    return Served(Played.mean_of([one.played for one in served]), sum(one.failures for one in served))


def ratio_to(one: Played, best: Floats, other: Played, other_best: Floats) -> list[float]:
    """Return the ratio of two shares of the optimum, with its interval; rows i of both belong together."""
    count = len(best)

    def ratio(rows: Ints) -> Floats:
        shares = [each.values[rows].mean(-1) / top[rows].mean(-1) for each, top in ((one, best), (other, other_best))]
        found: Floats = shares[0] / shares[1]
        return found

    return [float(ratio(np.arange(count)[None])[0]), *interval(ratio, count)]


def show(name: str, rows: dict[str, object], **figures: object) -> None:
    """Keep and print a row."""
    rows[name] = figures

    def text(value: object) -> str:
        if isinstance(value, list):
            return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    print(f"  {name:<58} " + "  ".join(f"{key} {text(value)}" for key, value in figures.items()), flush=True)


async def noise_rows(models: Sequence[PointerModel], seeds: Sequence[int], count: int, rows: dict[str, object]) -> None:
    """Noise and long cards, each as a share of the clean figure."""
    clean: tuple[Played, Floats] | None = None
    parts: list[tuple[OfficePart, ...]] = []
    for name, distribution in NOISE.items():
        items = draw_items(AuthorSplit.HELDOUT, seeds, count, distribution)
        same = clean is not None and [item.question.parts for item in items] == parts
        best = clean[1] if clean is not None and same else optimum(items)
        served = await serve_all(models, items)
        if clean is None:
            clean, parts = (served.played, best), [item.question.parts for item in items]
        ratio = ratio_to(served.played, best, *clean)
        show(name, rows, share=share_of(served.played, best), of_clean=ratio, failures=served.failures)
        if name == "clean":
            longer = [with_long_cards(item) for item in items]
            words = float(np.mean([len(" ".join(item.crew.cards).split()) for item in longer]))
            served = await serve_all(models, longer)
            ratio = ratio_to(served.played, best, *clean)
            show(
                f"cards of {CARD_WORDS} words ({words:.0f} a pool)", rows,
                share=share_of(served.played, best), of_clean=ratio, failures=served.failures,
            )  # fmt: skip


async def round_rows(models: Sequence[PointerModel], seeds: Sequence[int], count: int, rows: dict[str, object]) -> None:
    """Tasks whose second half depends on what the first brings: rounds, against one call for the whole task."""
    items = draw_items(AuthorSplit.HELDOUT, seeds, count, replace(OFFICE, parts=(0, 1, 1, 1, 1, 1), conditional=1.0))
    items = [item for item in items if item.question.condition is not None]
    best = optimum(items)
    for reading in ("read perfectly", "own reading"):
        perfect = reading == "read perfectly"
        found = dict[str, Played]()
        ways = {"further rounds": (False, pointer), "its own choice for the whole": (True, pointer)}
        for name, (whole, make) in {**ways, "best worker by outcomes": (True, lambda _: best_worker_alone)}.items():
            played = []
            for model in models:
                views = [seen(model, item, OUTCOMES, perfect=perfect) for item in items]
                played.append(await perform([left_whole(view) if whole else view for view in views], make(model)))
            found[name] = Played.mean_of(played)
            show(f"a condition, {reading}: {name}", rows, share=share_of(found[name], best), tasks=len(items))
        ours, *others = found.values()
        for name, other in zip(list(found)[1:], others, strict=True):
            show(f"  rounds over {name}", rows, gain=gain_over(ours, other, best))


@dataclass
class Streams:
    """Crews, each with a stream of questions from a bank: [C] crews, their truth, and what notes say of them."""

    bank: OfficeTruth
    given: PointerInput
    truth: OfficeTruth
    crews: PointerInput
    notes: list[Floats32]

    @classmethod
    def draw(cls, seed: int, crews: int, rng: np.random.Generator) -> "Streams":
        """Draw crews and a bank of as many questions; notes have 100 outcomes a worker."""
        items = draw_items(AuthorSplit.HELDOUT, [seed], crews, QUIET_OFFICE)
        truth = office_truth(items, max(len(item.crew) for item in items))
        notes = list(draw_notes(truth, np.full(truth.prices.shape, OUTCOMES), rng))
        given = true_input(items, truth, notes)
        return cls(truth, given, truth, given, notes)

    def questions(self, rng: np.random.Generator) -> tuple[PointerInput, OfficeTruth]:
        """Return a question for every crew: the bank's, in another order."""
        order = rng.permutation(len(self.given.value))
        given = replace(
            self.crews, kinds=self.given.kinds[order], parts=self.given.parts[order], value=self.given.value[order],
            joinable=self.given.joinable[order], needs=self.given.needs[order], tries=self.notes[0],
            right=self.notes[1], told_tries=self.notes[2], told_right=self.notes[3],
        )  # fmt: skip
        truth = replace(
            self.truth, kinds=self.bank.kinds[order], needs=self.bank.needs[order], parts=self.bank.parts[order]
        )
        return given, truth

    def fall(self, worker: Ints) -> None:
        """Let one worker of each crew fall at all its work."""
        levels = self.truth.levels.copy()
        rows = np.arange(len(worker))
        levels[rows, worker] = np.minimum(levels[rows, worker], FALLEN)
        self.truth = replace(self.truth, levels=levels)

    def fresh_notes(self, rng: np.random.Generator) -> list[Floats32]:
        """Return what 100 outcomes a worker say of the crews as they now are."""
        outcomes = np.full(self.truth.prices.shape, OUTCOMES) * self.crews.workers
        return list(draw_notes(self.truth, outcomes, rng))


def decide(model: PointerModel, given: PointerInput) -> PointerChoices:
    """Return the likeliest choices of every task."""
    plan = likeliest_choices(model.network, model.network.encode(pointer_features(given)), given, [])
    return PointerChoices(
        plan.join[:, None], plan.mode[:, None], plan.workers[:, None], plan.told[:, None], plan.shown[:, None]
    )


@dataclass(frozen=True)
class Step:
    """A task of every crew: the choices, values [C], whether parts were right [C, P], whether the first worker of each
    call was, before any check [C, P], and whether the run went on with another's result [C, P]."""

    given: PointerInput
    choices: PointerChoices
    values: Floats32
    right: Flags
    alone: Flags
    replaced: Flags


def perform_step(model: PointerModel, streams: Streams, rng: np.random.Generator) -> Step:
    """Perform a question of every crew."""
    given, truth = streams.questions(rng)
    choices = decide(model, given)
    luck = draw_luck(choices.mode.shape, rng)
    outcomes = perform_choices(truth, choices, luck)
    alone = perform_choices(truth, replace(choices, mode=np.zeros_like(choices.mode)), luck)
    values = given.value * outcomes.right[:, 0].all(-1) - DOLLAR_WEIGHT * outcomes.dollars[:, 0].sum(-1)
    if outcomes.replaced is None:
        raise AssertionError("rollouts of the office say which results were replaced")
    return Step(given, choices, values, outcomes.right[:, 0], alone.right[:, 0], outcomes.replaced[:, 0])


class Known(StrEnum):
    """What is known of a run."""

    STEPS = "each step's outcome"  # as where a check grades it
    REPLACED = "the run's grade, and which results were replaced"  # as a journal has it
    GRADE = "the run's grade alone"


@dataclass
class PartOutcome:
    """What a run teaches of a part's first worker: the kind of work, how it was told, how likely it was right."""

    worker: int
    kind: int
    told: Ints
    share: float


@dataclass
class CrewNotes:
    """Notes of every crew, learned as the product's are: blame by `RunModel`, and falls by `FallWatch` if `watched`."""

    known: Known
    watches: list[FallWatch]
    watched: bool
    half_life: float | None
    runs: list[list[tuple[list[PartTrial], list[PartOutcome], bool]]]

    @classmethod
    def begin(cls, crews: int, known: Known, half_life: float | None, limit: float | None) -> "CrewNotes":
        """Return notes of crews that have no runs yet; without a limit nobody falls."""
        watches = [FallWatch(1.0 if limit is None else limit) for _ in range(crews)]
        return cls(known, watches, limit is not None, half_life, [[] for _ in range(crews)])

    def learn(self, step: Step, streams: Streams, *, keep: bool = True) -> int:
        """Add a run of every crew to its notes (`keep`), and forget who fell; return how many workers did."""
        streams.notes = [array.copy() for array in streams.notes]
        fallen = 0
        for crew in range(len(step.values)):
            trials, outcomes = self._read(step, streams, crew)
            right, watch = bool(step.right[crew].all()), self.watches[crew]
            if self.known is not Known.STEPS:
                for one, share in zip(outcomes, watch.model.share_blame(trials, right=right), strict=True):
                    one.share = share.own
            counts = {one.worker: float(streams.notes[0][crew, int(one.worker)].sum()) for one in trials}
            if keep:
                for one in outcomes:
                    add_outcome(streams, crew, one, half_life=self.half_life)
            self.runs[crew].append((trials, outcomes, right))
            fall = watch.observe_run(str(len(self.runs[crew]) - 1), trials, counts, right=right)
            if fall is not None:
                fallen += 1
                self._forget(streams, crew, int(fall.worker), int(fall.since), keep=keep)
        return fallen

    def _read(self, step: Step, streams: Streams, crew: int) -> tuple[list[PartTrial], list[PartOutcome]]:
        kinds, choices = step.given.kinds[crew].argmax(-1), step.choices
        trials, outcomes = list[PartTrial](), list[PartOutcome]()
        for part in np.nonzero(step.given.parts[crew])[0]:
            worker, kind = int(choices.workers[crew, 0, part, 0]), int(kinds[part])
            form = FORMS[TREATMENTS[choices.mode[crew, 0, part]]]
            seen = form is not PartForm.CALL and self.known is not Known.GRADE
            replaced = bool(step.replaced[crew, part]) if seen else None
            trials.append(PartTrial(str(worker), foretell(streams, crew, worker, kind), form, replaced))
            told = choices.told[crew, 0, part, 0].astype(int)
            outcomes.append(PartOutcome(worker, kind, told, float(step.alone[crew, part])))
        return trials, outcomes

    def _forget(self, streams: Streams, crew: int, worker: int, since: int, *, keep: bool) -> None:
        """Forget what a worker did before a run, and share the blame of its runs since then again."""
        for array in streams.notes:
            array[crew, worker] = 0
        runs = [run for run in self.runs[crew][since:] if any(one.worker == worker for one in run[1])]
        for _, outcomes, _ in runs:
            for one in outcomes:
                if one.worker != worker and keep:
                    add_outcome(streams, crew, one, -1)
        for again in range(BLAME_ROUNDS):
            for trials, outcomes, right in runs if self.known is not Known.STEPS else ():
                now = [
                    replace(trial, chance=foretell(streams, crew, one.worker, one.kind))
                    for trial, one in zip(trials, outcomes, strict=True)
                ]
                for one, share in zip(outcomes, self.watches[crew].model.share_blame(now, right=right), strict=True):
                    if again and (keep or one.worker == worker):
                        add_outcome(streams, crew, one, -1)
                    one.share = share.own
                    if keep or one.worker == worker:
                        add_outcome(streams, crew, one)
        if self.known is Known.STEPS:
            for _, outcomes, _ in runs:
                for one in outcomes:
                    if keep or one.worker == worker:
                        add_outcome(streams, crew, one)


def foretell(streams: Streams, crew: int, worker: int, kind: int) -> float:
    """Return the chance that notes foretell of a worker at a kind of work."""
    tries, right = (float(array[crew, worker, kind]) for array in streams.notes[:2])
    return (right + 0.6) / (tries + 2)


def add_outcome(
    streams: Streams, crew: int, one: PartOutcome, count: int = 1, *, half_life: float | None = None
) -> None:
    """Add an outcome to the notes, or take it away; with a half-life older outcomes of the worker fade by one."""
    tries_k, right_k, tries_w, right_w = streams.notes
    if half_life is not None:
        for array in streams.notes:
            array[crew, one.worker] *= 0.5 ** (1 / half_life)
    tries_k[crew, one.worker, one.kind] += count
    right_k[crew, one.worker, one.kind] += count * one.share
    at = (crew, one.worker, one.kind, int(one.told @ (1 << np.arange(len(one.told)))))
    tries_w[at] += count
    right_w[at] += count * one.share


@dataclass(frozen=True)
class Fall:
    """Mean values before the fall, after it with old and with fresh notes, and task by task while notes learn."""

    before: float
    after: float
    adapted: float
    curve: Floats
    forgotten: float = 0.0  # workers a crew

    @property
    def regained(self) -> int | None:
        """How many tasks until half of the loss is regained; None: not in the tasks performed."""
        half = (self.after + self.adapted) / 2
        smooth = np.convolve(self.curve, np.ones(WINDOW) / WINDOW, "valid")
        found = np.nonzero(smooth >= half)[0]
        return int(found[0]) if len(found) else None


def measure_fall(
    model: PointerModel, seed: int, crews: int, tasks: int, known: Known, half_life: float | None,
    *, limit: float | None = None, falls: bool = True,
) -> Fall:  # fmt: skip
    """Let the most called worker of every crew fall (`falls`), and perform `tasks` tasks while notes learn."""
    rng = np.random.default_rng(seed)
    streams = Streams.draw(seed, crews, rng)
    calls, before = np.zeros(streams.truth.prices.shape), list[float]()
    notes, forgotten = CrewNotes.begin(crews, known, half_life, limit), 0
    for _ in range(20):
        step = perform_step(model, streams, rng)
        np.add.at(calls, (np.arange(crews)[:, None], step.choices.workers[:, 0, :, 0]), step.given.parts.astype(float))
        before.append(float(step.values.mean()))
        forgotten += notes.learn(step, streams, keep=False)
    if falls:
        streams.fall(calls.argmax(-1))
    after = float(np.mean([perform_step(model, streams, rng).values.mean() for _ in range(20)]))
    old, streams.notes = streams.notes, streams.fresh_notes(rng)
    adapted = float(np.mean([perform_step(model, streams, rng).values.mean() for _ in range(20)]))
    streams.notes, curve = old, list[float]()
    for _ in range(tasks):
        step = perform_step(model, streams, rng)
        curve.append(float(step.values.mean()))
        forgotten += notes.learn(step, streams)
    return Fall(float(np.mean(before)), after, adapted, np.array(curve), forgotten / crews)


def fall_rows(
    models: Sequence[PointerModel], seeds: Sequence[int], crews: int, tasks: int, limit: float, rows: dict[str, object]
) -> None:
    """Tasks until half of the loss is regained, by what is known of a run and by whether notes fade."""
    ways: dict[str, tuple[float | None, bool, bool]] = {
        "notes as they are": (None, False, True),
        "half-life 25 outcomes": (25.0, False, True),
        "forgotten when it fell": (None, True, True),
        "no fall, notes as they are": (None, False, False),
        "no fall, forgotten when it fell": (None, True, False),
    }
    for known, (way, (half_life, watched, falls)) in product(Known, ways.items()):
        found = [
            measure_fall(model, seed, crews, tasks, known, half_life, limit=limit if watched else None, falls=falls)
            for model in models
            for seed in seeds
        ]
        mean = Fall(
            before=float(np.mean([one.before for one in found])),
            after=float(np.mean([one.after for one in found])),
            adapted=float(np.mean([one.adapted for one in found])),
            curve=np.mean([one.curve for one in found], axis=0),
        )
        show(
            f"fall, {known}, {way}", rows, before=mean.before, after=mean.after, fresh=mean.adapted,
            tasks_to_half=mean.regained, by_seed=str([one.regained for one in found]),
            at_60=float(mean.curve[55:65].mean()),
            of_all=float(mean.curve.mean()), forgotten=float(np.mean([one.forgotten for one in found])),
        )  # fmt: skip


async def main() -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--tasks", type=int, default=100, help="tasks for each seed")
    parser.add_argument("--seeds", default="7,8,9")
    parser.add_argument("--rows", default="noise,rounds,fall")
    parser.add_argument("--crews", type=int, default=300, help="crews for each seed, of the fall")
    parser.add_argument("--after", type=int, default=200, help="tasks after the fall")
    parser.add_argument("--limit", type=float, default=LIMIT, help="probability from which on a worker fell")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    models = [load_pointer(file) for file in arguments.files or [shipped_pointer()]]
    versions = ", ".join(model.version[:12] for model in models)
    print(f"The office, simulated: checkpoints {versions}; seeds {arguments.seeds} ({machine()})", flush=True)
    rows, wanted = dict[str, object](), arguments.rows.split(",")
    if "noise" in wanted:
        await noise_rows(models, seeds, arguments.tasks, rows)
    if "rounds" in wanted:
        await round_rows(models, seeds, arguments.tasks, rows)
    if "fall" in wanted:
        fall_rows(models, seeds, arguments.crews, arguments.after, arguments.limit, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
