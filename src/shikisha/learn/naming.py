"""Short names for workers and types, for columns of a fixed width.

Invariant: two names never become the same, and a name that fits stays as it is. Deliberately absent: what is known of
models' names (`-Instruct` is not taken for less telling than `70B`).
"""

from collections.abc import Iterable, Mapping

from shikisha.clean import one_line

_HEAD, _BEFORE = 5, 3  # letters of a name that is cut in its middle: at its beginning, and before what sets it apart


def labels(names: Iterable[str], longest: int) -> Mapping[str, str]:
    """Return a name of at most so many letters for each, all different.

    A long name is cut at its end, or before and behind the first letter in which it differs from one that would be cut
    to the same.
    """
    plain = {name: one_line(name) for name in names}
    found: dict[str, str] = {}
    for name, line in plain.items():
        cut = line if len(line) <= longest else f"{line[: longest - 1]}…"
        alike = [other for other in plain.values() if other != line and other[: longest - 1] == line[: longest - 1]]
        if alike and len(line) > longest:
            start = max(_HEAD, min(_common(line, other) for other in alike) - _BEFORE)
            cut = f"{line[:_HEAD]}…{line[start : start + longest - _HEAD - 1]}"
        number, unique = 2, cut
        while unique in found.values():
            ending = f"#{number}"
            unique = cut[: longest - len(ending)] + ending
            number += 1
        found[name] = unique
    return found


def _common(one: str, other: str) -> int:
    """Return how many letters two names begin with alike."""
    apart = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(apart, min(len(one), len(other)))
