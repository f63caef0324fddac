"""Live equals replay: a policy learned from real models' answers, in the words that it was learned from, and in others.

    python benchmarks/live_replay.py MODELS [--data DATA] [--models 3] [--learn 150] [--tasks 200] [--keep FOLDER]
        [--minutes M]

MODELS holds GGUF files, each served by a llama.cpp server of its own (package `xllamacpp`). DATA holds `SVAMP.json`
(github.com/arkilpatel/SVAMP, MIT) and `clinc.json` (`data/data_full.json` of github.com/clinc/oos-eval, CC BY 3.0);
without it, tasks of the same two forms are generated. Nothing of either is part of the project. Every model answers
every task once, one call at a time, greedy, through the engine; the journal's importer makes the outcome log. A policy
is learned from the first tasks. On the others it runs live, by calls of the same models, and replayed, over the log.
Differences are paired, with 95 % intervals. The last rows send each task in the words of before: "Answer the question
on your own. ...".

FOLDER keeps every run, so that a run that was broken off, or that M minutes were too short for (exit 3), goes on where
it was; another number of tasks, or another model, needs another folder. Fails (exit 1) where live and replayed accuracy
differ by more than two standard errors.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from time import monotonic
from typing import Any

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.learned_policy import policy_conductor
from shikisha.config.policy_builder import LearnRequest, learn_policy
from shikisha.core.budget import Caps, Price
from shikisha.core.errors import ConfigError
from shikisha.core.events import Event
from shikisha.core.plan import ANSWER_ALONE
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.reward import grade_events
from shikisha.journal.codec import decode_event, encode_event
from shikisha.outcomes.importers.journal_runs import gather_runs
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.outcomes.log_writer import LogBuilder, RepeatPolicy
from shikisha.routing.fit.incumbents import MIN_COMPARED_TASKS
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import save_policy
from shikisha.workers.chat import ChatSettings, build, fit_card
from shikisha.workers.replay import ReplayWorker, replay_card

INTENTS = "balance, weather, translate, alarm, recipe, flip coin, spelling, timezone, book flight, tell joke"
SERVER = """
import sys, time, xllamacpp
at = xllamacpp.CommonParams()
at.model.path, at.port, at.n_ctx, at.n_parallel = sys.argv[1], 0, 2048, 1
at.cpuparams.n_threads = at.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(at)
print("at", server.listening_address, flush=True)
time.sleep(1e9)
"""


@dataclass(frozen=True)
class Asked:
    """A task and its right answer."""

    task: Task
    checker: str
    answer: str


def read_tasks(data: Path | None, count: int) -> list[Asked]:
    """Return so many tasks, half of each family, in a drawn order."""
    messages, problems = generated(count) if data is None else read_files(data)
    found, sums, draw = [*intents(messages)], [*word_problems(problems)], Random(7)
    draw.shuffle(found)
    draw.shuffle(sums)
    chosen = found[: count // 2] + sums[: count - count // 2]
    draw.shuffle(chosen)
    return chosen


def read_files(data: Path) -> tuple[dict[str, list[tuple[str, str]]], list[dict[str, object]]]:
    """Return the two data sets."""
    return json.loads((data / "clinc.json").read_text()), json.loads((data / "SVAMP.json").read_text())


def generated(count: int) -> tuple[dict[str, list[tuple[str, str]]], list[dict[str, object]]]:
    """Return so many messages and word problems of our own, in the data sets' form."""
    openings = ("please", "could you", "i need help:", "now", "hey,", "tell me,", "quick:", "for me:")
    asked = {
        "balance": "how much money is in my account", "weather": "will it rain tomorrow",
        "translate": "say good morning in french", "alarm": "wake me at six", "recipe": "how do i make pancakes",
        "flip_coin": "heads or tails", "spelling": "how is necessary written", "timezone": "what zone is lima in",
        "book_flight": "get me a seat to rome", "tell_joke": "make me laugh",
    }  # fmt: skip
    ends = ("", " - thanks", " now", " today")
    messages = [
        (f"{first} {text}{end}", intent) for first in openings for end in ends for intent, text in asked.items()
    ]
    draw, problems = Random(3), []
    for number in range(count):
        have, more, things = (
            draw.randint(2, 40),
            draw.randint(2, 20),
            draw.choice(("apples", "books", "stamps", "pens")),
        )
        body = f"Ann has {have} {things} and buys {more} more"
        asks = f"How many {things} does she have now?"
        problems.append({"Body": body, "Question": asks, "ID": number, "Answer": float(have + more)})
    return {"train": [messages[number % len(messages)] for number in range(count)]}, problems


def intents(rows: dict[str, list[tuple[str, str]]]) -> Iterator[Asked]:
    """Yield messages whose intent is one of ten."""
    known = {name: name.replace(" ", "_") for name in INTENTS.split(", ")}
    for place, (text, intent) in enumerate(rows["train"]):
        if intent in known.values():
            prompt = f"Which of these does the message ask for: {INTENTS}?\nMessage: {text}\nReply with its name only."
            yield Asked(Task(prompt, id=f"clinc/{place}", domain="intents"), "text", intent.replace("_", " "))


def word_problems(rows: list[dict[str, object]]) -> Iterator[Asked]:
    """Yield short word problems."""
    for row in rows:
        prompt = f"{row['Body']}. {row['Question']}\nReply in exactly this form: The answer is NUMBER."
        yield Asked(Task(prompt, id=f"svamp/{row['ID']}", domain="sums"), "number", f"{row['Answer']:g}")


@asynccontextmanager
async def served_models(files: Sequence[Path]) -> AsyncIterator[list[Member]]:
    """Serve each file, and yield its worker; prices grow with the size of the file."""
    processes, members = [], []
    try:
        for file in files:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", SERVER, str(file)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            processes.append(process)
            assert process.stdout is not None
            url = ""
            while not url.startswith("at "):
                url = (await process.stdout.readline()).decode()
                assert url, f"{file.name}: its server did not start (pip install xllamacpp)"
            settings = ChatSettings(model=file.stem, base_url=f"{url.split()[1]}/v1", temperature=0.0)
            price = file.stat().st_size / 1e9
            card = Card(file.stem, price=Price(price, 2 * price), max_output_tokens=48, timeout=300.0, concurrency=1)
            card = fit_card(settings, card)
            members.append(Member(card, build(settings, card, SecretStore())))
        yield members
    finally:
        for process in processes:
            process.kill()
            await process.wait()


class OutOfTime(Exception):
    """The minutes are over."""


@dataclass(slots=True)
class KeptRuns:
    """The runs so far, by what was asked of whom, as lines of a file; no more are made once the time is over."""

    file: Path
    until: float
    lines: dict[str, list[list[Any]]]

    @classmethod
    def of(cls, file: Path, minutes: float | None) -> "KeptRuns":
        """Return what a file holds."""
        until = float("inf") if minutes is None else monotonic() + 60 * minutes
        rows = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
        return cls(file, until, {row["key"]: row["events"] for row in rows})

    async def play(self, phase: str, asked: Asked, pool: Pool, conductor: Conductor) -> tuple[Run, float]:
        """Return the run, with its grade in it, and its score."""
        key = f"{phase}/{asked.task.id}"
        if key not in self.lines:
            if monotonic() >= self.until:
                raise OutOfTime
            events = [encode_event(event) for event in await performed(asked, pool, conductor)]
            kept = [[e.kind, e.run, e.at, e.data, {name: body.decode() for name, body in e.bodies}] for e in events]
            with self.file.open("a") as file:
                print(json.dumps({"key": key, "events": kept}), file=file)
            self.lines[key] = kept
        run = Run.fold([decode_event(*line) for line in self.lines[key]])
        return run, run.grade.score or 0.0 if run.grade is not None else 0.0


async def performed(asked: Asked, pool: Pool, conductor: Conductor) -> list[Event]:
    """Return the events of a run, with its grade."""
    grader = build_grader(asked.checker, {"answer": asked.answer}, GraderTools(), asked.task.id)
    recorder = MemoryRecorder()
    run = await Engine(recorder).run(asked.task, pool, conductor, Caps(seconds=None))
    grade = await grader.grade(run.answer or "")
    return [*await recorder.read(run.id), *grade_events(run.id, grade, None)]


def compare(name: str, live: Sequence[float], other: Sequence[float]) -> float:
    """Print a row, and return the difference in standard errors."""
    gaps = [one - two for one, two in zip(live, other, strict=True)]
    error = stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    gap = fmean(gaps)
    low, high = gap - 1.96 * error, gap + 1.96 * error
    same = sum(one == two for one, two in zip(live, other, strict=True))
    print(
        f"{name:44} {fmean(live):6.3f} {fmean(other):9.3f} {gap:+7.3f} [{low:+.3f}, {high:+.3f}]  {same:4}/{len(live)}"
    )
    return abs(gap) / error if error else 0.0


async def main() -> None:
    """Answer, learn, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="MODELS")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--models", type=int, default=3, help="so many of them, the smallest")
    parser.add_argument("--learn", type=int, default=150)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--keep", type=Path, default=Path("evaluations/live-replay"))
    parser.add_argument("--minutes", type=float)
    given = parser.parse_args()
    if given.learn < MIN_COMPARED_TASKS:
        parser.error(f"--learn: a policy needs {MIN_COMPARED_TASKS} tasks or more")
    tasks = read_tasks(given.data, given.learn + given.tasks)
    files = sorted(given.folder.glob("*.gguf"), key=lambda file: file.stat().st_size)[: given.models]
    assert files, f"{given.folder}: no GGUF file there"
    given.keep.mkdir(parents=True, exist_ok=True)
    runs = KeptRuns.of(given.keep / f"runs-{given.learn}-{given.tasks}-{len(files)}.jsonl", given.minutes)
    try:
        worst = await compared(given, tasks, files, runs)
    except OutOfTime:
        print(f"not at its end: {len(runs.lines)} runs are kept in {runs.file}; the next call goes on")
        sys.exit(3)
    sys.exit(worst > 2)


async def compared(given: argparse.Namespace, tasks: list[Asked], files: list[Path], runs: KeptRuns) -> float:
    """Return how many standard errors live and replayed accuracy are apart at most."""
    began, worst = monotonic(), 0.0
    async with served_models(files) as members:
        pool, alone = Pool(members), [fixed_conductor(f"single?worker={each.card.name}") for each in members]
        builders = [LogBuilder("live", RepeatPolicy.MERGED) for _ in range(2)]
        for place, asked in enumerate(tasks):
            made = [(await runs.play(f"alone/{each.name}", asked, pool, each))[0] for each in alone]
            gather_runs(made, builders[place >= given.learn])
            if place % 25 == 24:
                print(f"{place + 1} of {len(tasks)} tasks answered, {monotonic() - began:.0f} s", file=sys.stderr)
        for builder, part in zip(builders, ("learned", "held"), strict=True):
            builder.write(given.keep / part)
        path = given.keep / "live.policy"
        save_policy(learn_policy(LearnRequest(log=given.keep / "learned"), lambda _: None), path)
        log, held = OutcomeLog.read(given.keep / "held"), tasks[given.learn :]
        replayed = Pool([Member(replay_card(log, name), ReplayWorker(log, name, "both")) for name in log.workers])
        print(f"{f'{len(held)} held-out tasks, {len(members)} real models':44} {'live':>6} {'replay':>9} live - replay")
        for setting in ("quality=0.95", "max_cost=60%", "max_cost=30%"):
            try:
                conductor = policy_conductor(f"{path}?{setting}")
            except ConfigError as error:  # models of one price know no cheaper mix
                print(f"policy?{setting}: out of reach: {error}")
                continue
            live = [(await runs.play(f"live/{setting}", asked, pool, conductor))[1] for asked in held]
            again = [(await runs.play(f"replay/{setting}", asked, replayed, conductor))[1] for asked in held]
            worst = max(worst, compare(f"policy?{setting}, the words it learned from", live, again))
        conductor = policy_conductor(f"{path}?quality=0.95")
        other = replace(conductor, policy=with_words(conductor.policy, ANSWER_ALONE))
        live = [(await runs.play("live/other words", asked, pool, other))[1] for asked in held]
        again = [(await runs.play("replay/quality=0.95", asked, replayed, conductor))[1] for asked in held]
        compare("policy?quality=0.95, other words", live, again)
    print(f"{monotonic() - began:.0f} s; in the words that it learned from at most {worst:.1f} standard errors apart")
    return worst


def with_words(policy: Policy, words: str) -> Policy:
    """Return the policy with other words for its workers."""
    return replace(policy, about=replace(policy.about, wording=words))


if __name__ == "__main__":
    asyncio.run(main())
