"""The model card of a checkpoint: what it is, what it learned from, its results, and its limits.

`card.json` is for machines, and `README.md` says the same for people. Invariants: hashes are of the files next to the
card; figures were counted on tasks that the model did not learn from, and the card says on how many, or that there are
none. Deliberately absent: figures that were not counted.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from shikisha.core.budget import format_dollars
from shikisha.core.text import one_line
from shikisha_train.checkpoint import CONFIG, TOKENIZER, WEIGHTS, CheckpointName, hash_file, write_json
from shikisha_train.environment import TrainingOrigin
from shikisha_train.metrics import ValidationResult
from shikisha_train.settings import TrainSettings

CARD_FORMAT = "shikisha conductor 1"
CARD_FILE, README_FILE = "card.json", "README.md"
LICENSE = "Apache-2.0"
_LIBRARIES = ("shikisha", "torch", "transformers", "tokenizers", "safetensors", "numpy", "trl", "peft", "accelerate")
_LONGEST = 300  # characters of a description
_SIMULATION_LIMIT = "It was trained on simulated workers. How it performs with real workers was not measured."
_DESCRIPTION_LIMIT = (
    "It reads workers' descriptions and decides by them alone: a description that promises what its worker cannot do "
    "misleads it."
)


@dataclass(frozen=True, slots=True)
class CardFacts:
    """A checkpoint's place in its training, its settings and figures; `start` is the card of the model before it."""

    place: CheckpointName
    origin: TrainingOrigin
    settings: TrainSettings
    judged: tuple[int, ValidationResult] | None = None  # after how many steps, and the result
    spent: float = 0.0
    start: Mapping[str, object] = field(default_factory=dict)


def write_model_card(folder: Path, about: CardFacts) -> None:
    """Write both cards next to the weights, the architecture and the tokenizer."""
    data = model_card_data(folder, about)
    write_json(folder / CARD_FILE, data)
    (folder / README_FILE).write_text("\n".join(_readme_lines(data, about)) + "\n", encoding="utf-8")


def model_card_data(folder: Path, about: CardFacts) -> dict[str, object]:
    """Return the card as JSON data."""
    return {
        "format": CARD_FORMAT,
        "what": _summary(about),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "licence": _license(about),
        "training": {
            "stage": "step",
            "step": about.place.step,
            "of": about.settings.grpo.steps,
            "dollars": about.spent,
            "seed": about.settings.seed,
            "start": dict(about.start),
        },
        "data": {
            "taskset": about.origin.taskset,
            "splits": dict(about.origin.splits),
            "notes": list(about.origin.notes),
        },
        "pool": {"simulated": about.origin.simulated, "workers": [dict(worker) for worker in about.origin.pool]},
        "metrics": None if about.judged is None else {"step": about.judged[0], **asdict(about.judged[1])},
        "settings": _public(about.settings).model_dump(mode="json"),
        "hashes": {
            **{name: hash_file(folder / name) for name in (WEIGHTS, CONFIG, TOKENIZER)},
            "settings": settings_hash(about.settings),
        },
        "versions": library_versions(),
        "limits": list(_limits(about)),
    }


def settings_hash(settings: TrainSettings) -> str:
    """Return the SHA-256 (hex) of the settings."""
    return sha256(settings.model_dump_json().encode()).hexdigest()


def _public(settings: TrainSettings) -> TrainSettings:
    """Return the settings as others may read them: without the path of a folder on this machine."""
    start = Path(settings.model.start)
    if not settings.model.start or not start.is_dir():
        return settings
    return settings.model_copy(update={"model": settings.model.model_copy(update={"start": start.resolve().name})})


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that weights depend on, as far as they are installed."""
    return dict(_installed())


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return tuple(found)


def _summary(about: CardFacts) -> str:
    return (
        "A conductor: it reads a question and the descriptions of a pool of workers, and writes a plan (which worker "
        f"does what, and which results it sees). Weights after {about.place.step} of {about.settings.grpo.steps} steps "
        "of reinforcement from finished tasks (GRPO)."
    )


def _license(about: CardFacts) -> str:
    """Return what the card of the model it started from says."""
    start = Path(about.settings.model.start).name
    return str(about.start.get("licence") or f"that of the model it started from ({start})")


def _limits(about: CardFacts) -> Iterator[str]:
    if about.origin.simulated:
        yield _SIMULATION_LIMIT
    else:
        yield "It was trained with the workers on this card; how it performs with others was not measured."
    yield _DESCRIPTION_LIMIT
    if about.judged is None:
        yield "Its accuracy on tasks that it did not learn from was not measured."
    elif about.judged[0] != about.place.step:
        yield f"The figures are those of step {about.judged[0]}, not of these weights."
    else:
        yield "The figures are of the development split, by which settings may have been chosen, and of one seed."


def _readme_lines(data: Mapping[str, object], about: CardFacts) -> Iterator[str]:
    licence = "apache-2.0" if data["licence"] == LICENSE else "other"
    yield from ("---", "library_name: transformers", f"license: {licence}", "tags: [shikisha, conductor]", "---")
    yield from ("# A Shikisha conductor", "", str(data["what"]), "")
    yield from (f"Written {data['date']}. License: {data['licence']}.", "")
    yield from ("## Results", "", *_figures(about), "")
    yield from ("## Limits", "", *(f"- {limit}" for limit in _limits(about)), "")
    yield from ("## Training data", "", *_data(about), "")
    yield from ("## Workers", "", *_workers(about.origin), "")
    yield from ("## Settings", "", "```json", _public(about.settings).model_dump_json(indent=1), "```", "")
    hashes = data["hashes"]
    yield from ("## Hashes (SHA-256) and versions", "")
    yield from (f"- {name}: `{digest}`" for name, digest in (hashes.items() if isinstance(hashes, dict) else ()))
    yield from (f"- {name} {found}" for name, found in library_versions().items())


def _figures(about: CardFacts) -> Iterator[str]:
    if about.judged is None:
        yield "Not measured."
        return
    step, found = about.judged
    rows = {
        "right": f"{found.right:.1%}",
        "valid plans": f"{found.valid:.1%}",
        "dollars a task": f"{found.dollars:.5f}",
        **{f"for comparison: {name}": f"{value:.1%}" for name, value in found.beside.items()},
        **{f"shape: {name}": f"{value:.1%}" for name, value in found.shapes.items()},
    }
    yield f"On {found.count} tasks of the development split, after {step} steps, with greedy decoding:"
    yield from ("", "| figure | value |", "|---|---|")
    yield from (f"| {name} | {value} |" for name, value in rows.items())


def _data(about: CardFacts) -> Iterator[str]:
    yield f"- taskset: {about.origin.taskset} (seed {about.settings.seed})"
    yield from (f"- {use}: {split}" for use, split in about.origin.splits.items())
    if about.start:
        yield f"- started from: {about.start.get('what', 'a model without a card')} ({about.start.get('weights', '')})"
    yield f"- calls of workers cost {format_dollars(about.spent)}{' (simulated)' if about.origin.simulated else ''}"
    yield from (f"- {note}" for note in about.origin.notes)


def _workers(origin: TrainingOrigin) -> Iterator[str]:
    for worker in origin.pool:
        text = one_line(str(worker.get("description") or "no description"), _LONGEST)
        yield f"- {one_line(str(worker.get('name')), _LONGEST)}: {text}"
