"""How little is enough: the rule, the cascade and the rung that the ladder ships, on fewer and fewer tasks.

Each size is the first so many tasks, by hash, of a seed's training part; the part held out is the same for all sizes.
"""

from collections.abc import Mapping
from dataclasses import asdict

from routers_entrants import AT_BUDGETS, CASCADE, OURS, RULE, Measured, entrants
from routers_figures import difference
from routers_sets import Recorded, first, seeded

SIZES = (100, 300, 1_000, 3_000)
SEEDS = 5


def curve(one: Recorded) -> list[Mapping[str, object]]:
    """Print, and return, the areas at each size and the paired difference of ours to the rule."""
    least = min(len(seeded(one.panel, seed).train) for seed in range(SEEDS))
    print(f"\n{one.name}: area by tasks to learn from, {SEEDS} seeds (costs: {one.costs})")
    print(f"{'tasks':>6} | {RULE:>13} | {CASCADE:>8} | {OURS:>8} | {'ours - rule':>28} | kept")
    found: list[Mapping[str, object]] = []
    for size in dict.fromkeys(min(size, least) for size in SIZES):
        splits = [_measured(one, seed, size) for seed in range(SEEDS)]
        areas = {name: _area(splits, name) for name in (RULE, CASCADE, OURS) if name in splits[0]}
        gain = difference(OURS, RULE, splits)
        kept = [split[OURS].note for split in splits]
        counted = ", ".join(f"{name} {kept.count(name)}" for name in dict.fromkeys(kept))
        cascaded = f"{areas[CASCADE]:.4f}" if CASCADE in areas else "-"
        told = f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
        print(
            f"{size:>6,} | {areas[RULE]:>13.4f} | {cascaded:>8} | {areas[OURS]:>8.4f} | {told:>28} | {counted}",
            flush=True,
        )
        found.append({"tasks": size, "areas": areas, "gain": asdict(gain), "kept": kept})
    return found


def _measured(one: Recorded, seed: int, size: int) -> dict[str, Measured]:
    split = first(seeded(one.panel, seed), size)
    chosen = entrants(split)
    return {name: chosen[name](split) for name in (RULE, CASCADE, OURS) if name in chosen}


def _area(splits: list[dict[str, Measured]], name: str) -> float:
    """Return the mean area over all outcomes."""
    won = [float(split[name].front.won[:, AT_BUDGETS].mean(axis=1).sum()) for split in splits]
    return sum(won) / sum(len(split[name].ids) for split in splits)
