"""What `learn --from-journal` makes of journals, against the conductor that made them: no harm, whatever it says.

    python benchmarks/learn_journal.py [--seeds 3] [--runs 200] [--kinds mixed,served,...] [--json]

Every journal is of real runs of rehearsal questions through the engine (or through `shikisha serve`) with the simulated
pool; people's words on the answers are simulated from the generator's own answer. Then `learn` on that journal as a
user runs it, and, where it writes a policy, that policy and the conductor in force on other questions, in pairs. Where
nothing is written, the conductor in force stays, so the difference is 0 at the same cost.

    mixed     three in four runs by the hand-written rules, the others by single workers and votes; 70 % graded
    served    by the rules, through `shikisha serve`, with feedback through its door
    one       the rules; only what they give one worker whole has a worker's outcome
    compared  the rules, and the same tasks by each language model alone
    single    the strongest model for every task, and the same tasks by the cheaper one
    explored  a policy in force that explores, learned before from 150 tasks by each model
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common import Figure, report
from serving_client import connections, server
from shikisha.config.container import build_container
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import grade_from_score
from shikisha.evals.reward import grade_events
from shikisha.evals.statistics import difference_interval
from shikisha.journal import Journal, open_journal
from shikisha.routing.policy_file import load_policy
from shikisha.simulation.task_generator import SimulatedTask, generate_tasks
from shikisha.simulation.vocabulary import WordingSplit

MODELS = ("simulated-generalist", "simulated-novice")
NEW_TASKS = 400
FEEDBACK_SHARE = 0.7


SIMULATION = build_container({"pool": ["simulated"]}, "the simulation", Path())


@dataclass(frozen=True)
class Made:
    """A journal: its file and the conductor in force."""

    journal: str
    in_force: str


@dataclass(frozen=True)
class World:
    """What a kind of journal is made with."""

    folder: Path
    seed: int
    runs: int
    pool: Pool = field(default_factory=lambda: SIMULATION.pool())

    def conductor(self, name: str) -> Conductor:
        """Return a conductor by its name on the command line."""
        return SIMULATION.conductor(name, self.pool)

    def questions(self, count: int, of: int) -> list[SimulatedTask]:
        """Return questions; `of` sets those to learn from apart from others."""
        return list(generate_tasks(WordingSplit.TRAIN, 1_000 * self.seed + of, count=count))

    @property
    def journal(self) -> str:
        """The file of the journal."""
        return str(self.folder / "runs.db")


async def keep_run(
    kept: Journal, pool: Pool, item: SimulatedTask, conductor: Conductor, *, feedback: bool = True
) -> None:
    """Keep a run and, where somebody gave it, a word on its answer."""
    run = await Engine(kept).run(item.task, pool, conductor)
    if feedback:
        word = grade_from_score("feedback", float(item.grade(run.answer)), run.answer, "")
        for event in grade_events(run.id, word, None):
            kept.add(event)


async def mixed(world: World) -> Made:
    """Return a journal of many conductors, each run by one drawn at random."""
    drawn = random.Random(world.seed)
    others = [f"fixed:single?worker={name}" for name in (*MODELS, "comparison")] + ["fixed:vote", "fixed:cascade"]
    async with open_journal(world.journal) as kept:
        for item in world.questions(world.runs, 1):
            name = "rehearsal:rules" if drawn.random() < 0.75 else drawn.choice(others)
            await keep_run(kept, world.pool, item, world.conductor(name), feedback=drawn.random() < FEEDBACK_SHARE)
        await kept.flush()
    return Made(world.journal, "rehearsal:rules")


async def served(world: World) -> Made:
    """Return a journal of a server's runs, each judged by the client that asked."""
    config = 'conductor = "rehearsal:rules"\n'
    async with (
        server(world.folder, config, world.journal, world.folder / "server.log") as door,
        connections(door.host, door.port, 1) as (client,),
    ):
        for item in world.questions(world.runs, 1):
            body = {"model": "shikisha", "messages": [{"role": "user", "content": item.task.prompt}]}
            answer = json.loads(
                (await client.ask(door.request("/v1/chat/completions", body))).data.split(b"\r\n\r\n", 1)[1]
            )
            word = {
                "run": str(answer["id"]).removeprefix("chatcmpl-"),
                "score": float(item.grade(answer["choices"][0]["message"]["content"])),
            }
            told = await client.ask(door.request("/feedback", word))
            if told.status != 201:
                raise RuntimeError(told.data.decode())
    return Made(world.journal, "rehearsal:rules")


async def one(world: World) -> Made:
    """Return a journal in which a worker has outcomes only where the conductor chose it for the whole task."""
    rules, comparison = world.conductor("rehearsal:rules"), world.conductor("fixed:single?worker=comparison")
    async with open_journal(world.journal) as kept:
        for item in world.questions(world.runs, 1):
            easy = item.grade((await Engine(MemoryRecorder()).run(item.task, world.pool, comparison)).answer)
            await keep_run(kept, world.pool, item, rules)
            if easy:  # tasks that are known to suit a worker are given to it
                await keep_run(kept, world.pool, item, comparison)
        await kept.flush()
    return Made(world.journal, "rehearsal:rules")


async def compared(world: World) -> Made:
    """Return a journal of the rules and of every model alone on the same tasks."""
    names = ["rehearsal:rules", *(f"fixed:single?worker={name}" for name in MODELS)]
    return await _side_by_side(world, names, "rehearsal:rules")


async def single(world: World) -> Made:
    """Return a journal of the strongest model, and of the cheaper one on the same tasks."""
    names = [f"fixed:single?worker={name}" for name in MODELS]
    return await _side_by_side(world, names, "fixed:single?worker=simulated-generalist")


async def _side_by_side(world: World, names: Sequence[str], in_force: str) -> Made:
    conductors = [world.conductor(name) for name in names]
    async with open_journal(world.journal) as kept:
        for item in world.questions(world.runs, 1):
            for conductor in conductors:
                await keep_run(kept, world.pool, item, conductor)
        await kept.flush()
    return Made(world.journal, in_force)


async def explored(world: World) -> Made:
    """Return a journal of a policy that explores, learned from other tasks."""
    before = World(world.folder / "before", world.seed + 50, 150)
    before.folder.mkdir()
    first = await single(before)
    await asyncio.to_thread(learn_apart, first.journal, before.folder / "log", world.folder / "first.policy")
    name = f"policy:{world.folder / 'first.policy'}?explore=30%"
    conductor = world.conductor(name)
    async with open_journal(world.journal) as kept:
        for item in world.questions(world.runs, 1):
            await keep_run(kept, world.pool, item, conductor)
        await kept.flush()
    return Made(world.journal, name)


KINDS: Mapping[str, Callable[[World], object]] = {
    "mixed": mixed,
    "served": served,
    "one": one,
    "compared": compared,
    "single": single,
    "explored": explored,
}


def learn(journal: str, file: Path) -> str:
    """Learn as a user does; return what was said, after whether a policy was written."""
    command = [sys.executable, "-m", "shikisha", "learn", "--from-journal", journal, "--out", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    return " ".join((done.stderr + done.stdout).split())


def learn_apart(journal: str, log: Path, file: Path) -> None:
    """Learn from a journal's outcomes, whoever conducted its runs."""
    shikisha = [sys.executable, "-m", "shikisha"]
    subprocess.run([*shikisha, "import", "outcomes", "journal", journal, "--out", str(log)], check=True)  # noqa: S603  ours
    for runs in log.glob("conducted.*"):
        runs.unlink()
    subprocess.run([*shikisha, "learn", str(log), "--out", str(file)], capture_output=True, check=True)  # noqa: S603  ours


async def outcomes(world: World, name: str) -> tuple[list[float], float]:
    """Return what a conductor is right in, of other questions, and its mean dollars."""
    conductor, right, paid = world.conductor(name), [], 0.0
    for item in world.questions(NEW_TASKS, 2):
        run = await Engine(MemoryRecorder()).run(item.task, world.pool, conductor)
        right.append(float(item.grade(run.answer)))
        paid += run.charged.dollars or 0.0
    return right, paid / NEW_TASKS


@dataclass(frozen=True)
class Found:
    """What became of a journal: the difference to the conductor in force, its cost, what was promised."""

    written: bool
    difference: float = 0.0
    cost: float = 1.0
    promised_off: float = 0.0


async def measure(kind: str, seed: int, runs: int, folder: Path) -> Found:
    """Make a journal, learn, and measure."""
    world = World(folder, seed, runs)
    made = await KINDS[kind](world)  # type: ignore[misc]
    assert isinstance(made, Made)
    file = folder / "new.policy"
    said = await asyncio.to_thread(learn, made.journal, file)
    if not file.exists():
        print(f"{kind}, seed {seed}: nothing written: {said[-420:]}", file=sys.stderr)
        return Found(written=False)
    theirs, paid = await outcomes(world, made.in_force)
    ours, spent = await outcomes(world, f"policy:{file}")
    low, high = difference_interval((np.array(ours) - np.array(theirs)).tolist())
    promised = load_policy(file)[0].rung().dial.points[-1].accuracy
    print(
        f"{kind}, seed {seed}: written; in force {np.mean(theirs):.3f}, learned {np.mean(ours):.3f} "
        f"[{low:+.3f}, {high:+.3f}] at {spent / paid if paid else 1:.2f} of its cost; promised {promised:.3f}",
        file=sys.stderr,
    )
    return Found(
        True, float(np.mean(ours) - np.mean(theirs)), spent / paid if paid else 1.0, float(np.mean(ours)) - promised
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given, _ = parser.parse_known_args()
    figures = []
    for kind in given.kinds.split(","):
        found = []
        for seed in range(1, given.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                found.append(asyncio.run(measure(kind, seed, given.runs, Path(folder))))
        wrote = [each for each in found if each.written]
        figures += [
            Figure(f"{kind}: policies written, of {len(found)}", len(wrote), ""),
            Figure(
                f"{kind}: learned less in force, the worst",
                100 * min(each.difference for each in found),
                "points",
                -2.0,
                at_least=True,
            ),
        ]
        if wrote:
            figures += [
                Figure(
                    f"{kind}: cost over in force, mean of those written",
                    float(np.mean([each.cost for each in wrote])),
                    "",
                    0.9,
                ),
                Figure(
                    f"{kind}: promise off, mean of those written",
                    100 * abs(float(np.mean([each.promised_off for each in wrote]))),
                    "points",
                    3.0,
                ),
            ]
    report("Learning from journals", figures)


if __name__ == "__main__":
    main()
