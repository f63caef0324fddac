"""Whether a session that the router takes to be stuck ends badly, in WorkBench's published runs of eight settings.

    python benchmarks/turns_workbench.py CLONE     # of olly-styles/WorkBench

Each run is read turn by turn, as the router reads it: its calls and what the tools returned, nothing a model said. A
run is right where its calls that change something are the published ones, whatever their case and order; WorkBench
itself compares states, and so is a little milder. Taking over is replayed: where a setting is stuck, GPT-4's own run of
that task counts in place of its, from the beginning; the control takes over as many tasks by chance.
"""

import argparse
import ast
import csv
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shikisha.core.messages import ToolCall, ToolExchange, ToolResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Turn
from shikisha.evals.statistics import difference_interval
from shikisha.routing.turn_router import RED_TURNS
from shikisha.routing.turn_state import read_state
from strangers import Clone

CHANGES = {
    *("create_event", "delete_event", "update_event", "send_email", "delete_email", "forward_email", "reply_email"),
    *("create_plot", "create_task", "delete_task", "update_task"),
    *("add_customer", "update_customer", "delete_customer"),
}
STRONGEST = "gpt-4_domains"
csv.field_size_limit(10**9)


def changes(calls: Sequence[str]) -> list[str]:
    """Return the calls that change something, in one form and order."""
    return sorted(each.lower() for each in calls if each.partition(".func")[0].rpartition(".")[2] in CHANGES)


def _value(node: ast.expr) -> str:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return found if isinstance(found, str) else json.dumps(found, default=str, sort_keys=True)


def exchanges(response: str) -> tuple[ToolExchange, ...] | None:
    """Return the calls of a run and their results; None where the published text cannot be read."""
    try:
        tree = ast.parse(response, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    made = list[ToolExchange]()
    for key, value in zip(tree.keys, tree.values, strict=True) if isinstance(tree, ast.Dict) else ():
        if isinstance(key, ast.Constant) and key.value == "intermediate_steps" and isinstance(value, ast.List):
            for step in value.elts:
                assert isinstance(step, ast.Tuple)
                action, result = step.elts
                assert isinstance(action, ast.Call)
                given, name = {each.arg: _value(each.value) for each in action.keywords}, str(len(made))
                call = ToolCall(name, given["tool"], given["tool_input"])
                made.append(ToolExchange((call,), (ToolResult(name, _value(result)),)))
    return tuple(made)


def is_stuck(query: str, made: Sequence[ToolExchange]) -> bool:
    """Return whether the router takes the run to be stuck before one of its turns."""
    return any(
        read_state(Turn("run", 0, Task(query), tuple(made[:turn]), "worker", ())).stall(RED_TURNS)
        for turn in range(1, len(made) + 1)
    )


def main() -> None:
    """Print a row a setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    clone = Clone(parser.parse_args().clone)
    runs: dict[str, dict[tuple[str, str], tuple[bool, bool]]] = defaultdict(dict)  # by setting and task: right, stuck
    unread = 0
    for domain in clone.names("data/results"):
        path = f"data/processed/queries_and_answers/{domain}_queries_and_answers.csv"
        gold = {row["query"]: changes(ast.literal_eval(row["answer"])) for row in _rows(clone, path)}
        for name in clone.names(f"data/results/{domain}"):
            for row in _rows(clone, f"data/results/{domain}/{name}"):
                made = exchanges(row["full_response"])
                if made is None or row["query"] not in gold:
                    unread += 1
                    continue
                right = not row["error"] and changes(ast.literal_eval(row["function_calls"])) == gold[row["query"]]
                stuck = is_stuck(row["query"], made)
                runs["_".join(name.split("_")[:2])][domain, row["query"]] = right, stuck
    print(f"{sum(map(len, runs.values()))} runs, {unread} not read")
    print(
        "| setting | runs | stuck | right if stuck | right if not | taken over: right more (95 %) | as many by chance |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, held in sorted(runs.items()):
        bad, other = ([right for right, there in held.values() if there is kind] for kind in (True, False))
        both = [(held[task], runs[STRONGEST][task][0]) for task in held if task in runs[STRONGEST]]
        gain = [float(strong) - right if there else 0.0 for (right, there), strong in both]
        chance = np.mean([there for (_, there), _ in both]) * np.mean([strong - right for (right, _), strong in both])
        low, high = difference_interval(gain)
        print(
            f"| {name} | {len(held)} | {len(bad)} | {np.mean(bad):.3f} | {np.mean(other):.3f} "
            f"| {np.mean(gain):+.3f} ({low:+.3f} to {high:+.3f}) | {chance:+.3f} |"
        )


def _rows(clone: Clone, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(clone.read(path))))


if __name__ == "__main__":
    main()
