"""The pointer conductor in words that are not in the repository, as a share of its figure with held-out authors.

    python benchmarks/office_own_words.py FOLDER [--file CHECKPOINT] [--tasks 100] [--seeds 7,8,9] [--outcomes 100]

FOLDER is yours and is not committed. It holds `questions.toml`, `cards.toml`, or both:

    # questions.toml: sentences by operation; {x}, {y} are what it is about (a person, a room, ...), {c} is a number
    room = ["where does {x} sit?", "I need the office of {x}."]
    percent = ["{c} percent of {x}, please"]
    that_person = ["that colleague"]           # optional: how an earlier result (person, room, invoice, ...) is named
    if_above = ["if it is more than {t},"]     # optional, like if_not: how a condition begins
    # cards.toml: what a card says of each kind of work; vague and generalist are optional
    people = ["Looks up employees."]

The operations and kinds are those of `shikisha.simulation.office.company`. The same tasks, for the same crews and with
the same luck, are asked in your words and in held-out authors' words; only tasks whose operations you have worded
count. All workers are simulated; the figure is of reading, and nothing is trained here.
"""

import argparse
import asyncio
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from common import machine
from conductor_office import optimum, share_of
from office_robust import CALM, ratio_to, serve, show
from shikisha.conductors.pointer_conductor import load_pointer, shipped_pointer
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.task import Task
from shikisha.simulation.office.cards import card_authors, card_texts
from shikisha.simulation.office.company import OFFICE_OPERATIONS, EntityKind, write_value
from shikisha.simulation.office.office_tasks import OfficeTask, office_tasks
from shikisha.simulation.office.questions import AuthorSplit, EarlierPart, OfficePart, OfficeQuestion
from shikisha.simulation.office.staff import KINDS, CardHonesty

_DRAWN_AT_MOST = 40  # tasks drawn for each that is wanted
_OTHER_CARDS = ("vague", "generalist")
_CONNECTORS = {f"that_{kind}": [f"that {kind}"] for kind in EntityKind} | {
    "if_above": ["if that is more than {t},"],
    "if_not": ["if it is not,"],
}
Words = Mapping[str, Sequence[str]]


def read_words(file: Path, known: Sequence[str]) -> dict[str, list[str]]:
    """Return a file's sentences by name; ConfigError says which name or sentence is wrong."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: expected TOML: {error}") from None
    for name, said in table.items():
        if name not in known:
            raise ConfigError(f"{file}: {name}: expected one of {', '.join(known)}")
        if not isinstance(said, list) or not said or not all(isinstance(each, str) and each.strip() for each in said):
            raise ConfigError(f"{file}: {name}: expected a list of one sentence or more, found {said!r}")
    return table


def read_questions(file: Path) -> dict[str, list[str]]:
    """Return sentences by operation, and connectors, those of the file before neutral ones."""
    words = read_words(file, [*OFFICE_OPERATIONS, *_CONNECTORS])
    for name, operation in OFFICE_OPERATIONS.items():
        slots = ["{x}", *(["{y}"] if operation.joins else []), *(["{c}"] if operation.constants else [])]
        for said in words.get(name, ()):
            if any(slot not in said for slot in slots):
                raise ConfigError(f"{file}: {name}: expected {' and '.join(slots)} in each sentence, found {said!r}")
    return {**_CONNECTORS, **words}


def reworded(item: OfficeTask, words: Words) -> OfficeTask | None:
    """Return the same task in these words; None where an operation has none."""
    question, rng = item.question, random.Random(f"words {item.task.id}")
    if any(part.operation.name not in words for part in question.parts):
        return None
    said, sentences = list[str](), list[str]()
    for place, part in enumerate(question.parts):
        rule = question.condition
        lead = ""
        if rule is not None and place in (rule.first_then, rule.first_else):
            name = "if_above" if place == rule.first_then else "if_not"
            lead = _fill(rng.choice(words[name]), {"t": str(rule.threshold)}) + " "
        sentence = _sentence(part, words, rng)
        sentences.append(sentence)
        said.append(lead + sentence)
    text = " ".join(said)
    own = OfficeQuestion(question.parts, question.condition, "own", tuple(sentences), text)
    task = Task(text, id=item.task.id, domain=item.task.domain)
    return replace(item, task=task, question=own)


def _sentence(part: OfficePart, words: Words, rng: random.Random) -> str:
    slots = dict(zip("cd", map(str, part.constants), strict=False))
    for slot, given, kind in zip("xy", part.inputs, part.operation.takes, strict=False):
        earlier = isinstance(given, EarlierPart)
        slots[slot] = rng.choice(words[f"that_{kind}"]) if earlier else write_value(given)  # type: ignore[arg-type]
    said = _fill(rng.choice(words[part.operation.name]), slots)
    return said if said[-1] in ".?!" else f"{said}."


def _fill(template: str, slots: Mapping[str, str]) -> str:
    """Fill slots by plain replacement: foreign text may hold other braces."""
    for name, value in slots.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def recarded(item: OfficeTask, words: Words) -> OfficeTask:
    """Return the task with cards in these words that claim the same; a kind without words keeps its held-out ones."""
    rng = random.Random(f"cards {item.task.id}")

    def of(name: str) -> str:
        own = words.get(name)
        author = rng.choice(card_authors(AuthorSplit.HELDOUT))
        return rng.choice(own) if own else rng.choice(card_texts()[name][author])

    def card(honesty: CardHonesty, claimed: frozenset[str]) -> str:
        if honesty is CardHonesty.BLANK:
            return ""
        if honesty is CardHonesty.VAGUE:
            return of("vague")
        if len(claimed) == len(KINDS):
            return of("generalist")
        return " ".join(of(kind) for kind in sorted(sorted(claimed), key=lambda _: rng.random()))

    crew = item.crew
    cards = tuple(card(how, claimed) for how, claimed in zip(crew.honesty, crew.claims, strict=True))
    return item.with_crew(replace(crew, cards=cards))


async def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path, help="a checkpoint; else pointer:shipped")
    parser.add_argument("--tasks", type=int, default=100, help="tasks for each seed")
    parser.add_argument("--seeds", default="7,8,9")
    parser.add_argument("--outcomes", type=int, default=100, help="outcomes a worker that the conductor knows")
    arguments = parser.parse_args()
    questions, cards = (arguments.folder / name for name in ("questions.toml", "cards.toml"))
    if not questions.is_file() and not cards.is_file():
        raise ConfigError(f"{arguments.folder}: expected questions.toml, cards.toml, or both")
    words = read_questions(questions) if questions.is_file() else None
    said = read_words(cards, [*KINDS, *_OTHER_CARDS]) if cards.is_file() else None
    found = list[tuple[OfficeTask, OfficeTask]]()
    for seed in map(int, arguments.seeds.split(",")):
        drawn = office_tasks(AuthorSplit.HELDOUT, seed, CALM, arguments.tasks * _DRAWN_AT_MOST)
        pairs = ((item, item if words is None else reworded(item, words)) for item in drawn)
        found += islice(((one, two) for one, two in pairs if two is not None), arguments.tasks)
    if not found:
        raise ConfigError(f"{questions}: no task can be asked in these operations alone: word more of them")
    heldout, own = [one for one, _ in found], [two for _, two in found]
    best = optimum(heldout)
    model = load_pointer(arguments.file or shipped_pointer())
    print(f"The office, simulated: checkpoint {model.version[:12]}, {len(found)} tasks ({machine()})", flush=True)
    base = await serve(model, heldout, arguments.outcomes)
    rows = dict[str, object]()
    show("held-out authors", rows, share=share_of(base.played, best), failures=base.failures)
    views = {"own questions": own} if words is not None else {}
    if said is not None:
        views["own cards"] = [recarded(item, said) for item in heldout]
    if words is not None and said is not None:
        views["own questions and cards"] = [recarded(item, said) for item in own]
    for name, items in views.items():
        served = await serve(model, items, arguments.outcomes)
        ratio = ratio_to(served.played, best, base.played, best)
        show(name, rows, share=share_of(served.played, best), of_heldout=ratio, failures=served.failures)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ShikishaError as error:
        raise SystemExit(f"office_own_words.py: {error}") from None
