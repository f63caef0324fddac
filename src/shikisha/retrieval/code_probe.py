"""What code makes of a fixed input, in a few numbers: a file of weights keeps them, so that other code is refused.

Weights fit the features and constants that they were trained with. A changed scale or a moved column has the same
shape, and the weights would say something else without a word. Invariant: numbers differ between machines by rounding
only, which is allowed for; a change of what is computed is larger.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

_TOLERANCE = 2e-3


def probe_code(arrays: Iterable[ArrayLike]) -> str:
    """Return numbers that stand for these arrays."""
    return " ".join(f"{number:.6g}" for number in _numbers(arrays))


def check_probe(kept: object, arrays: Iterable[ArrayLike]) -> None:
    """Raise ValueError unless `probe_code` made what a file keeps of arrays like these."""
    if not isinstance(kept, str):
        raise ValueError("an earlier version wrote it, which did not keep what its weights go with: train it again")
    told, found = np.array([float(number) for number in kept.split()]), np.array(_numbers(arrays))
    if told.shape != found.shape or not np.allclose(told, found, _TOLERANCE, _TOLERANCE):
        raise ValueError("its weights go with other features or constants than this version has: train it again")


def _numbers(arrays: Iterable[ArrayLike]) -> list[float]:
    found = []
    for array in arrays:
        flat = np.asarray(array, np.float64).ravel()
        places = np.arange(len(flat))
        found += [float(len(flat)), float(np.cos(places * 0.7) @ flat), float(np.sin(places * 1.3) @ flat)]
    return found
