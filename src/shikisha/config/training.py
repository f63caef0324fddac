"""The ground that training stands on: tasks, pools and the purse, from the training file and `shikisha.toml`.

The rehearsal's tasks bring their pools; for any other taskset each task is shown k of the n workers, drawn anew, in an
order drawn anew, and half of the time without the dearest. Replies that cost money are kept in the run's folder, so
that a run which was killed pays for nothing twice. Of several processes each keeps its own replies there, and may spend
an equal share of the dollars. Invariants: item i is a function of (settings, tasks, workers, i); a worker that needs a
person is refused before anything is paid for. Deliberately absent: models, and steps.
"""

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from shikisha import toml
from shikisha.call import Ask, Card
from shikisha.conductor import Conductor
from shikisha.config.compose import Composition
from shikisha.config.judging import sandbox_named
from shikisha.config.load import load
from shikisha.errors import ConfigError
from shikisha.evaluate.calls import FREE_KINDS, CachedWorker, Calls, Purse
from shikisha.grade import Mark, Tools, no_answer
from shikisha.pool import Member, Pool
from shikisha.taskset import Item, Split, Taskset, content_key

if TYPE_CHECKING:
    from shikisha.orchestra.cast import Profile
    from shikisha.orchestra.tasks import Recipe
    from shikisha.train.card import Origin
    from shikisha.train.ground import Ground, School
    from shikisha.train.session import Order, Result
    from shikisha.train.settings import TrainSettings

REHEARSAL = "rehearsal"
REHEARSALS = (REHEARSAL, f"{REHEARSAL}-large")
_ORDINALS = (
    "model.described: ordinals alone say nothing where each task brings workers of its own: expected true, or tasks "
    "that bring none (tasks.set) and one pool for all of them (tasks.pool)"
)
_AWAY = 0.5  # how often the dearest worker is left out
_JUDGED_SEED = 0  # of the rehearsal's development tasks: the same for every seed, so that runs can be compared
_WORDS = 20_000  # lessons that words are counted in
_LEAST = dict(zip(REHEARSALS, (60, 30), strict=True))  # how often a word must stand there, names less often
_WORDS_SEED = 999
_PROBED = 32  # tasks of the rehearsal by which another version of it is told


async def train(
    order: "Callable[[Ground], Order]", settings: "TrainSettings", folder: Path, file: Path | None
) -> "Result":
    """Train in a folder; `order` says what is to be done once the ground is there. `file`: the configuration."""
    from shikisha.train import session
    from shikisha.train.crew import our_crew
    from shikisha.train.keeping import claimed
    from shikisha.train.refusals import refuse_settings

    crew = our_crew()
    async with AsyncExitStack() as stack:
        with crew.agreed():
            refuse_settings(settings, crew.count)
            if crew.main:
                stack.enter_context(claimed(folder))
        with crew.agreed():  # so that nobody spends before all know what was paid
            ground = await stack.enter_async_context(grounded(settings, folder, file))
        return await session.train(order(ground))


@asynccontextmanager
async def grounded(settings: "TrainSettings", folder: Path, file: Path | None) -> "AsyncIterator[Ground]":
    """Yield the ground; what it was built of is closed afterwards."""
    async with AsyncExitStack() as stack:
        composition = load(file)
        stack.push_async_callback(composition.aclose)
        if settings.tasks.set in REHEARSALS:
            yield _rehearsal(settings, composition)
            return
        purse = None
        if composition.workers:
            calls, purse = _money(settings, folder)
            stack.push_async_callback(calls.aclose)
            composition.wrap = partial(_wrapped, composition, calls, purse)
        yield _configured(settings, composition, purse)


def _money(settings: "TrainSettings", folder: Path) -> tuple[Calls, Purse]:
    """Return where this process keeps replies, and its share of the dollars; the main one has paid what was paid."""
    from shikisha.train.crew import our_crew

    crew, cap = our_crew(), settings.spend.dollars
    all_paid = _paid(folder)
    paid = all_paid if crew.main else 0.0
    limit = None if cap is None else paid + (cap - all_paid) / crew.count
    return Calls(folder, str(crew.rank)), Purse(limit, paid)


def _rehearsal(settings: "TrainSettings", composition: Composition) -> "Ground":
    from shikisha.tasksets.rehearsal import SETS, single
    from shikisha.train.card import Origin
    from shikisha.train.ground import Ground

    if settings.tasks.pool:
        raise ConfigError("tasks.pool: the rehearsal's tasks bring their own workers: expected none")
    if settings.tasks.sets or settings.tasks.count:
        key = "sets" if settings.tasks.sets else "count"
        raise ConfigError(f"tasks.{key}: the rehearsal has tasks without end, and none beside it: expected none")
    if not settings.model.described:
        raise ConfigError(_ORDINALS)
    name = settings.tasks.set
    standard = SETS[name]
    tasks = settings.tasks
    recipe = replace(standard, parts=tasks.parts, lacking=tasks.lacking, noisy=tasks.noisy)
    stream = partial(single, Split.TRAIN, settings.seed, recipe=recipe)
    judged = tuple(single(Split.DEV, _JUDGED_SEED, place, standard) for place in range(settings.tasks.judged))
    probed = [stream(place) for place in range(_PROBED)]
    origin = Origin(
        name,
        _splits(f"train (seed {settings.seed}, without end)", f"dev (seed {_JUDGED_SEED})", len(judged)),
        [{"name": profile.name, "description": _described(profile)} for profile in standard.edition.everyone],
        simulated=True,
        lessons=_lessons_told(settings),
    )
    return Ground(
        origin,
        {"taskset": name, "pool": _digest([[one.task.content_hash, *_told(one.pool)] for one in probed])},
        stream,
        largest=max(len(one.pool) for one in (*probed, *judged) if one.pool is not None),
        judged=judged,
        caps=composition.caps,
        school=school_of(settings),
        beside=partial(_beside, judged, composition, standard),
    )


def _described(profile: "Profile") -> str:
    from shikisha.orchestra.wording import Split as Wording

    return " and ".join(offer.by_split[Wording.TRAIN][0] for offer in profile.offers)


def school_of(settings: "TrainSettings") -> "School":
    """Return the lessons of the embedded orchestra, and what makes their tokenizer."""
    from shikisha.orchestra import encore, forms, thought
    from shikisha.orchestra.lessons import copies, curriculum_of, lesson, phrases, readings, schooling
    from shikisha.tasksets.rehearsal import SETS
    from shikisha.train.ground import School
    from shikisha.train.words import plan_pieces, word_tokenizer

    edition = SETS[settings.tasks.set].edition
    drawn = curriculum_of(edition)
    return School(
        schooling(settings.seed, *settings.warm.follow, settings.warm.demonstrations, edition),
        readings(settings.seed, edition),
        copies(settings.seed, edition),
        lambda: word_tokenizer(
            (lesson(_WORDS_SEED, place, drawn).prompt for place in range(_WORDS)),
            [*thought.pieces(edition), *forms.pieces(edition), *encore.PIECES, *plan_pieces(phrases(edition))],
            _LEAST[settings.tasks.set],
        ),
        "shikisha.config.lessons",
        {"settings": settings.model_dump(mode="json")},
    )


def _lessons_told(settings: "TrainSettings") -> str:
    table, beside = settings.warm, settings.replay
    told: list[str] = []
    if table.steps:
        begin, end = table.follow
        share = table.demonstrations
        shown = f"; {share:.0%} of the plans are the optimal policy's instead" if share else ""
        told.append(
            f"{table.steps * table.batch:,} of the embedded orchestra's training split (how questions and descriptions "
            f"are read, how plans are written); a plan follows its thought in {begin:.0%} of those with both at the "
            f"beginning and {end:.0%} at the end, the others are drawn by lot{shown}"
        )
    for count, what in ((beside.lessons, "reading such pools"), (beside.copies, "writing an ordinal of such pools")):
        if count and settings.grpo.steps:
            told.append(f"{count} a step beside reinforcement in {what} as its tasks do not bring")
    return "; ".join(told)


def _configured(settings: "TrainSettings", composition: Composition, purse: Purse | None) -> "Ground":
    from shikisha.conduct import Engine
    from shikisha.recorder import MemoryRecorder
    from shikisha.tasksets.load import load as load_tasks
    from shikisha.train.ground import Ground

    table = settings.tasks
    tools = Tools(sandbox_named(""), None)
    with toml.placed("tasks.set"):
        every = [load_tasks(table.set, tools=tools)]
        every[0].only(Split.TRAIN)
    for place, name in enumerate(table.sets):
        with toml.placed(f"tasks.sets[{place}]"):
            every.append(load_tasks(name, tools=tools))
            every[-1].only(Split.TRAIN)
    whole = together(every)
    learned = whole.only(Split.TRAIN) if not table.count else shared_out(every, table.count, settings.seed)
    pool = None if whole.items[0].pool is not None else composition.pool(table.pool)
    for item in whole.items[:1] if pool is not None else whole.items:
        refuse_pool(item.pool or pool or Pool(()), settings)
    if pool is None and not settings.model.described:
        raise ConfigError(_ORDINALS)
    judged = _judged(settings, whole)
    stream = partial(_streamed, settings, learned.items, pool)
    first = pool or whole.items[0].pool or Pool(())
    return Ground(
        _origin(settings, (whole, len(learned)), first, composition, len(judged)),
        {"taskset": f"{whole.name} {whole.version[:12]}", "pool": _digest(_told(first))},
        stream,
        largest=min(table.most, len(first)) if settings.model.described else len(first),
        judged=tuple(_shown(settings, item, pool, f"judged {place}") for place, item in enumerate(judged)),
        caps=composition.caps,
        purse=purse,
        engine=Engine(MemoryRecorder(), vault=composition.vault),
    )


def together(sets: Sequence[Taskset]) -> Taskset:
    """Return the tasks of several sets as one; of two sets that use one id, the later's is told apart by its set."""
    if len(sets) == 1:
        return sets[0]
    items, taken = list[Item](), set[str]()
    for held in sets:
        for item in held:
            own = item.task.id if item.task.id not in taken else f"{held.name}/{item.task.id}"
            items.append(item if own == item.task.id else replace(item, task=replace(item.task, id=own)))
        taken.update(item.task.id for item in items)
    return Taskset(" + ".join(held.name for held in sets), items)


def shared_out(sets: Sequence[Taskset], count: int, seed: int) -> Taskset:
    """Return so many training tasks of all sets together, as many of each; what one lacks, the larger ones give."""
    if count < len(sets):
        raise ConfigError(
            f"tasks.count: {count} tasks are fewer than the {len(sets)} sets: expected {len(sets)} or more"
        )
    parts = sorted((held.only(Split.TRAIN) for held in sets), key=len)
    chosen, left = list[Taskset](), count
    for place, part in enumerate(parts):
        share = min(len(part), left // (len(parts) - place))
        left -= share
        chosen.append(part.sample(share, seed))
    return together(chosen)


def _origin(
    settings: "TrainSettings", tasks: tuple[Taskset, int], pool: Pool, composition: Composition, judged: int
) -> "Origin":
    from shikisha.train.card import Origin

    table, (whole, count) = settings.tasks, tasks
    simulated = composition.orchestra is not None
    note = f"Each task is shown {table.least} to {min(table.most, len(pool))} of {len(pool)} workers, in random order."
    if not settings.model.described:
        note = f"Each task is shown all {len(pool)} workers in one order, by ordinals alone: it knows no other pool."
    return Origin(
        whole.name,
        _splits(f"train ({count} tasks, content hashes {whole.version[:12]})", "dev", judged),
        [{"name": card.name, "description": card.description, "kind": card.kind} for card in pool.cards],
        simulated,
        notes=(note, "No workers are configured: the embedded orchestra played.") if simulated else (note,),
    )


def _splits(learned: str, judged: str, count: int) -> Mapping[str, str]:
    return {"learned from": learned, "judged by": f"{count} tasks of {judged}" if count else "nothing"}


def _judged(settings: "TrainSettings", whole: Taskset) -> Sequence[Item]:
    if not settings.tasks.judged:
        return ()
    with toml.placed("tasks.judged"):
        return whole.only(Split.DEV).sample(settings.tasks.judged, settings.seed).items


def _streamed(settings: "TrainSettings", items: Sequence[Item], pool: Pool | None, index: int) -> Item:
    """Return item `index` of a stream that goes through all tasks again and again, each time in another order."""
    epoch, place = divmod(index, len(items))
    order = list(range(len(items)))
    random.Random(f"order {settings.seed} {epoch}").shuffle(order)  # noqa: S311 - an order of tasks, no secret
    return _shown(settings, items[order[place]], pool, f"{settings.seed} {index}")


def _shown(settings: "TrainSettings", item: Item, pool: Pool | None, luck: str) -> Item:
    """Return the item with the workers that it is shown."""
    own = item.pool or pool or Pool(())
    if not settings.model.described:
        return replace(item, pool=own)
    return replace(item, pool=drawn(own, (settings.tasks.least, settings.tasks.most), random.Random(f"pool {luck}")))  # noqa: S311


def drawn(pool: Pool, sizes: tuple[int, int], dice: random.Random) -> Pool:
    """Return k of the pool's workers in random order, k from `sizes`; half of the time not the dearest."""
    names, least = list(pool.names), sizes[0]
    dear = _dearest(pool.cards)
    if dear is not None and len(names) > least and dice.random() < _AWAY:
        names.remove(dear)
    return pool.subset(dice.sample(names, dice.randint(least, min(sizes[1], len(names)))))


def _dearest(cards: Sequence[Card]) -> str | None:
    """Return the one worker that is dearer than all others, if there is one."""
    from shikisha.brief import price_level

    if any(card.price is None for card in cards):
        return None
    levels = sorted(((price_level(card.price), card.name) for card in cards), reverse=True)
    return levels[0][1] if len(levels) > 1 and levels[0][0] != levels[1][0] else None


def refuse_pool(pool: Pool, settings: "TrainSettings") -> None:
    """Refuse workers that training cannot use, and fewer than there must be to choose from."""
    table = settings.tasks
    if len(pool) < 2:
        raise ConfigError(
            f"tasks.pool: expected two workers or more to choose from, found {len(pool)} ({', '.join(pool.names)})"
        )
    if not 2 <= table.least <= min(table.most, len(pool)):
        raise ConfigError(
            f"tasks.least: expected from 2 to {min(table.most, len(pool))} (tasks.most, and the {len(pool)} workers), "
            f"found {table.least}"
        )
    counted = settings.reward.cost or any(phase.cost for phase in settings.grpo.phases)
    for card in pool.cards:
        if card.kind == "human" or card.approval is not Ask.NEVER:
            raise ConfigError(f"workers.{card.name}: it waits for a person, and training has nobody to ask")
        if card.price is None and card.kind not in FREE_KINDS and (counted or settings.spend.dollars):
            what = "reward.cost counts dollars" if counted else "spend.dollars is a cap"
            raise ConfigError(f"workers.{card.name}: it has no price ({what})")


def _wrapped(composition: Composition, calls: Calls, purse: Purse, member: Member) -> Member:
    """Return the member with its replies kept, where they cost anything."""
    fingerprint = composition.fingerprint(member.card.name)
    if fingerprint is None or member.card.kind in FREE_KINDS:
        return member
    return replace(member, worker=CachedWorker(member, fingerprint, calls, purse))


def _paid(folder: Path) -> float:
    """Return the dollars that the replies kept in the folder came to."""
    lines = (line for path in sorted(folder.glob("calls-*.jsonl")) for line in path.read_bytes().splitlines())
    return sum(float(json.loads(line).get("dollars") or 0.0) for line in lines if line.endswith(b"}"))


def _told(pool: Pool | None) -> list[str]:
    """Return what tells one pool from another: names, descriptions and prices, in order."""
    return [repr((card.name, card.description, card.price)) for card in (pool.cards if pool is not None else ())]


def _digest(data: object) -> str:
    return sha256(json.dumps(data).encode()).hexdigest()[:12]


async def _beside(items: Sequence[Item], composition: Composition, recipe: "Recipe") -> Mapping[str, float]:
    """Return how often the generalist alone and the hand-written conductors are right on these tasks."""
    from shikisha.orchestra import yardsticks
    from shikisha.tasksets.rehearsal import rehearsal

    generalist = recipe.edition.generalist
    drawn = rehearsal("dev", _JUDGED_SEED, len(items), recipe)
    alone = [replace(item, pool=one.cast(generalist).pool) for item, one in zip(items, drawn, strict=True)]
    conductors: dict[str, Conductor] = {
        "random": yardsticks.random_of(recipe.edition),
        "keyword router": yardsticks.KEYWORD_ROUTER,
        "rules": yardsticks.rules_of(recipe.edition),
        "optimum": yardsticks.OPTIMAL,
    }
    found = {"generalist": await _right(yardsticks.single(generalist), alone, composition)}
    return found | {name: await _right(conductor, items, composition) for name, conductor in conductors.items()}


async def _right(conductor: Conductor, items: Sequence[Item], composition: Composition) -> float:
    from shikisha.conduct import Engine
    from shikisha.recorder import MemoryRecorder

    count = 0
    for item in items:
        key = f"{content_key(item.task)[:24]}-{conductor.name}"
        run = await Engine(MemoryRecorder()).run(
            item.task, item.pool or Pool(()), conductor, composition.caps, run_id=key
        )
        grade = no_answer(item.checker.name, "") if run.answer is None else await item.checker.grade(run.answer)
        count += grade.mark is Mark.RIGHT
    return count / max(1, len(items))
