"""Controls in the world "workshop", replayed from the cache: what is right, and for how many CPU seconds.

    python benchmarks/workshop/workshop_controls.py [--clones FOLDER] [--split test]

Only tasks whose every call is in the cache count, and their number is said. Cuts of composed tasks are the true ones
for the rows marked *cut*, which says what a perfect cut is worth; one agent gets the whole task. The table and the
wordings are chosen on tasks to learn from, never on those that are reported. Intervals are bootstrapped over parts: a
part occurs in several tasks, and a task weighs as much as its parts' draws together (the pigeonhole bootstrap).
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
from workshop_fill import FOLDER, AnswerCache
from workshop_items import FAMILIES, Part, load_parts, repositories
from workshop_tasks import WorkshopTask, compose
from workshop_treatments import (
    LARGE,
    SMALL,
    agent_calls,
    right_part,
    right_whole,
    tool_answer,
    treatments_of,
    visible_check,
    whole_call,
)

_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way of doing a part or a task brought: its answer, whether that is right, and its CPU seconds."""

    answer: str
    right: bool
    seconds: float
    passed: bool | None = None  # the visible check, where there is one


Outcomes = Mapping[str, Outcome]


class Replay:
    """Outcomes of parts and tasks from the cache; a part is graded once."""

    def __init__(self, cache: AnswerCache) -> None:
        self._cache = cache
        self._parts: dict[tuple[str, str], Outcomes | None] = {}

    def part(self, part: Part) -> Outcomes | None:
        """Return the outcomes of a part by treatment; None where a call is missing."""
        key = (part.family, part.name)
        if key not in self._parts:
            self._parts[key] = self._graded(part)
        return self._parts[key]

    def _graded(self, part: Part) -> Outcomes | None:
        found: dict[str, Outcome] = {}
        began = process_time()
        if (exact := tool_answer(part)) is not None:
            found["tool"] = Outcome(exact, right_part(part, exact), process_time() - began)
        for each in treatments_of(part.family):
            if (kept := self._cache.get(each.call(part))) is None:
                return None
            answer = each.finish(part, kept[0])
            passed = visible_check(part, kept[0]) if part.kind == "code" else None
            found[each.name] = Outcome(answer, right_part(part, answer), kept[1], passed)
        return found

    def whole(self, task: WorkshopTask) -> Outcomes | None:
        """Return the outcomes of one agent with the whole task; None where a call is missing."""
        plain = self._cache.get(whole_call(task.prompt, len(task.parts)))
        first, second = agent_calls(task.prompt, len(task.parts))
        written = self._cache.get(first)
        said = None if written is None else self._cache.get(second(written[0]))
        if plain is None or written is None or said is None:
            return None
        return {
            "agent": Outcome(plain[0], right_whole(task.parts, plain[0]), plain[1]),
            "agent with Python": Outcome(said[0], right_whole(task.parts, said[0]), written[1] + said[1]),
        }


def ruled_name(part: Part) -> str:
    """Choose by hand: tools for what they read, the larger model in the wording that suits it for the rest."""
    if part.family in ("arithmetic", "booleans", "sorting", "intents"):
        return "tool"
    return {"tables": "large form", "stories": "large evidence", "programs": "large program"}.get(
        part.family, "large form"
    )


def fixed_name(worker: str, part: Part) -> str:
    """Return the treatment of one worker in one wording: the answer form, or a program where one is asked."""
    names = [each.name for each in treatments_of(part.family) if each.worker == worker]
    return next((name for name in names if name.endswith(("form", "program"))), names[0] if names else "large form")


def learned_table(parts: Sequence[tuple[Part, Outcomes]], seconds_worth: float) -> Mapping[str, str]:
    """Return the treatment with the most right, less what its seconds are worth, for each family."""
    sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for part, outcomes in parts:
        for name, each in outcomes.items():
            sums[part.family][name].append(each.right - seconds_worth * each.seconds)
    return {family: max(rows, key=lambda name: sum(rows[name]) / len(rows[name])) for family, rows in sums.items()}


def _from_table(picks: Mapping[str, str], part: Part, _: Outcomes) -> str:
    return picks[part.family] or fixed_name(LARGE, part)


def agreeing(_: Part, outcomes: Outcomes) -> Outcome:
    """Ask two cheap ways; where they agree, take that, else the dear one. A passed check is agreement enough."""
    names = list(outcomes)
    cheap, dear = names[:2], names[-1]
    one, other = (outcomes[name] for name in cheap)
    if one.passed:
        return one
    spent = one.seconds + (other.seconds if other is not one else 0.0)
    if _same(one.answer, other.answer):
        return Outcome(one.answer, one.right, spent)
    last = outcomes[dear]
    return Outcome(last.answer, last.right, spent + (last.seconds if dear not in cheap else 0.0))


def _same(one: str, other: str) -> bool:
    ends = [" ".join(each.lower().split("answer is")[-1].strip(" .:'\"").split()) for each in (one, other)]
    return ends[0] == ends[1]


def best_of(outcomes: Outcomes) -> Outcome:
    """Return the cheapest right outcome, else the cheapest: what an oracle would take."""
    ranked = sorted(outcomes.values(), key=lambda each: (not each.right, each.seconds))
    return ranked[0]


def _by_parts(replay: Replay, task: WorkshopTask, choose: Callable[[Part, Outcomes], Outcome]) -> Outcome:
    taken = [choose(part, replay.part(part) or {}) for part in task.parts]
    return Outcome("", all(each.right for each in taken), sum(each.seconds for each in taken))


def interval(values: Sequence[float], tasks: Sequence[WorkshopTask], seed: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of a mean over tasks, bootstrapped over their parts."""
    places = {key: place for place, key in enumerate({(p.family, p.name): None for t in tasks for p in t.parts})}
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(places), np.full(len(places), 1 / len(places)), _DRAWS)
    weights = np.stack([drawn[:, [places[p.family, p.name] for p in t.parts]].prod(1) for t in tasks], 1)
    means = (weights @ np.array(values)) / np.maximum(1, weights.sum(1))
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def main() -> None:
    """Print the table of controls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--cache", type=Path, default=FOLDER / "answers.db")
    parser.add_argument("--split", default="test", choices=("train", "choose", "test"))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    replay = Replay(AnswerCache(chosen.cache))
    tasks = compose(load_parts(repositories(FOLDER / "data", chosen.clones)))
    learn = {(part.family, part.name): part for task in tasks if task.split == "train" for part in task.parts}
    known = [(part, found) for part in learn.values() if (found := replay.part(part)) is not None]
    table, cheap_table = learned_table(known, 0.0), learned_table(known, 0.02)
    whole = [each for each in tasks if each.split == chosen.split and all(replay.part(part) for part in each.parts)]
    rows: dict[str, list[Outcome]] = {}

    def add(label: str, choose: Callable[[Part, Outcomes], Outcome]) -> None:
        rows[label] = [_by_parts(replay, task, choose) for task in whole]

    def named(choose: Callable[[Part, Outcomes], str]) -> Callable[[Part, Outcomes], Outcome]:
        return lambda part, outcomes: outcomes.get(choose(part, outcomes)) or best_cheap(outcomes)

    def best_cheap(outcomes: Outcomes) -> Outcome:
        return min(outcomes.values(), key=lambda each: each.seconds)

    add("0.5 B in one wording, cut", named(lambda part, _: fixed_name(SMALL, part)))
    add("1.5 B in one wording, cut", named(lambda part, _: fixed_name(LARGE, part)))
    add("a rule, cut", named(lambda part, _: ruled_name(part)))
    add("two agree, else the dear one, cut", agreeing)
    unlearned = sorted({part.family for task in whole for part in task.parts} - table.keys())
    if unlearned:  # two families are held out wholly: the table has nothing for them but the larger model
        print(f"no outcomes to learn a table from: {', '.join(unlearned)}; {LARGE} in one wording does these")
    for label, learned in (("", table), (", a second = .02", cheap_table)):
        picks = {**dict.fromkeys(unlearned, ""), **learned}
        add(f"table per family{label}, cut", named(partial(_from_table, picks)))
    add("oracle, cut", lambda _, outcomes: best_of(outcomes))
    agents = [(task, found) for task in whole if (found := replay.whole(task)) is not None]
    print(f"{len(whole)} of {sum(each.split == chosen.split for each in tasks)} {chosen.split} tasks have all parts,")
    print(f"{len(agents)} with one agent besides; the tables are learned from {len(known)} parts")
    for label, outcomes in rows.items():
        _print_row(label, outcomes, whole)
    for label in ("agent", "agent with Python"):
        both = [(found[label], place) for place, task in enumerate(whole) if (found := replay.whole(task)) is not None]
        tasks_done = [whole[place] for _, place in both]
        if both:
            _print_row(f"1.5 B {label}, whole task", [each for each, _ in both], tasks_done)
            for other in ("1.5 B in one wording, cut", "table per family, cut"):
                gain = [float(rows[other][place].right) - float(each.right) for each, place in both]
                low, high = interval(gain, tasks_done)
                print(f"    {other}: {sum(gain) / len(gain):+.3f} [{low:+.3f}, {high:+.3f}] over it, {len(gain)} tasks")
    _print_families(known, [part for task in whole for part in task.parts], replay)
    if chosen.json:
        data = {
            label: [sum(o.right for o in found), len(found), sum(o.seconds for o in found)]
            for label, found in rows.items()
        }
        chosen.json.write_text(json.dumps({"tasks": len(whole), "agents": len(agents), "rows": data}), encoding="utf-8")


def _print_row(label: str, outcomes: Sequence[Outcome], tasks: Sequence[WorkshopTask]) -> None:
    if outcomes:
        right = [float(each.right) for each in outcomes]
        low, high = interval(right, tasks)
        seconds = sum(each.seconds for each in outcomes) / len(outcomes)
        mean = sum(right) / len(right)
        print(f"{label:<42} {mean:.3f} [{low:.3f}, {high:.3f}]  {seconds:6.2f} CPU s a task, n {len(right)}")


def _print_families(known: Sequence[tuple[Part, Outcomes]], tested: Sequence[Part], replay: Replay) -> None:
    """Print who is right how often, by family, over all complete parts of both kinds."""
    every = {(part.family, part.name): found for part, found in known}
    every |= {(part.family, part.name): replay.part(part) or {} for part in tested}
    for family in FAMILIES:
        of = [found for (name, _), found in every.items() if name == family]
        names = list(dict.fromkeys(name for found in of for name in found))
        said = []
        for name in names:
            outcomes = [found[name] for found in of]
            seconds = sum(each.seconds for each in outcomes) / len(of)
            said.append(f"{name} {sum(each.right for each in outcomes)}/{len(of)} {seconds:.1f} s")
        print(f"{family}: {'; '.join(said) or 'none complete'}")


if __name__ == "__main__":
    main()
