"""Recorded answers of real models through the engine, and the same computed from the same files with pandas.

    python benchmarks/recorded.py [--tasks 500] [--folder ../shared/recorded] [--json]

For each set the first tasks by SHA-256 of their id that all workers of the pool answered. Each task is performed by
each worker alone, by a vote of three, by four with a weighted join, and by a cascade with a handoff check on the full
text. Per task, answer, score and dollars must be what pandas says; `differs` counts the tasks where they are not.
Dollars are derived from approximate list prices, as the set's README says. The runs measure our bookkeeping; no model
is called.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from time import perf_counter

import pandas as pd

from common import machine
from shikisha.checks.text_checks import JsonSchemaCheck, PatternCheck, PatternCheckSettings
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.call import Card
from shikisha.core.events import OnCheckFailure
from shikisha.core.run import Run
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Check, Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.workers.replay import ReplayWorker, replay_card
from shikisha.workers.vote import VoteForm, VoteWorker

FOLDER = Path(__file__).parent.parent.parent / "shared" / "recorded"
SAYS_ANSWER = r"answer is \(?[A-J]\)?"
WEIGHTS = (2.5, 1.5, 1.0, 1.0)  # of the join, by place: the first outvotes any two that are not the second


@dataclass(frozen=True)
class Setup:
    """A set, its workers from cheap to dear, how a vote compares them, and the check of the cascade."""

    name: str
    cascade: tuple[str, ...]
    voters: tuple[str, ...]
    joined: tuple[str, ...]
    canon: VoteForm
    check: Check

    @property
    def workers(self) -> tuple[str, ...]:
        """Every worker of this set's pool, once."""
        return tuple(dict.fromkeys((*self.cascade, *self.voters, *self.joined)))


MMLU_PRO = Setup(
    "mmlu-pro",
    cascade=("Phi-3-mini-4k-instruct", "Meta-Llama-3_1-70B-Instruct", "gpt4o@hist"),
    voters=("Meta-Llama-3_1-70B-Instruct", "gemini-1.5-flash-002", "gemini-1.5-pro-002"),
    joined=("gpt4o@hist", "gemini-1.5-pro-002", "gemini-1.5-flash-002", "Meta-Llama-3_1-70B-Instruct"),
    canon=VoteForm.CHOICE,
    check=PatternCheck(PatternCheckSettings(pattern=SAYS_ANSWER)),
)
ZEROEVAL = Setup(
    "zeroeval",
    cascade=("Phi-3.5-mini-instruct", "gpt-4o-mini-2024-07-18", "gpt-4o-2024-08-06"),
    voters=("deepseek-v2.5-0908", "Mistral-Large-2", "gpt-4o-mini-2024-07-18"),
    joined=("gpt-4o-2024-08-06", "Mistral-Large-2", "gpt-4o-mini-2024-07-18", "deepseek-v2.5-0908"),
    canon=VoteForm.TEXT,
    check=JsonSchemaCheck({"type": "object", "required": ["reasoning", "answer"]}),
)
SETUPS = (MMLU_PRO, ZEROEVAL)


@dataclass(frozen=True)
class Line:
    """One topology on one set: tasks, right answers by the engine and by pandas, differences, dollars, speed."""

    set: str
    topology: str
    tasks: int
    engine: float
    pandas: float
    differs: int
    dollars: float
    runs_a_second: float


class Recorded:
    """A set's files, read twice: by our reader for the engine, by pandas for the reckoning."""

    def __init__(self, folder: Path, setup: Setup, count: int) -> None:
        self.setup = setup
        self.log = OutcomeLog.read(folder / setup.name)
        outcomes = pd.read_parquet(folder / setup.name / "outcomes.parquet")
        responses = pd.read_parquet(folder / setup.name / "responses.parquet")
        self.table = outcomes.merge(responses, on=["task_id", "worker"], how="left").set_index(["task_id", "worker"])
        answered = outcomes[outcomes.worker.isin(setup.workers)].groupby("task_id").size() == len(setup.workers)
        by_hash = sorted(answered[answered].index, key=lambda task_id: sha256(task_id.encode()).hexdigest())
        self.tasks = by_hash[:count]
        self.texts = {worker: self.log.responses(worker) for worker in setup.cascade}

    def column(self, name: str, worker: str) -> pd.Series:
        """Return a worker's column over the tasks; missing rows are NaN."""
        return self.table[name].unstack("worker")[worker].reindex(self.tasks)

    # The reckoning: pandas only.

    def alone(self, worker: str) -> pd.DataFrame:
        """Return what a worker alone comes to: answer, score, dollars."""
        answer = self.column("answer", worker)
        blank = answer.notna() & (answer.fillna("").str.strip() == "")  # as replays show what nobody can see
        answer = answer.where(~blank, "'" + answer.fillna("") + "'")
        score = self.column("score", worker).where(answer.notna(), 0.0)
        return pd.DataFrame({"answer": answer, "score": score, "dollars": self.column("cost_usd", worker).fillna(0.0)})

    def voted(self, workers: Sequence[str], weights: Sequence[float]) -> pd.DataFrame:
        """Return what the most-given answer comes to, of equally many the one given first."""
        one = [self.alone(worker).assign(place=i, weight=weights[i]) for i, worker in enumerate(workers)]
        votes = pd.concat(one).rename_axis("task_id").reset_index()
        dollars = votes.groupby("task_id").dollars.sum()
        votes = votes.dropna(subset="answer")
        votes["canon"] = votes.answer.str.split().str.join(" ").str.casefold()
        groups = votes.groupby(["task_id", "canon"]).agg(weight=("weight", "sum"), place=("place", "min")).reset_index()
        groups = groups.sort_values(["weight", "place"], ascending=[False, True]).drop_duplicates("task_id")
        won = groups.merge(votes[["task_id", "place", "answer", "score"]], on=["task_id", "place"]).set_index("task_id")
        won = won[["answer", "score"]].reindex(self.tasks)
        return won.assign(score=won.score.fillna(0.0), dollars=dollars.reindex(self.tasks))

    def cascaded(self) -> pd.DataFrame:
        """Return what the first worker whose full text passes comes to, and else the last."""
        open_, rows, dollars = list(self.tasks), [], pd.Series(0.0, index=self.tasks)
        for worker in self.setup.cascade:
            texts = self.column("response", worker).loc[open_]
            dollars.loc[open_] += self.column("cost_usd", worker).loc[open_]
            last = worker == self.setup.cascade[-1]
            passed = texts if last else texts[texts.map(PASSES[self.setup.name])]
            score = self.column("score", worker).loc[passed.index]
            rows.append(pd.DataFrame({"answer": passed, "score": score}))
            open_ = [task_id for task_id in open_ if task_id not in passed.index]
        return pd.concat(rows).reindex(self.tasks).assign(dollars=dollars)

    # The performance: the engine only.

    def pool(self, reply_in_full: bool) -> Pool:
        """Return the replay workers and the counters; with their full texts they carry the cascade's check."""
        if reply_in_full:
            handoff = (OutputCheck(self.setup.check, OnCheckFailure.PASS),)
            cast = [(name, ReplayWorker(self.log, name, "response")) for name in self.setup.cascade]
            return Pool([Member(replay_card(self.log, name), worker, handoff) for name, worker in cast])
        members = [Member(replay_card(self.log, name), ReplayWorker(self.log, name)) for name in self.setup.workers]
        count = Member(Card("count", kind="vote"), VoteWorker(self.setup.canon))
        weigh = Member(Card("weigh", kind="vote"), VoteWorker(self.setup.canon, WEIGHTS))
        return Pool([*members, count, weigh])

    async def performed(self, spec: str, pool: Pool) -> list[Run]:
        """Run every task through the engine."""
        engine, conductor = Engine(MemoryRecorder()), fixed_conductor(spec)
        return await asyncio.gather(*(engine.run(self.log.task(task_id), pool, conductor) for task_id in self.tasks))

    def graded(self, runs: Sequence[Run]) -> pd.DataFrame:
        """Return answer, score and dollars of each run."""
        rows = {run.task.id: (run.answer, self.score(run), run.charged.dollars or 0.0) for run in runs}
        columns = ["answer", "score", "dollars"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).loc[self.tasks]

    def score(self, run: Run) -> float:
        """Return the recorded score of this answer to this task; 0 for no answer."""
        task_id, answer = run.task.id, run.answer
        if answer is None:
            return 0.0
        outcomes = {worker: self.log.find(task_id, worker) for worker in self.setup.workers}
        written = {worker: texts.get(task_id) for worker, texts in self.texts.items()}
        scores = {
            outcome.score
            for worker, outcome in outcomes.items()
            if outcome is not None and answer in (self.log.answer_text(outcome), written.get(worker))
        }
        if len(scores) != 1:
            raise ValueError(f"{task_id}: the answer {answer[:40]!r} is recorded with scores {scores}")
        return scores.pop() or 0.0


def _is_form(text: str) -> bool:
    blocks = re.findall(r"^```\w*\n(.*?)^```\s*?$", text, re.MULTILINE | re.DOTALL)
    try:
        document = json.loads(blocks[0] if len(blocks) == 1 else text)
    except ValueError:
        return False
    return isinstance(document, dict) and {"reasoning", "answer"} <= document.keys()


PASSES = {"mmlu-pro": lambda text: re.search(SAYS_ANSWER, text) is not None, "zeroeval": _is_form}


def lines(recorded: Recorded) -> list[Line]:
    """Perform and reckon every topology of a set."""
    setup, pool = recorded.setup, recorded.pool(reply_in_full=False)
    found = [_line(recorded, f"single?worker={worker}", pool, recorded.alone(worker)) for worker in setup.workers]
    voters, joined, ladder = (",".join(names) for names in (setup.voters, setup.joined, setup.cascade))
    vote = recorded.voted(setup.voters, (1.0, 1.0, 1.0))
    found.append(_line(recorded, f"vote?workers={voters}&join=count", pool, vote))
    join = recorded.voted(setup.joined, WEIGHTS)
    found.append(_line(recorded, f"fan-out-join?workers={joined}&join=weigh", pool, join))
    in_full = recorded.pool(reply_in_full=True)
    found.append(_line(recorded, f"cascade?workers={ladder}", in_full, recorded.cascaded()))
    return found


def _line(recorded: Recorded, spec: str, pool: Pool, reckoned: pd.DataFrame) -> Line:
    begun = perf_counter()
    runs = asyncio.run(recorded.performed(spec, pool))
    seconds = perf_counter() - begun
    performed = recorded.graded(runs)
    same = (performed.answer == reckoned.answer) | (performed.answer.isna() & reckoned.answer.isna())
    same &= (performed.score == reckoned.score) & ((performed.dollars - reckoned.dollars).abs() < 1e-9)
    return Line(
        recorded.setup.name,
        spec,
        len(performed),
        float(performed.score.sum()),
        float(reckoned.score.sum()),
        int((~same).sum()),
        float(performed.dollars.sum()),
        len(performed) / seconds,
    )


def main() -> None:
    """Print the lines as a table, or as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    found = [line for setup in SETUPS for line in lines(Recorded(arguments.folder, setup, arguments.tasks))]
    if arguments.json:
        print(json.dumps([asdict(line) for line in found], indent=1))
        return
    print(f"Recorded answers, replayed ({machine()}); dollars are derived from approximate list prices")
    print("set       tasks  engine  pandas  differ   dollars   runs/s  topology")
    for line in found:
        accuracies = f"{line.engine / line.tasks:>7.3f} {line.pandas / line.tasks:>7.3f}"
        print(f"{line.set:<9} {line.tasks:>5} {accuracies} {line.differs:>7}", end=" ")
        print(f"{line.dollars:>9.4f} {line.runs_a_second:>8,.0f}  {line.topology}")


if __name__ == "__main__":
    main()
