"""A text model learns from outcomes who of the office can do what: text in, text out, as `shikisha train` trains.

    python benchmarks/office_text.py FOLDER [--size tiny|small|middle] [--steps 600] [--seed 1] [--kill N]

The crew is one, of five simulated workers in one order, shown as bare ordinals (as in the Conductor paper), so only
outcomes can tell them apart. A Qwen2-shaped model from scratch first takes lessons: what kind of work each sentence
asks for, what a plan looks like, who uses whose result. Workers and wordings in them are drawn evenly, so they hold no
truth about anybody. Then GRPO by TRL, all weights, in a run folder: plans are written out, performed by the engine, and
graded. `--kill N` ends the process by SIGKILL after step N; the same command without it goes on from the last
checkpoint. Greedy plans for questions by held-out authors are scored at the start (the fair one: all that lessons can
bring) and every so many steps, next to controls on the same questions: workers at random, the best single worker, and
for each part the best worker told what it wants, by the truth. One step a part is all that lessons show, so the last is
the ceiling. Deliberately absent: several crews, notes, checks, votes and conditions.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from math import cos, pi
from pathlib import Path
from time import perf_counter

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from common import machine
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.evals.graders import Grade, grade_from_score
from shikisha.evals.taskset import TaskItem
from shikisha_train.environment import TaskCurriculum, TrainingEnvironment, TrainingOrigin
from shikisha_train.metrics import StepMetrics, ValidationResult
from shikisha_train.metrics_log import STEPS_FILE, read_steps
from shikisha_train.model_loader import CHAT_TEMPLATE, load_model
from shikisha_train.office.office_tasks import OfficeDistribution, OfficeTask, office_task
from shikisha_train.office.part_plans import WORDINGS
from shikisha_train.office.questions import NO_NOISE, AuthorSplit
from shikisha_train.office.simulated_staff import call_success
from shikisha_train.office.staff import KINDS, CardHonesty, Crew, CrewDistribution, draw_crew
from shikisha_train.plan_reward import PlanScorer
from shikisha_train.rollout import PlanPrompt
from shikisha_train.settings import TrainSettings
from shikisha_train.training_run import TrainingJob, train, validate_plans
from shikisha_train.trl import TrlLoop, generate_greedy_plans, wrap_tokenizer

# Layers, width, heads, the feed-forward's width.
SIZES = {"tiny": (2, 128, 4, 384), "small": (3, 192, 6, 512), "middle": (8, 512, 8, 1408)}
CREW = CrewDistribution(sizes=(5,), generalist=0.0, honesty={CardHonesty.BLANK: 1.0})
QUESTIONS = OfficeDistribution(parts=(0.5, 0.5), conditional=0.0, stakes=0.0, noise=NO_NOISE)
VOCABULARY, VOCABULARY_QUESTIONS = 2_000, 4_000
PAD, END, LONGEST, CONTEXT = 0, 1, 160, 512
# Instructions that never change would only cost time. Jinja drops a template's last line break, so it stands inside.
TEMPLATE = "{{ messages[-1]['content'] + '\\n' }}"
_LESSONS, _LEARNED, _JUDGED = 1_000, 2_000, 3_000  # seeds of questions that never meet
WorkerAndTold = tuple[int, frozenset[str]]


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


def lesson(crew: Crew, seed: int, index: int) -> tuple[str, str]:
    """Return the prompt and the plan of lesson `index`: of the crew it holds the number of workers."""
    rng = random.Random(f"lesson {seed} {index}")
    one = question(crew, AuthorSplit.TRAIN, _LESSONS + seed, index)
    chat = PlanPrompt(TaskItem(one.task, OfficeGrader(one), "", pool=one.pool)).chat(described=False)
    return f"{chat[-1]['content']}\n", written_plan(one, partial(at_random, rng, len(crew)))


def new_tokenizer(crew: Crew, seed: int) -> Tokenizer:
    """Return byte-level BPE of lessons."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["[pad]", "[end]"], initial_alphabet=alphabet, show_progress=False
    )
    lessons = (lesson(crew, seed, -1 - index) for index in range(VOCABULARY_QUESTIONS))
    made.train_from_iterator((text for one in lessons for text in one), trainer)
    return made


def teach(model: Qwen2ForCausalLM, tokenizer: Tokenizer, crew: Crew, given: argparse.Namespace) -> Iterator[float]:
    """Yield the loss of each step of supervised lessons."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lesson_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for number in range(given.lessons):
        share = min(1.0, (number + 1) / 100) * (0.02 + 0.49 * (1 + cos(pi * number / given.lessons)))
        optimizer.param_groups[0]["lr"] = given.lesson_rate * share
        drawn = [lesson(crew, given.seed, number * given.batch + place) for place in range(given.batch)]
        rows = [[tokenizer.encode(text).ids for text in one] for one in drawn]
        longest = max(len(prompt) + len(taught) + 1 for prompt, taught in rows)
        tokens = torch.full((given.batch, longest), PAD)
        labels = torch.full_like(tokens, -100)
        for place, (prompt, taught) in enumerate(rows):
            whole = torch.tensor([*prompt, *taught, END])
            tokens[place, : len(whole)] = whole
            labels[place, len(prompt) : len(whole)] = whole[len(prompt) :]
        loss = model(input_ids=tokens.to(model.device), labels=labels.to(model.device)).loss
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.detach())


def make_start(folder: Path, crew: Crew, given: argparse.Namespace) -> None:
    """Write the model that took the lessons."""
    layers, width, heads, inner = SIZES[given.size]
    tokenizer = new_tokenizer(crew, given.seed)
    torch.manual_seed(given.seed)
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config).to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    begun = perf_counter()
    for number, loss in enumerate(teach(model, tokenizer, crew, given), 1):
        if number % 50 == 0:
            print(f"lessons {number}: {loss:.4f} {perf_counter() - begun:.0f} s", file=sys.stderr)
    part = folder.with_name("start.part")
    model.save_pretrained(part)
    tokenizer.save(str(part / "tokenizer.json"))
    (part / CHAT_TEMPLATE).write_text(TEMPLATE)
    part.rename(folder)


def settings_of(given: argparse.Namespace) -> TrainSettings:
    """Return the run as a training file's tables."""
    tables = {
        "seed": given.seed,
        "model": {"start": str(given.folder / "start"), "described": False},
        "tasks": {"set": "office", "judged": given.judged, "every": given.every},
        "grpo": {
            **{name: getattr(given, name) for name in ("steps", "tasks", "group", "rate", "kl")},
            "schedule": "constant",
            "betas": [0.9, 0.99],
            "longest": LONGEST,
        },
        "curriculum": {"near_half": False},
        "keep": {"every": 20, "last": 2},
    }
    return TrainSettings.model_validate(tables)


def judged_questions(crew: Crew, count: int) -> list[OfficeTask]:
    """Return the questions by held-out authors."""
    return [question(crew, AuthorSplit.HELDOUT, _JUDGED, index) for index in range(count)]


def environment_of(crew: Crew, given: argparse.Namespace) -> TrainingEnvironment:
    """Return what the run learns from, and what it is judged by."""
    judged = tuple(learned_item(crew, AuthorSplit.HELDOUT, _JUDGED, index) for index in range(given.judged))
    workers = [{"name": name} for name in judged[0].pool.names] if judged[0].pool else []
    return TrainingEnvironment(
        TrainingOrigin(
            "office", {"learned from": "training authors", "judged by": "held-out"}, workers, simulated=True
        ),
        {"taskset": "office", "pool": f"crew {given.seed}"},
        partial(learned_item, crew, AuthorSplit.TRAIN, _LEARNED + given.seed),
        largest=len(crew),
        validation_tasks=judged,
    )


async def score_start(crew: Crew, given: argparse.Namespace) -> ValidationResult:
    """Return what the greedy plans of the start come to."""
    settings, environment = settings_of(given), environment_of(crew, given)
    settings = settings.model_copy(update={"grpo": settings.grpo.model_copy(update={"kl": 0.0})})
    loaded, scorer = load_model(settings.model.start), PlanScorer(settings.reward.weights())
    words: PreTrainedTokenizerFast = wrap_tokenizer(loaded.tokenizer, PAD, END, loaded.template)
    loop = TrlLoop(loaded.model, words, TaskCurriculum(environment.stream), scorer, settings)
    texts = generate_greedy_plans(loop.trainer, environment.validation_tasks)
    return await validate_plans(texts, scorer, environment.validation_tasks)


async def controls(crew: Crew, given: argparse.Namespace) -> dict[str, float]:
    """Return the share right of plans that nobody learned."""
    questions, rng = judged_questions(crew, given.judged), random.Random(0)
    items = environment_of(crew, given).validation_tasks
    scorer = PlanScorer(settings_of(given).reward.weights())

    async def right(choose: Callable[[OfficeTask, int], WorkerAndTold]) -> float:
        texts = [written_plan(one, partial(choose, one)) for one in questions]
        return (await validate_plans(texts, scorer, items)).right

    singles = [await right(partial(by_one, at)) for at in range(len(crew))]
    return {
        "random": await right(lambda *_: at_random(rng, len(crew), 0)),
        "best single, told what it wants": max(singles),
        "truth": await right(by_truth),
    }


def figures(steps: Sequence[StepMetrics], every: int) -> list[dict[str, float]]:
    """Return the validations, each with the mean share right of what was sampled in the steps before it."""
    found = []
    for step in steps:
        if step.judged is not None:
            before = [one.right for one in steps if step.number - every < one.number <= step.number][-20:]
            sampled = sum(before) / len(before)
            found.append(
                {"step": step.number, "right": step.judged.right, "valid": step.judged.valid, "sampled": sampled}
            )
    return found


def main() -> None:
    """Learn and print, as JSON; what happens on the way goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    learned = {"lessons": 900, "batch": 32, "steps": 600, "tasks": 8, "group": 16, "seed": 1}
    for name, least in (learned | {"judged": 200, "every": 60, "kill": 0}).items():
        parser.add_argument(f"--{name}", type=int, default=least)
    for name, share in {"rate": 3e-4, "kl": 0.03, "lesson-rate": 3e-3}.items():
        parser.add_argument(f"--{name}", type=float, default=share)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    crew = the_crew(given.seed)
    if not (given.folder / "start").is_dir():
        given.folder.mkdir(parents=True, exist_ok=True)
        make_start(given.folder / "start", crew, given)

    def watch(step: StepMetrics) -> None:
        taken = sum(step.seconds.values())
        print(
            f"{step.number} right {step.right:.3f} valid {step.valid:.3f} {taken:.1f} s",
            step.judged or "",
            file=sys.stderr,
        )
        if step.number == given.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    run = given.folder / "run"
    note = partial(print, file=sys.stderr)
    job = TrainingJob(settings_of(given), environment_of(crew, given), run, (run / STEPS_FILE).exists(), (watch,), note)
    asyncio.run(train(job))
    started = asyncio.run(score_start(crew, given))
    print(
        json.dumps(
            {
                "given": {name: str(value) for name, value in vars(given).items()},
                "machine": machine(),
                "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "processor",
                "start": asdict(started),
                "controls": asyncio.run(controls(crew, given)),
                "greedy": figures(read_steps(run), given.every),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
