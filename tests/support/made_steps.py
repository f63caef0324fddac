"""Steps of trainings that went one way or another, for what draws them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from shikisha_train.metrics import CompletionSample, StepMetrics, ValidationResult

BESIDE = {"optimum": 0.9, "rules": 0.85, "generalist": 0.5, "random": 0.15}
TEXT = 'need : fact\nmodel_id = [0]\nsubtasks = ["look up the fact"]\naccess_list = [[]]'
SAMPLE = CompletionSample("Who keeps the keys of Haro?", TEXT, 0.98, "one-shot 1", True)
STEP = StepMetrics(
    number=1,
    of=40,
    reward=0.6,
    parts={"cost": -0.01, "format": 0.61},
    right=0.2,
    valid=0.9,
    right_if_valid=0.22,
    several_steps=0.7,
    masked=0.0,
    even=0.1,
    workers={"fact": 0.4, "text": 0.35, "simulated-generalist": 0.25},
    worker_entropy=1.5,
    shapes={"chain 2": 0.5, "one-shot 1": 0.4, "no plan": 0.1},
    entropy=0.3,
    kl=0.02,
    loss=0.0,
    gradient=0.5,
    rate=4e-4,
    tokens=1000,
    dollars=0.25,
    seconds={"sample and perform": 0.5, "learn": 0.3},
    samples=(SAMPLE,),
)


def steps(count: int, *changed: tuple[int, Mapping[str, object]], of: int = 40) -> list[StepMetrics]:
    """So many steps; from each number given on, fields have these values."""
    found = []
    for number in range(1, count + 1):
        step = replace(STEP, number=number, of=of)
        for begin, fields in changed:
            step = replace(step, **fields) if number >= begin else step  # type: ignore[arg-type]
        found.append(step)
    return found


def learned(count: int = 40) -> list[StepMetrics]:
    """A training that goes well, judged every tenth step, with second rounds from its middle on."""
    return [
        replace(
            step,
            right=0.1 + 0.7 * step.number / count,
            right_if_valid=0.12 + 0.7 * step.number / count,
            valid=0.95,
            kl=0.01 * step.number,
            second_round={"kept": 0.5, "repaired": 0.1, "broken": 0.02} if step.number > count // 2 else {},
            judged=ValidationResult(200, 0.75 * step.number / count, 0.98, 0.002, {}, BESIDE)
            if step.number % 10 == 0
            else None,
        )
        for step in steps(count, of=count)
    ]


def text_of(found: Iterable[StepMetrics]) -> str:
    """Them as the file holds them."""
    return "".join(f"{step.dumps()}\n" for step in found)
