"""What the examples that learn come to: each on several seeds, next to its controls.

    python benchmarks/cases.py n8n margin [--seeds 1 2 3]
    python benchmarks/cases.py recorded [--log ../shared/recorded/mmlu-pro --workers Phi-3-mini-4k-instruct,gpt4o@hist]

Every run is that of `examples/`, with its real server and journal; the models are simulated, but for `recorded`,
where they are recorded answers. The examples of triage and review call real models and take no seed of ours. The
table has means over the seeds, and the least and the most. `--folder` keeps logs, policies and `money.svg` of each
run.
"""

import argparse
import asyncio
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
RECORDED = ROOT.parent / "shared" / "recorded" / "mmlu-pro"
Figures = Mapping[str, Mapping[str, float]]


def example(name: str) -> ModuleType:
    """Import a script of the examples."""
    path = ROOT / "examples" / name
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def perform(script: str, folder: Path, more: Sequence[str], seed: int) -> Figures:
    """Run an example in this folder, and return its figures by way of working."""
    given = ["--folder", str(folder), "--seed", str(seed), *more]
    asyncio.run(example(script).main(given))
    found = json.loads((folder / f"{Path(script).stem}.json").read_text())
    ways: Figures = found.get("ways", found)
    if "cheap share" in found:
        ways = {
            **ways,
            "the cheap model's share of the easy tasks (of all, where recorded)": {"share": found["cheap share"]},
        }
    return ways


def table(runs: Sequence[Figures]) -> str:
    """Return the means over the runs, with the least and the most, a line for each way of working."""
    lines = []
    for way in runs[0]:
        cells = []
        for figure in runs[0][way]:
            values = [run[way][figure] for run in runs]
            mean = sum(values) / len(values)
            spread = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
            cells.append(f"{figure} {mean:.4g}{spread}")
        lines.append(f"{way:40} " + "; ".join(cells))
    return "\n".join(lines)


def commands(given: argparse.Namespace) -> Mapping[str, tuple[str, Callable[[], list[str]]]]:
    """Return by case the script and its further options."""
    recorded = ["--log", str(given.log), "--workers", given.workers, "--tasks", "2400"]
    return {
        "n8n": ("n8n/n8n.py", lambda: ["--tasks", "2400"]),
        "recorded": ("n8n/n8n.py", lambda: recorded),
        "margin": ("margin/margin.py", lambda: ["--requests", "2000"]),
    }


def main() -> None:
    """Run the cases and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=["n8n", "recorded", "margin"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path, help="Where to keep what the runs write.")
    parser.add_argument("--log", type=Path, default=RECORDED, help="The folder of an outcome log.")
    parser.add_argument("--workers", default="Phi-3-mini-4k-instruct,gpt4o@hist", help="Of the log: cheap, best.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        for case in given.cases:
            script, more = commands(given)[case]
            runs = [perform(script, folder / f"{case}-{seed}", more(), seed) for seed in given.seeds]
            print(f"\n{case}, seeds {', '.join(map(str, given.seeds))}\n{table(runs)}", flush=True)


if __name__ == "__main__":
    main()
