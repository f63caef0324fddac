"""Recorded answers of real models as the learner's traffic: whole questions from nothing, a random worker planned.

    python benchmarks/learning_recorded.py --set zeroeval --data ../shared/recorded [--half report] [--runs 3000]
        [--graded 1] [--seeds 1,2,3] [--asks-again]
    python benchmarks/learning_recorded.py --set bfcl --data FOLDER-OF-CLONES

The product's conductor proposes, its fit learns; only the engine and the journal are left out. `--half tune` are the
questions on which the learner's priors may be looked at, `--half report` the others. `--asks-again` lets the learner
ask another worker after an answer (equal answers agree). Checks cannot be replayed. Values are in right answers per
question: right ones less dollars at the worth of a right answer. Controls, with the same questions in the same order:
the best single worker, the table by domain and the oracle in hindsight; a table of Beta counts by domain, and one count
for all, with the learner's schedule of exploring. Intervals are paired bootstraps over the questions of all seeds.
"""

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from shikisha.conductors.learned_conductor import LearnedConductor
from shikisha.core.budget import Caps, Price
from shikisha.core.call import Card
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import OPERATOR, Scope, Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.learned.journal_learner import runs_between_fits
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import EncodeTexts, OutcomeModel, prior_model
from shikisha.learned.step_evidence import EXPLORED, RunEvidence, StepAnswer, StepUnit, core_wording
from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha.routing.arrays import Floats
from shikisha_train.office.seeded_random import hash_fraction
from strangers import Clone, Row, bfcl

WORTH = 0.05
CAPS = Caps(steps=6, rounds=4, plan_steps=4)
MP13 = (
    "gpt4o@hist gemini-1.5-pro-002 gemini-1.5-flash-002 Meta-Llama-3_1-70B-Instruct jamba-1.5-large Qwen1.5-72B-Chat "
    "Meta-Llama-3_1-8B-Instruct Phi-3-mini-4k-instruct Mixtral-8x7B-Instruct-v0.1 mathstral-7B c4ai-command-r-v01 "
    "gemma-7b Mistral-7B-Instruct-v0.2"
)
LEFT_OUT = {"o1-mini-2024-09-12", "Athene-70B", "reka-core-20240501", "Yi-1.5-34B-Chat", "gpt-4o-2024-05-13",
            "claude-3-5-sonnet-20240620", "Meta-Llama-3-70B-Instruct", "Meta-Llama-3-8B-Instruct"}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """Questions that all workers answered: scores, dollars and answers, shape (questions, workers)."""

    names: tuple[str, ...]
    prompts: list[str]
    kinds: list[str]
    scores: np.ndarray
    dollars: np.ndarray
    answers: list[list[str | None]]

    @property
    def cards(self) -> tuple[Card, ...]:
        """The workers; their prices are means over 50 questions."""
        prices = self.dollars[:50].mean(axis=0)
        return tuple(
            Card(name, "", "chat", Price(call=float(one))) for name, one in zip(self.names, prices, strict=True)
        )


def load(name: str, folder: Path, half: str) -> Recorded:
    """Return a set's questions, of one half or all; those of `bfcl` from a clone of BFCL-Result in the folder."""
    if name == "bfcl":
        rows = list(bfcl(Clone.of("HuanzhiMao/BFCL-Result", folder, folder)))
    else:
        tasks = {row["task_id"]: row for row in pq.read_table(folder / name / "tasks.parquet").to_pylist()}
        rows = [
            (row["task_id"], str(tasks[row["task_id"]]["domain"]), str(tasks[row["task_id"]]["prompt"]), row["worker"],
             float(row["score"]), row["answer"], row["cost_usd"] or 0.0)
            for row in pq.read_table(folder / name / "outcomes.parquet").to_pylist() if row["score"] is not None
        ]  # fmt: skip
    names = MP13.split() if name == "mmlu-pro" else sorted({row[3] for row in rows} - LEFT_OUT)
    table: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row[3] in names:
            table[row[0]][row[3]] = row
    able = [one for one in sorted(table) if len(table[one]) == len(names)]
    able = [one for one in able if half == "all" or (hash_fraction("half", one) < 0.5) == (half == "tune")]
    each = [[table[one][worker] for worker in names] for one in able]
    return Recorded(
        tuple(names),
        [row[0][2] for row in each],
        [row[0][1] for row in each],
        np.array([[one[4] for one in row] for row in each]),
        np.nan_to_num(np.array([[one[6] for one in row] for row in each], dtype=np.float64)),
        [[one[5] for one in row] for row in each],
    )


@dataclass(frozen=True)
class RandomPlanner:
    """Plans the whole question for one worker."""

    worker: int
    kind: str
    name: str = "bench:random"
    rounds: int = 1

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan."""
        del situation
        return Proposal(Plan((Step("Answer the question.", self.worker, kind=self.kind),)))


def learner(data: Recorded, order: Sequence[int], seed: int, asked: argparse.Namespace, encode: EncodeTexts) -> Floats:
    """Return what each question brings, in dollars."""
    rng, terms = np.random.default_rng(seed), LearningTerms(WORTH)
    model, runs, got = prior_model((), OPERATOR), list[RunEvidence](), list[float]()
    for at, one in enumerate(order):
        kind = data.kinds[one] if rng.random() < 0.9 else ""
        planner = RandomPlanner(int(rng.integers(len(data.names))), kind)

        def source(scope: Scope, version: str, model: OutcomeModel = model) -> OutcomeModel:
            del scope, version
            return replace(model, learning=replace(model.learning, acts=1.0))

        conductor = LearnedConductor("learned:bench", planner, source, terms, forms=asked.asks_again)
        answers, used, explored, paid = asyncio.run(play(conductor, data, one, planner.worker))
        right = bool(data.scores[one, data.names.index(answers[used].worker)] >= 0.999)
        got.append(WORTH * float(data.scores[one, data.names.index(answers[used].worker)]) - paid)
        unit = StepUnit(core_wording(data.prompts[one], "", ()), kind, answers, used)
        grade = right if hash_fraction("graded", seed, at) < asked.graded else None
        runs.append(RunEvidence(str(at), at, (unit,), grade, None, OPERATOR, True, explored, paid, paid))
        if len(runs) - model.learning.runs >= runs_between_fits(len(runs)):
            fitted = fit_outcomes(runs, terms, OPERATOR, encode)
            # A check's prompt was never asked: none is worth anything here.
            model = replace(fitted, version=str(at), finds_counts=(1e-9, 1e9), finds=0.0, check_share=10.0)
    return np.array(got)


async def play(
    conductor: LearnedConductor, data: Recorded, one: int, planned: int
) -> tuple[tuple[StepAnswer, ...], int, float, float]:
    """Return the answers to a question, the place of the shipped one, what exploring was to cost, and the dollars."""
    situation = Situation(Task(data.prompts[one]), data.cards, left=CAPS)
    answers, texts, explored = list[StepAnswer](), list[str](), 0.0
    shipped = 0
    while True:
        made = await conductor.propose(situation)
        explored += float(made.beside.get(EXPLORED, 0.0))
        if not made.plan.steps:
            shipped = len(answers) - 1 if made.keeps is None else made.keeps
            break
        worker = made.plan.steps[0].worker
        said = data.answers[one][worker]
        text = f"none of {worker}" if said in (None, "") else str(said)
        texts.append(text)
        name, dollars = data.names[worker], float(data.dollars[one, worker])
        answers.append(StepAnswer(name, (), worker == planned, texts.index(text), dollars=dollars))
        round_ = RoundResult(made.plan, (Result(name, text),), made.version)
        rounds = (*situation.rounds, round_)
        if made.final:
            shipped = len(answers) - 1
            break
        situation = replace(situation, rounds=rounds, left=replace(CAPS, rounds=CAPS.rounds - len(rounds)))
    return tuple(answers), shipped, explored, sum(one.dollars for one in answers)


def table(data: Recorded, order: Sequence[int], seed: int, graded: float, *, by_kind: bool) -> Floats:
    """Return what a table of counts with the learner's schedule of exploring brings."""
    rng, prices = np.random.default_rng(seed), np.array([card.price.call for card in data.cards if card.price])
    counts: dict[str, Floats] = defaultdict(lambda: np.ones((2, len(prices))))
    got = list[float]()
    for at, one in enumerate(order):
        a, b = mine = counts[data.kinds[one] if by_kind else ""]
        draws = rng.random() < (1 if at < 150 else 0.3 if at < 300 else 0.1)
        worker = int(np.argmax(WORTH * (rng.beta(a, b) if draws else a / (a + b)) - prices))
        got.append(WORTH * float(data.scores[one, worker]) - float(data.dollars[one, worker]))
        if hash_fraction("graded", seed, at) < graded:
            mine[0 if data.scores[one, worker] >= 0.999 else 1, worker] += 1
    return np.array(got)


def main() -> None:
    """Print a line of JSON by row: the mean of all questions and of the last third, in right answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=["mmlu-pro", "zeroeval", "bfcl"], default="zeroeval")
    parser.add_argument("--data", type=Path, default=Path("../shared/recorded"))
    parser.add_argument("--half", choices=["tune", "report", "all"], default="report")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--graded", type=float, default=1.0)
    parser.add_argument("--asks-again", action="store_true")
    asked = parser.parse_args()
    data = load(asked.set, asked.data, asked.half)
    words = list(dict.fromkeys(core_wording(prompt, "", ()) for prompt in data.prompts))
    vectors = dict(zip(words, np.vstack([shipped_encoder().encode([one]) for one in words]), strict=True))
    rows: dict[str, list[Floats]] = defaultdict(list)
    value = WORTH * data.scores - data.dollars
    for seed in map(int, asked.seeds.split(",")):
        order = [int(one) for one in np.random.default_rng(seed).permutation(len(data.prompts))[: asked.runs]]
        each, kinds = value[order], [data.kinds[one] for one in order]
        single = int(each.mean(axis=0).argmax())
        best = {kind: int(each[[one == kind for one in kinds]].sum(axis=0).argmax()) for kind in Counter(kinds)}

        def encode(texts: Sequence[str]) -> np.ndarray:
            return np.array([vectors[text] for text in texts])

        rows["learner"].append(learner(data, order, seed, asked, encode))
        rows["best single in hindsight"].append(each[:, single])
        rows["table by domain in hindsight"].append(np.array([each[at, best[kind]] for at, kind in enumerate(kinds)]))
        rows["table by domain"].append(table(data, order, seed, asked.graded, by_kind=True))
        rows["one count for all"].append(table(data, order, seed, asked.graded, by_kind=False))
        rows["oracle in hindsight"].append(each.max(axis=1))
    rng = np.random.default_rng(0)
    for name, found in rows.items():
        line: dict[str, object] = {"row": name, "questions": len(found[0]), "graded": asked.graded}
        for label, part in (("all", slice(None)), ("last third", slice(-len(found[0]) // 3, None))):
            gaps = (
                np.concatenate([one[part] - other[part] for one, other in zip(rows["learner"], found, strict=True)])
                / WORTH
            )
            draws = [gaps[rng.integers(len(gaps), size=len(gaps))].mean() for _ in range(2_000)]
            low, high = np.quantile(draws, [0.025, 0.975])
            mean = float(np.mean([one[part].mean() for one in found]) / WORTH)
            line[label] = f"{mean:.4f}, learner {gaps.mean():+.4f} [{low:+.4f}, {high:+.4f}]"
        print(json.dumps(line))


if __name__ == "__main__":
    main()
