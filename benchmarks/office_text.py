"""A text model learns from outcomes who of the office can do what: text in, text out, by the trainer of the recipes.

    python benchmarks/office_text.py [--size tiny|small|middle] [--lessons 800] [--steps 300] [--seconds 240] [--seed 1]

The crew is one, of five simulated workers in one order with blank cards (the Conductor paper's bare ordinals), so only
outcomes can tell them apart. A Qwen2-shaped model from scratch first takes lessons: what kind of work each sentence
asks for, what a plan looks like, who uses whose result. Workers and wordings in them are drawn evenly, so they hold no
truth about anybody. Then GRPO by TRL, all weights: plans are written out, performed by the engine, and graded.
`--seconds` is the time for everything up to the last step, at most half of it for lessons. Greedy plans for questions
by held-out authors are scored at
the start (the fair one: all that lessons can bring), every so many steps, and at the end, next to controls on the same
questions: workers at random, the best single worker, and for each part the best worker told what it wants, by the
truth. One step a part is all that lessons show, so the last is the ceiling.
Deliberately absent: several crews, notes, checks, votes and conditions.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from common import machine
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import compact_prompt, render_plan_lists
from shikisha.core.subtasks import WORDINGS
from shikisha.evals.graders import Grade, grade_from_score
from shikisha.evals.taskset import TaskItem
from shikisha.simulation.office.office_tasks import OfficeDistribution, OfficeTask, office_task
from shikisha.simulation.office.questions import NO_NOISE, AuthorSplit
from shikisha.simulation.office.simulated_staff import call_success
from shikisha.simulation.office.staff import KINDS, CardHonesty, Crew, CrewDistribution, draw_crew
from shikisha.training.environment import TaskCurriculum
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.plan_reward import PlanScorer
from shikisha.training.process_group import default_device
from shikisha.training.settings import TrainSettings
from shikisha.training.sft import sft_optimizer, train_sft
from shikisha.training.sft_data import ChunkSource, make_chunk, parse_tokenizer, prefetch_chunks, serve_chunks
from shikisha.training.training_run import greedy_plans

SIZES = {
    "tiny": Qwen2Size(2, 128, 4, 384, 512),
    "small": Qwen2Size(3, 192, 6, 512, 512),
    "middle": Qwen2Size(8, 512, 8, 1408, 512),
}
CREW = CrewDistribution(sizes=(5,), generalist=0.0, honesty={CardHonesty.BLANK: 1.0})
QUESTIONS = OfficeDistribution(parts=(0.5, 0.5), conditional=0.0, stakes=0.0, noise=NO_NOISE)
VOCABULARY, VOCABULARY_QUESTIONS = 2_000, 4_000
LONGEST = 160
_LESSONS, _LEARNED, _JUDGED = 1_000, 2_000, 3_000  # seeds of questions that never meet
WorkerAndTold = tuple[int, frozenset[str]]


@dataclass(frozen=True)
class Lesson:
    """A prompt and the plan that is taught after it."""

    prompt: str
    taught: str
    shown: str = ""
    whole: bool = True


class OfficeGrader:
    """Grades one question of the office."""

    name = "office"

    def __init__(self, item: OfficeTask) -> None:
        self._item = item

    async def grade(self, answer: str) -> Grade:
        """Return 1.0 or 0.0."""
        return grade_from_score("office", float(self._item.grade(answer)), answer, "")


def the_crew(seed: int) -> Crew:
    """Return the one crew of a run, in which somebody is strong at each kind of work."""
    rng = random.Random(f"crew {seed}")
    while True:
        crew = draw_crew(CREW, AuthorSplit.TRAIN, rng)
        if len({kind for member in crew.members for kind in member.strong}) == len(KINDS):
            return crew


def question(crew: Crew, split: AuthorSplit, seed: int, index: int) -> OfficeTask:
    """Return one question for the crew."""
    return office_task(split, seed, index, QUESTIONS).with_crew(crew)


def learned_item(crew: Crew, split: AuthorSplit, seed: int, index: int) -> TaskItem:
    """Return one question as the trainer takes it."""
    one = question(crew, split, seed, index)
    return TaskItem(one.task, OfficeGrader(one), one.task.domain, pool=one.pool)


def written_plan(one: OfficeTask, choose: Callable[[int], WorkerAndTold]) -> str:
    """Return a plan's text: the kinds of work, then a step a part by the chosen worker, told what is chosen."""
    parts, steps = one.question.parts, list[Step]()
    for place, (part, sentence) in enumerate(zip(parts, one.question.sentences, strict=True)):
        worker, told = choose(place)
        said = [sentence, *(WORDINGS[name] for name in sorted(told))]
        steps.append(Step(" ".join(said), worker, part.uses))
    return f"{' '.join(part.kind for part in parts)}\n{render_plan_lists(Plan(tuple(steps)))}"


def at_random(rng: random.Random, workers: int, _: int) -> WorkerAndTold:
    """Choose anybody, and tell anything."""
    return rng.randrange(workers), frozenset(name for name in WORDINGS if rng.random() < 0.3)


def by_one(at: int, one: OfficeTask, _: int) -> WorkerAndTold:
    """Choose this worker, told what it wants."""
    return at, frozenset(one.crew.members[at].wants)


def by_truth(one: OfficeTask, place: int) -> WorkerAndTold:
    """Choose who is likeliest right, told what it wants."""
    members = one.crew.members
    chances = [call_success(member, one.question, place, 1, member.wants) for member in members]
    best = max(range(len(members)), key=lambda at: chances[at])
    return best, frozenset(members[best].wants)


def lesson(crew: Crew, seed: int, index: int, _: float) -> Lesson:
    """Return lesson `index`: of the crew it holds the number of workers and their prices."""
    one, rng = question(crew, AuthorSplit.TRAIN, _LESSONS + seed, index), random.Random(f"lesson {seed} {index}")
    return Lesson(compact_prompt(one.task, one.pool.cards), written_plan(one, partial(at_random, rng, len(crew))))


def new_tokenizer(crew: Crew, seed: int) -> Tokenizer:
    """Return byte-level BPE of lessons; padding is token 0 and the end token 1."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["[pad]", "[end]"], initial_alphabet=alphabet, show_progress=False
    )
    lessons = (lesson(crew, seed, -1 - index, 0.0) for index in range(VOCABULARY_QUESTIONS))
    made.train_from_iterator((text for one in lessons for text in (one.prompt, one.taught)), trainer)
    return made


def settings_of(given: argparse.Namespace) -> TrainSettings:
    """Return the run as a training file's tables."""
    size = SIZES[given.size]
    tables = {
        "seed": given.seed,
        "model": {name: getattr(size, name) for name in ("layers", "width", "heads", "inner", "longest")},
        "warm": {"steps": given.lessons, "batch": given.batch, "rate": given.lesson_rate},
        "grpo": {
            **{name: getattr(given, name) for name in ("steps", "tasks", "group", "rate", "kl")},
            "schedule": "constant",
            "betas": [0.9, 0.99],
            "longest": LONGEST,
        },
        "curriculum": {"near_half": False},
    }
    return TrainSettings.model_validate(tables)


def chunk_maker(request: object) -> ChunkSource:
    """Return what makes lessons in a process of its own."""
    assert isinstance(request, dict)
    settings, tokenizer = TrainSettings.model_validate(request["settings"]), parse_tokenizer(request["tokenizer"])
    examples = partial(lesson, the_crew(settings.seed), settings.seed)
    return lambda number: make_chunk(number, examples, tokenizer, settings.warm)


class Judge:
    """Scores plans for questions by held-out authors."""

    def __init__(self, crew: Crew, scorer: PlanScorer, count: int) -> None:
        split, self.scorer = AuthorSplit.HELDOUT, scorer
        self.questions = [question(crew, split, _JUDGED, index) for index in range(count)]
        self.items = [learned_item(crew, split, _JUDGED, index) for index in range(count)]

    async def score(self, texts: Sequence[str]) -> dict[str, float]:
        """Return the share of right answers and of valid plans."""
        found = [one for (one,) in await self.scorer.scores([[text] for text in texts], self.items)]
        return {
            "right": sum(one.right for one in found) / len(found),
            "valid": sum(one.valid for one in found) / len(found),
        }

    async def controls(self, crew: Crew) -> dict[str, dict[str, float]]:
        """Return what plans that nobody learned come to."""
        rng = random.Random(0)
        found = {"random": await self.score(self._by(lambda *_: at_random(rng, len(crew), 0)))}
        singles = [await self.score(self._by(partial(by_one, at))) for at in range(len(crew))]
        found["best single, told what it wants"] = max(singles, key=lambda one: one["right"])
        found["truth"] = await self.score(self._by(by_truth))
        return found

    def _by(self, choose: Callable[[OfficeTask, int], WorkerAndTold]) -> list[str]:
        return [written_plan(one, partial(choose, one)) for one in self.questions]


async def learn(given: argparse.Namespace) -> dict[str, object]:
    """Take the lessons, then the steps; return the curve."""
    from shikisha.training.trl import TrlLoop

    begun, settings, crew = perf_counter(), settings_of(given), the_crew(given.seed)
    tokenizer = new_tokenizer(crew, given.seed)
    model = new_qwen2(tokenizer.get_vocab_size(), SIZES[given.size], given.seed).to(default_device())  # type: ignore[arg-type]
    request = {"settings": settings.model_dump(mode="json"), "tokenizer": tokenizer.to_str()}
    losses = list[float]()
    with prefetch_chunks("office_text", request, given.makers, 0) as chunks:
        for taken in train_sft(model, sft_optimizer(model, settings.warm), chunks, settings.warm):
            losses.append(taken.loss)
            if taken.number % 50 == 0:
                print(f"lessons {taken.number}: {taken.loss:.4f} {perf_counter() - begun:.0f} s", file=sys.stderr)
            if perf_counter() - begun > given.seconds / 2:
                break
    taught = perf_counter() - begun
    scorer = PlanScorer(settings.reward.weights())
    judge = Judge(crew, scorer, given.judged)
    source = TaskCurriculum(
        partial(learned_item, crew, AuthorSplit.TRAIN, _LEARNED + given.seed), given.seed, near_half=False
    )
    loop = TrlLoop(model, tokenizer, source, scorer, settings, deepcopy(model) if given.kl else None)
    looks, curve = list[dict[str, float]](), list[dict[str, float]]()

    async def look(number: int) -> None:
        texts = greedy_plans(model, tokenizer, judge.items, LONGEST)
        looks.append({"step": number, "seconds": perf_counter() - begun, **await judge.score(texts)})
        print(looks[-1], texts[0] if number == 0 else "", file=sys.stderr)

    await look(0)
    for number in range(1, given.steps + 1):
        step = await loop.advance()
        names = ("right", "valid", "worker_entropy", "entropy", "gradient", "tokens")
        curve.append({"step": number, **{name: float(getattr(step, name)) for name in names}, **step.seconds})
        print({name: round(value, 3) for name, value in curve[-1].items()}, file=sys.stderr)
        if perf_counter() - begun > given.seconds:
            break
        if number % max(1, given.every) == 0:
            await look(number)
    await look(len(curve))
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "lessons": {"count": len(losses) * given.batch, "seconds": taught, "loss": losses[-1:] or [None]},
        "plans": len(curve) * given.tasks * given.group,
        "controls": await judge.controls(crew),
        "greedy": looks,
        "steps": curve,
        "strong": [[f"{kind}" for kind in member.strong] for member in crew.members],
    }


def main() -> None:
    """Learn and print, as JSON; what happens on the way goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=tuple(SIZES), default="middle")
    learned = {"lessons": 800, "batch": 128, "steps": 300, "tasks": 16, "group": 32, "seed": 1}
    looked = {"judged": 200, "every": 25, "makers": max(1, (os.cpu_count() or 2) - 4)}
    for name, least in (learned | looked).items():
        parser.add_argument(f"--{name}", type=int, default=least)
    for name, share in {"seconds": 240.0, "rate": 2e-4, "kl": 0.03, "lesson-rate": 1e-3}.items():
        parser.add_argument(f"--{name}", type=float, default=share)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    found = asyncio.run(learn(given))
    print(json.dumps({"given": vars(given), "machine": machine(), "device": device, **found}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 1 and not sys.stdin.isatty() and os.environ.get("OFFICE_TEXT_MAKER"):
        serve_chunks(sys.stdin, sys.stdout, chunk_maker)
    else:
        here = str(Path(__file__).parent)
        os.environ |= {"OFFICE_TEXT_MAKER": "1", "PYTHONPATH": os.pathsep.join([here, *sys.path[1:]])}
        main()
