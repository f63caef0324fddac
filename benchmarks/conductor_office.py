"""The pointer conductor in the office: every row of the figures, next to its controls, on the same tasks and luck.

    python benchmarks/conductor_office.py FILE... [--tasks 400] [--seeds 1,2,3] [--split heldout] [--rows main,reading]

FILE are checkpoints of different seeds (`shikisha-pointer`); a figure is the mean over them, its interval a paired
bootstrap over tasks. All workers are simulated. Tasks and cards are by held-out authors: `heldout`, whose texts were
looked at while the reader was built, or `fresh`, who were written after that and whose texts were not. Every row but
those marked "read perfectly" gets the same reading of the text, so that rows differ in their choices only; every row
with N outcomes gets the same N outcomes a worker. The fitted rule's settings were the best of a grid on training tasks
(`--fit`). "At equal dollars": a control that costs less is mixed with its checked form, task by task, until it spends
as much, where that brings it more.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np

from common import machine
from shikisha import Caps, Engine
from shikisha.core.prompts import WORDINGS
from shikisha.engine.recorder import MemoryRecorder
from shikisha.routing.arrays import Floats, Floats32
from shikisha_train.office import office_conductors as play
from shikisha_train.office.best_plan import best_plan
from shikisha_train.office.office_rollouts import evidence_arrays
from shikisha_train.office.office_tasks import (
    OFFICE,
    QUIET_OFFICE,
    OfficeDistribution,
    OfficeTask,
    draw_evidence,
    office_tasks,
)
from shikisha_train.office.questions import AuthorSplit, OfficeNoise, OfficeQuestion, parts_in
from shikisha_train.office.staff import FAMILIES, KINDS, CardHonesty, Crew, CrewDistribution
from shikisha_train.pointer.part_plans import (
    DOLLAR_WEIGHT,
    NOTHING_TOLD,
    PartChoice,
    PartedTask,
    PartPolicy,
    PartsConductor,
    TreatmentKind,
)
from shikisha_train.pointer.pointer_conductor import PointerModel, PoolKnowledge, call_price, load_pointer
from shikisha_train.pointer.pointer_network import feature_counts
from shikisha_train.pointer.task_reader import ReadTask, TaskReader

CAPS = Caps(steps=40, rounds=12)
RESAMPLES = 2_000
ALL_TOLD = frozenset(WORDINGS)


@dataclass(frozen=True)
class Seen:
    """A task as a conductor sees it: read, its cards' claims [W, K], prices [W], and what outcomes say."""

    item: OfficeTask
    read: ReadTask
    claims: Floats32
    prices: Floats32
    known: PoolKnowledge


Policy = Callable[[Seen], PartPolicy]


@dataclass(frozen=True)
class RuleSettings:
    """A hand-written rule: what a claim adds to the prior, the kinds that are checked, how workers are told."""

    claim: float = 0.25
    checked: tuple[int, ...] = ()
    told: str = "learned"


def knowledge(item: OfficeTask, outcomes: int) -> PoolKnowledge:
    """Return what so many outcomes a worker say, the same for every row."""
    evidence = draw_evidence(item.crew, outcomes, random.Random(f"{item.task.id} {outcomes}"))
    tries, right, told_tries, told_right = evidence_arrays(evidence, len(item.crew))
    family = np.array([FAMILIES.index(member.family) for member in item.crew.members])
    return PoolKnowledge(tries, right, told_tries, told_right, family)


def perfectly_read(item: OfficeTask) -> ReadTask:
    """Return the question as nobody misreads it."""
    parts = play.office_parts(item.question)
    kinds = np.eye(len(KINDS), dtype=np.float32)[[KINDS.index(part.kind) for part in item.question.parts]]
    needs = np.array([[float(q in parts.needs(p)) for q in range(len(parts))] for p in range(len(parts))], np.float32)
    return ReadTask(parts, kinds, needs, item.value)


@lru_cache(maxsize=100_000)
def read_once(reader: TaskReader, text: str) -> ReadTask:
    """Return what a reader makes of a text; rows share it."""
    return reader.read(text)


def seen(model: PointerModel, item: OfficeTask, outcomes: int, *, perfect: bool = False) -> Seen:
    """Return a task as it is seen with this model's reader, or without a mistake."""
    cards = item.pool.cards[: len(item.crew)]
    prices = np.array([call_price(card) for card in cards], np.float32)
    if perfect:
        claims = np.array([[kind in claimed for kind in KINDS] for claimed in item.crew.claims], np.float32)
        return Seen(item, perfectly_read(item), claims, prices, knowledge(item, outcomes))
    claims = np.stack([model.claims(card.description) for card in cards])
    return Seen(item, read_once(model.reader, item.task.prompt), claims, prices, knowledge(item, outcomes))


def pointer(model: PointerModel) -> Policy:
    """The trained conductor."""
    return lambda one: model.plan(one.read, one.claims, one.prices, one.known).policy()


def changed(policy: Policy, change: Callable[[PartChoice, Seen], PartChoice]) -> Policy:
    """Return a policy with its choices changed."""

    def changed_policy(one: Seen) -> PartPolicy:
        choose = policy(one)
        return lambda left: change(choose(left), one)

    return changed_policy


def always(policy: Policy) -> Callable[[PointerModel], Policy]:
    """Return what plays this policy whatever the checkpoint."""
    return lambda _: policy


def changing(change: Callable[[PartChoice, Seen], PartChoice]) -> Callable[[PointerModel], Policy]:
    """Return what plays a checkpoint with its choices changed."""
    return lambda model: changed(pointer(model), change)


def told(names: frozenset[str]) -> Callable[[PartChoice, Seen], PartChoice]:
    """Tell every worker the same."""
    return lambda choice, _: replace(choice, told=tuple(names for _ in choice.told))


def shows_all(choice: PartChoice, _: Seen) -> PartChoice:
    """Show every earlier result."""
    return replace(choice, shown=frozenset(range(choice.block[0])))


def calls_only(choice: PartChoice, _: Seen) -> PartChoice:
    """Check nothing and ask nobody twice."""
    return replace(choice, kind=TreatmentKind.CALL, workers=choice.workers[:1], told=choice.told[:1])


def rule(settings: RuleSettings) -> Policy:
    """The worker with the best posterior mean less its price, told what helped it, checked by the second best."""

    def policy(one: Seen) -> PartPolicy:
        if one.read.whole:
            return best_worker_alone(one)
        learned = [learned_wordings(one.known, at) for at in range(len(one.prices))]
        say = {"learned": learned, "all": [ALL_TOLD] * len(learned), "nothing": [NOTHING_TOLD] * len(learned)}
        texts = say[settings.told]

        def choose(left: tuple[int, ...]) -> PartChoice:
            kind = int(one.read.kinds[left[0]].argmax())
            prior = 0.2 + settings.claim * one.claims[:, kind]
            means = (one.known.right[:, kind] + 2 * prior) / (one.known.tries[:, kind] + 2)
            order = np.argsort(-(means - DOLLAR_WEIGHT * one.prices / one.read.value), kind="stable")
            if kind in settings.checked and len(order) > 1:
                pair = (int(order[0]), int(order[1]))
                return PartChoice(left[:1], TreatmentKind.CHECK, pair, tuple(texts[at] for at in pair))
            return PartChoice(left[:1], TreatmentKind.CALL, (int(order[0]),), (texts[order[0]],))

        return choose

    return policy


def learned_wordings(known: PoolKnowledge, worker: int) -> frozenset[str]:
    """Return what a worker's outcomes were better with."""
    tries, right = feature_counts(known.told_tries[worker]), feature_counts(known.told_right[worker])
    shares = (right + 2.0) / (tries + 4.0)
    return frozenset(
        name for name, (without, told_it) in zip(WORDINGS, shares, strict=True) if told_it > without + 0.02
    )


def cards_believed(one: Seen) -> PartPolicy:
    """The cheapest worker that claims the kind of work, else the broadest."""

    def choose(left: tuple[int, ...]) -> PartChoice:
        kind = int(one.read.kinds[left[0]].argmax())
        scores = np.where(one.claims[:, kind] > 0.5, 2.0, 0.1 * one.claims.sum(1)) - DOLLAR_WEIGHT * one.prices
        return PartChoice(left[:1], TreatmentKind.CALL, (int(scores.argmax()),), (ALL_TOLD,))

    return choose


def keyword_router(one: Seen) -> PartPolicy:
    """The whole question to the worker whose card claims the most of its parts, the cheapest of these."""
    share = (one.read.kinds @ one.claims.T).sum(0)
    worker = int((share - DOLLAR_WEIGHT * one.prices).argmax())
    return lambda left: PartChoice(left, TreatmentKind.CALL, (worker,), (ALL_TOLD,))


def best_worker_alone(one: Seen) -> PartPolicy:
    """The whole question to the worker with the best outcomes over its kinds of work."""
    means = (one.known.right + 0.4) / (one.known.tries + 2)
    chance = np.prod([means @ kinds for kinds in one.read.kinds], axis=0)
    worker = int((one.read.value * chance - DOLLAR_WEIGHT * one.prices).argmax())
    return lambda left: PartChoice(left, TreatmentKind.CALL, (worker,), (learned_wordings(one.known, worker),))


def checked(policy: Policy) -> Policy:
    """Return a control that has every call checked by the worker with the best outcomes besides."""

    def add_check(choice: PartChoice, one: Seen) -> PartChoice:
        means = (one.known.right.sum(1) + 0.4) / (one.known.tries.sum(1) + 2) - DOLLAR_WEIGHT * one.prices
        order = [int(at) for at in np.argsort(-means, kind="stable") if at != choice.workers[0]]
        if not order or choice.kind is not TreatmentKind.CALL:
            return choice
        pair = (choice.workers[0], order[0])
        return replace(choice, kind=TreatmentKind.CHECK, workers=pair, told=(choice.told[0], choice.told[0]))

    return changed(policy, add_check)


def drawn_at_random(one: Seen) -> PartPolicy:
    """A worker at random for each part."""
    rng = random.Random(one.item.task.id)
    drawn = [rng.randrange(len(one.prices)) for _ in range(len(one.read.parts))]
    return lambda left: PartChoice(left[:1], TreatmentKind.CALL, (drawn[left[0]],), (NOTHING_TOLD,))


@dataclass(frozen=True)
class Played:
    """What came of a policy, task by task: value, right, dollars, and tokens that workers read."""

    values: Floats
    right: Floats
    dollars: Floats
    tokens: Floats

    @classmethod
    def mean_of(cls, many: Sequence["Played"]) -> "Played":
        """Return the mean over checkpoints."""
        return cls(
            *(np.mean([getattr(one, name) for one in many], 0) for name in ("values", "right", "dollars", "tokens"))
        )


def at_equal_dollars(plain: Played, dearer: Played, dollars: float) -> Played:
    """Return the mixture of a control and its dearer form that spends so much; the plain one where that is better."""
    more = float(dearer.dollars.mean() - plain.dollars.mean())
    share = min(1.0, max(0.0, (dollars - float(plain.dollars.mean())) / more)) if more > 0 else 0.0
    if dearer.values.mean() <= plain.values.mean():
        share = 0.0
    names = ("values", "right", "dollars", "tokens")
    return Played(*(getattr(plain, name) * (1 - share) + getattr(dearer, name) * share for name in names))


async def perform(views: Iterable[Seen], policy: Policy) -> Played:
    """Perform every task through the engine."""
    recorder = MemoryRecorder()
    engine = Engine(recorder)
    found = []
    for one in views:
        item = one.item
        conductor = PartsConductor("office", one.read.parts, policy(one), len(item.crew))
        run = await engine.run(item.task, item.pool, conductor, CAPS, run_id=item.task.id)
        recorder.forget(run.id)
        right, dollars = item.grade(run.answer), run.charged.dollars or 0.0
        found.append((item.value * right - DOLLAR_WEIGHT * dollars, right, dollars, run.charged.tokens))
    return Played(*np.array(found, float).T)


def interval(draw: Callable[[np.ndarray], np.ndarray], count: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a figure of resampled tasks."""
    rows = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    low, high = np.quantile(draw(rows), (0.025, 0.975))
    return float(low), float(high)


def share_of(played: Played, best: Floats) -> list[float]:
    """Return a policy's share of the optimum's value, with its interval."""
    share = float(played.values.mean() / best.mean())
    return [share, *interval(lambda rows: played.values[rows].mean(1) / best[rows].mean(1), len(best))]


def gain_over(one: Played, other: Played, best: Floats) -> list[float]:
    """Return how much more of the optimum one policy has than another, with its paired interval."""
    more = one.values - other.values
    return [
        float(more.mean() / best.mean()),
        *interval(lambda rows: more[rows].mean(1) / best[rows].mean(1), len(best)),
    ]


def recarded(items: Sequence[OfficeTask], honesty: CardHonesty) -> list[OfficeTask]:
    """Return the tasks with all cards blank, or moved on by one worker."""

    def crew(given: Crew) -> Crew:
        if honesty is CardHonesty.BLANK:
            return replace(given, cards=tuple("" for _ in given.cards), claims=tuple(frozenset() for _ in given.cards))
        moved = replace(given, claims=(given.claims[-1], *given.claims[:-1]))
        return replace(moved, cards=(given.cards[-1], *given.cards[:-1]))

    return [item.with_crew(crew(item.crew)) for item in items]


def draw_items(
    split: AuthorSplit, seeds: Sequence[int], count: int, distribution: OfficeDistribution
) -> list[OfficeTask]:
    """Return so many tasks of each seed."""
    return [item for seed in seeds for item in office_tasks(split, seed, distribution, count)]


def optimum(items: Sequence[OfficeTask]) -> Floats:
    """Return each task's value under the best plan, which knows everything."""
    return np.array([best_plan(item).value(item.value) for item in items])


@dataclass
class Table:
    """Rows of figures, printed as they come."""

    models: list[PointerModel]
    rows: dict[str, dict[str, object]]

    async def play(
        self, name: str, items: Sequence[OfficeTask], best: Floats, outcomes: int,
        make: Callable[[PointerModel], Policy], *, perfect: bool = False, once: bool = False,
        view: Callable[[Seen], Seen] = lambda one: one,
    ) -> Played:  # fmt: skip
        """Perform a row; `once` where it does not depend on the checkpoint but for its reading."""
        models = self.models[:1] if once else self.models
        played = [
            await perform([view(seen(model, item, outcomes, perfect=perfect)) for item in items], make(model))
            for model in models
        ]
        found = Played.mean_of(played)
        shares = [float(one.values.mean() / best.mean()) for one in played]
        self.add(
            name, share=share_of(found, best), right=float(found.right.mean()), dollars=float(found.dollars.mean()),
            tokens=float(found.tokens.mean()), seeds=shares,
        )  # fmt: skip
        return found

    def add(self, name: str, **figures: object) -> None:
        """Keep and print a row."""
        self.rows[name] = figures
        print(f"  {name:<74} {_shown(figures)}", flush=True)


def _shown(figures: dict[str, object]) -> str:
    def one(value: object) -> str:
        if isinstance(value, list):
            return "[" + ", ".join(f"{each:.3f}" for each in value) + "]"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "  ".join(f"{name} {one(value)}" for name, value in figures.items())


async def fit_rule(model: PointerModel, outcomes: int, count: int) -> RuleSettings:
    """Return the settings of the rule that do best on training tasks with so many outcomes a worker."""
    items = draw_items(AuthorSplit.TRAIN, [501], count, OFFICE)
    views = [seen(model, item, outcomes) for item in items]
    names = {name: at for at, name in enumerate(model.reader.kinds)}
    some = [names[name] for name in ("arithmetic", "calendar", "invoices", "people")]
    grid = product((0.0, 0.3, 0.6), ((), tuple(some[:2]), tuple(some), tuple(range(len(KINDS)))), ("learned", "all"))
    found = [
        (float((await perform(views, rule(each))).values.mean()), each) for each in (RuleSettings(*one) for one in grid)
    ]
    return max(found, key=lambda one: one[0])[1]


async def main_rows(table: Table, items: list[OfficeTask], fitted: dict[int, RuleSettings]) -> None:
    """The optimum's share at 0 to 300 outcomes, next to every control."""
    best = optimum(items)
    ours = {n: await table.play(f"pointer, {n} outcomes", items, best, n, pointer) for n in (0, 30, 100, 300)}
    await table.play("pointer, 100 outcomes, read perfectly", items, best, 100, pointer, perfect=True)
    controls = {f"fitted rule, {n} outcomes": (n, rule(settings)) for n, settings in fitted.items()} | {
        "best worker alone, 100 outcomes": (100, best_worker_alone),
        "keyword router": (0, keyword_router),
        "cards believed": (0, cards_believed),
        "fair start: own reading, workers at random": (0, drawn_at_random),
    }
    for name, (outcomes, policy) in controls.items():
        other = await table.play(name, items, best, outcomes, always(policy), once=True)
        table.add(f"  pointer (100) over {name}", gain=gain_over(ours[100], other, best))
        if policy in (best_worker_alone, keyword_router, cards_believed):
            dearer = await table.play(f"{name}, checked", items, best, 100, always(checked(policy)), once=True)
            equal = at_equal_dollars(other, dearer, float(ours[100].dollars.mean()))
            table.add(
                f"  pointer (100) over {name}, at equal dollars", gain=gain_over(ours[100], equal, best),
                dollars=float(equal.dollars.mean()),
            )  # fmt: skip
    await table.play(
        "fitted rule, 100 outcomes, read perfectly",
        items,
        best,
        100,
        lambda _: rule(fitted[100]),
        perfect=True,
        once=True,
    )


async def card_rows(table: Table, items: list[OfficeTask]) -> None:
    """Blank and swapped cards at any number of outcomes."""
    best = optimum(items)
    for honesty in (CardHonesty.BLANK, CardHonesty.SWAPPED):
        worse = recarded(items, honesty)
        for outcomes in (0, 30, 100, 300):
            await table.play(f"pointer, all cards {honesty}, {outcomes} outcomes", worse, best, outcomes, pointer)
        await table.play("best worker alone, 100 outcomes", worse, best, 100, always(best_worker_alone), once=True)


async def part_rows(table: Table, items: list[OfficeTask]) -> None:
    """What each choice is worth at 100 outcomes: wording, access, checks, further rounds."""
    best = optimum(items)
    ours = await table.play("pointer, 100 outcomes (the tasks of these rows)", items, best, 100, pointer)
    changes = {
        "nothing told": told(NOTHING_TOLD),
        "everything told": told(ALL_TOLD),
        "all see all": shows_all,
        "calls only": calls_only,
    }
    for name, change in changes.items():
        other = await table.play(f"pointer, {name}", items, best, 100, changing(change))
        table.add(
            f"  own choice over {name}",
            gain=gain_over(ours, other, best),
            tokens=float(ours.tokens.mean() / other.tokens.mean()),
        )
    many = [at for at, item in enumerate(items) if item.question.condition is not None]
    chosen = [items[at] for at in many]
    ours = await table.play("pointer, tasks with a condition", chosen, best[many], 100, pointer)
    other = await table.play(
        "one call for the whole task, tasks with a condition",
        chosen,
        best[many],
        100,
        lambda _: best_worker_alone,
        once=True,
        view=left_whole,
    )
    table.add("  further rounds over one call", gain=gain_over(ours, other, best[many]))


def left_whole(one: Seen) -> Seen:
    """Return a task as one part: there is nothing to come back to, so there is no second round."""
    kinds = one.read.kinds.mean(0, keepdims=True)
    parts = PartedTask((one.item.task.prompt,), ((),))
    return replace(one, read=ReadTask(parts, kinds, np.zeros((1, 1), np.float32), one.read.value, whole=True))


async def noise_rows(table: Table, split: AuthorSplit, seeds: Sequence[int], count: int) -> None:
    """Polite sentences, typing errors, filler, larger pools, long cards: of the clean figure."""
    ten = replace(QUIET_OFFICE, crew=CrewDistribution(sizes=(10,)))
    kinds = {
        "clean": QUIET_OFFICE,
        "polite": replace(QUIET_OFFICE, noise=OfficeNoise(1, 0, 0, 0)),
        "typing errors": replace(QUIET_OFFICE, noise=OfficeNoise(0, 0, 0, 1)),
        "filler": replace(QUIET_OFFICE, noise=OfficeNoise(0, 0, 1, 0)),
        "distractors": replace(QUIET_OFFICE, noise=OfficeNoise(0, 1, 0, 0)),
        "10 workers": ten,
    }
    clean = 1.0
    for name, distribution in kinds.items():
        items = draw_items(split, seeds, count, distribution)
        best = optimum(items)
        played = await table.play(f"pointer, {name}, 100 outcomes", items, best, 100, pointer)
        share = float(played.values.mean() / best.mean())
        clean = share if name == "clean" else clean
        table.add(f"  {name}, of the clean figure", share=share / clean)
        if name == "clean":
            longer = [
                item.with_crew(replace(item.crew, cards=tuple(map(long_card, item.crew.cards)))) for item in items
            ]
            played = await table.play("pointer, cards of 120 words", longer, best, 100, pointer)
            table.add("  long cards, of the clean figure", share=float(played.values.mean() / best.mean()) / clean)


def long_card(card: str) -> str:
    """Return a card with what such texts are full of."""
    return f"{card} " + " ".join(
        ["Available in all regions on working days.", "Subject to the terms of use.", "Contact the owner for support."]
        * 6
    )


def reading_rows(table: Table, items: Sequence[OfficeTask]) -> None:
    """How often a text is read wholly right, left whole in doubt, or misread, and in what, by author."""
    for at, model in enumerate(table.models):
        if model.reader in [other.reader for other in table.models[:at]]:
            continue
        counts = defaultdict[str, Counter[str]](Counter)
        for item in items:
            said = reading_of(model, item)
            counts[item.question.author][said] += 1
            counts["all authors"][said] += 1
        for author, found in sorted(counts.items()):
            shares = {name: round(times / found.total(), 3) for name, times in found.most_common()}
            table.add(f"read, {author}, checkpoint {at + 1}", **shares)


def reading_of(model: PointerModel, item: OfficeTask) -> str:
    """Return "right" for a right reading, "whole" where the task was left so, else what is wrong."""
    read = read_once(model.reader, item.task.prompt)
    return "whole" if read.whole else judge_reading(read, item.question, item.value)


def judge_reading(read: ReadTask, question: OfficeQuestion, value: float) -> str:
    """Return "right" where a reading asks for the right parts, of the right kinds, in the right order, else why not."""
    truth = play.office_parts(question)
    asked = [parts_in(sentence, question) for sentence in read.parts.sentences]
    if asked != [(part,) for part in range(len(question))]:
        return "parts"
    if [KINDS[at] for at in read.kinds.argmax(1)] != [part.kind for part in question.parts]:
        return "kinds"
    if read.parts.condition != truth.condition:
        return "condition"
    if any(read.parts.needs(part) != truth.needs(part) for part in range(len(truth))):
        return "needs"
    return "right" if read.value == value else "value"


def time_rows(table: Table, items: Sequence[OfficeTask]) -> None:
    """What a decision takes, reading included."""
    model = table.models[0]
    views = [seen(model, item, 100) for item in items[:200]]
    begun = time.process_time()
    for view in views:
        read = model.reader.read(view.item.task.prompt)
        model.plan(read, view.claims, view.prices, view.known).policy()
    table.add("decision with reading, CPU ms", mean=(time.process_time() - begun) / len(views) * 1e3)


async def main() -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=400, help="tasks for each seed")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--split", default=AuthorSplit.HELDOUT, choices=[*AuthorSplit], help="whose words")
    parser.add_argument("--rows", default="main,reading,cards,parts,noise")
    parser.add_argument("--fit", type=int, default=150, help="training tasks that the rule is fitted on")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    table = Table([load_pointer(file) for file in arguments.files], {})
    items = draw_items(AuthorSplit(arguments.split), seeds, arguments.tasks, OFFICE)
    print(
        f"The office, simulated: {len(items)} {arguments.split} tasks, {len(table.models)} checkpoints ({machine()})",
        flush=True,
    )
    wanted = arguments.rows.split(",")
    if "main" in wanted:
        fitted = {n: await fit_rule(table.models[0], n, arguments.fit) for n in (30, 100, 300)}
        for outcomes, settings in fitted.items():
            table.add(f"rule fitted at {outcomes} outcomes", settings=str(settings))
        await main_rows(table, items, fitted)
    if "reading" in wanted:
        reading_rows(table, items)
    time_rows(table, items)
    if "cards" in wanted:
        await card_rows(table, items)
    if "parts" in wanted:
        await part_rows(table, items)
    if "noise" in wanted:
        await noise_rows(table, AuthorSplit(arguments.split), seeds, max(1, arguments.tasks // 2))
    if arguments.json:
        arguments.json.write_text(json.dumps(table.rows, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
