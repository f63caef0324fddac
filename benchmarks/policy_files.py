"""Policy files from strangers: how many damaged ones end in an unforeseen error, and what refusing bombs takes.

    python benchmarks/policy_files.py [POLICY] [--json]

Without a file a small one is fitted. Damage is drawn by lot: bytes of the archive, or of a member whose checksum is
then made to fit. Bombs unpack to a gibibyte: of zeros, of JSON, of a directory of empty members.
"""

import io
import random
import sys
import zipfile
from pathlib import Path
from time import perf_counter

from common import Figure, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from shikisha.core.errors import ConfigError
from shikisha.routing.policy_file import parse_policy, serialize_policy

DAMAGED, GIBIBYTE = 3_000, 2**30


def fitted() -> bytes:
    """Return a small policy's file."""
    import policies

    return serialize_policy(policies.policy())


def packed(members: dict[str, bytes]) -> bytes:
    """Return an archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def unforeseen(held: bytes) -> float:
    """Return the percentage of damaged files that are neither read nor refused by a ConfigError."""
    draw, wrong = random.Random(1), 0
    with zipfile.ZipFile(io.BytesIO(held)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for number in range(DAMAGED):
        damaged = bytearray(held)
        if number % 2:
            name = draw.choice(sorted(members))
            content = bytearray(members[name])
            content[draw.randrange(min(200, len(content)))] = draw.randrange(256)
            damaged = bytearray(packed(members | {name: bytes(content)}))
        else:
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            parse_policy(bytes(damaged), "damaged")
        except ConfigError:
            pass
        except Exception:  # noqa: BLE001 - this is what is counted
            wrong += 1
    return 100 * wrong / DAMAGED


def refusal(bomb: bytes) -> float:
    """Return how many milliseconds it takes to refuse a bomb."""
    begun = perf_counter()
    try:
        parse_policy(bomb, "bomb")
    except ConfigError:
        return 1e3 * (perf_counter() - begun)
    return float("inf")


def main() -> None:
    """Measure and print."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    held = Path(given[0]).read_bytes() if given else fitted()
    bombs = {
        "zeros": packed({"policy.json": b"{}", "0/a.npy": bytes(GIBIBYTE)}),
        "JSON": packed({"policy.json": b"[" + b"0," * (GIBIBYTE // 2 - 1) + b"0]"}),
        "empty members": packed({"policy.json": b"{}", **{f"{number}.npy": b"" for number in range(200_000)}}),
    }
    found = [Figure(f"damaged files ({DAMAGED:,}): errors that nobody foresaw", unforeseen(held), "%", 0.0)]
    for name, bomb in bombs.items():
        found.append(Figure(f"a bomb of {name} ({len(bomb) / 1e6:.1f} MB): until refused", refusal(bomb), "ms", 100.0))
    report("Policy files from strangers", found)


if __name__ == "__main__":
    main()
