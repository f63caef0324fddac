"""`make night`: what is too long for every push, one part after another, and one summary; not zero on any finding.

    python tests/night/night.py [--minutes 150] [--keep FOLDER] [--models FOLDER]

Of the time, two fifths go to coverage-guided fuzzing (`night_fuzz`), a fifth each to failpoints at every write of a
served journal (`night_failpoints`) and power loss (`night_power`), a tenth to a soak (`night_soak`), and a twentieth
each to servers cut off from their database (`night_partitions`) and to evaluations that are killed
(`night_evaluation_kill`). Each part is a process of its own, so that one that dies takes no other with it. Then a
policy learned from the answers of real local models (the two smallest GGUF files of the folder, `live_replay`) must
be as right live as replayed; it has 45 minutes, and goes on the next night where they do not suffice. What cannot be
done here (no C compiler, no PostgreSQL, no atheris) is said and left out. FOLDER keeps each part's words and the
fuzzer's corpora, with which the next night begins.
"""

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PARTS = {
    "night_failpoints": 0.2,
    "night_power": 0.2,
    "night_soak": 0.1,
    "night_partitions": 0.05,
    "night_evaluation_kill": 0.05,
    "night_fuzz": 0.4,
}


def night(minutes: float, folder: Path) -> dict[str, int]:
    """Run the parts; return how each of them ended."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = {}
    for part, share in PARTS.items():
        if part == "night_fuzz" and find_spec("atheris") is None:
            print("night_fuzz is left out: there is no atheris for this system", flush=True)
            continue
        begun = monotonic()
        print(f"== {part}, {share * minutes:.1f} minutes", flush=True)
        command = [sys.executable, str(HERE / f"{part}.py"), "--minutes", str(share * minutes)]
        if part == "night_fuzz":
            command += ["--keep", str(folder / "fuzz")]
        said = folder / f"{part}.log"
        with said.open("wb") as log:
            ends[part] = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode  # noqa: S603 - our own scripts
        print(said.read_text(errors="replace"), flush=True)
        print(
            f"== {part}: {'well' if ends[part] == 0 else 'NOT WELL'}, {(monotonic() - begun) / 60:.1f} minutes",
            flush=True,
        )
    return ends


def live_replay(models: Path, folder: Path) -> dict[str, int]:
    """Compare live with replayed runs of real models; return how that ended."""
    if find_spec("xllamacpp") is None or not any(models.glob("*.gguf")):
        print(f"live_replay is left out: it needs the package xllamacpp and GGUF files in {models}", flush=True)
        return {}
    command = [sys.executable, str(ROOT / "benchmarks" / "live_replay.py"), str(models), "--models", "2"]
    bounds = ["--learn", "60", "--keep", str(folder / "live"), "--minutes", "45"]
    done = subprocess.run([*command, *bounds], check=False)  # noqa: S603 - our own script
    return {"live_replay": 0 if done.returncode == 3 else done.returncode}  # 3: the next night goes on with it


def main() -> int:
    """Run the night and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--keep", type=Path, default=ROOT / "nights")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "real-models")
    options = parser.parse_args()
    ends = night(options.minutes, options.keep) | live_replay(options.models, options.keep)
    for part, end in ends.items():
        print(f"{part:<20} {'0 findings' if end == 0 else 'FINDINGS, or it did not end well'}")
    return int(any(ends.values()))


if __name__ == "__main__":
    sys.exit(main())
