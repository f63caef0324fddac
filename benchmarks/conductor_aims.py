"""The figures that a trained conductor is to reach, by cut and name, as `conductor.py` counts them.

Deliberately absent: minutes of training, the step of TRL against the plain loop's (`train_step.py`), and that curves
repeat (tests).
"""

from dataclasses import dataclass

from conductor_account import CHAIN, COST, ENTROPY, FAN_OUT, ONE_SHOT, ROUTER, RULES, SHARE, SINGLE
from conductor_figures import Estimate

STANDARD_CUT, RECURSION = "standard", "recursion"
RISE = "rise of right, given a valid plan"


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure to reach: where it stands, the bound, and whether it is to be at least or at most that."""

    cut: str
    what: str
    bound: float
    least: bool = True
    surely: bool = False  # all of the interval must be above it

    def line(self, found: Estimate) -> str:
        """Say what was found and whether that reaches it."""
        sign = ">" if self.surely else ">=" if self.least else "<="
        return f"{found}  aim {sign} {self.bound:g}  {'reached' if self.reached(found) else 'MISSED'}"

    def reached(self, found: Estimate) -> bool:
        """Say whether this reaches it."""
        if self.surely:
            return found.low > self.bound
        return found.value >= self.bound if self.least else found.value <= self.bound


AIMS = (
    Aim(STANDARD_CUT, SHARE, 0.95),
    Aim(STANDARD_CUT, f"less {SINGLE}", 0.30),
    Aim(STANDARD_CUT, f"dollars, of the {SINGLE}'s", 1.0, least=False),
    Aim(STANDARD_CUT, f"less {ROUTER}", 0.30),
    Aim(STANDARD_CUT, f"less {RULES}", -0.02),
    Aim(STANDARD_CUT, RISE, 0.50),
    *(Aim(STANDARD_CUT, shape, 0.80) for shape in (ONE_SHOT, CHAIN, FAN_OUT)),
    Aim(STANDARD_CUT, COST, 1.2, least=False),
    Aim(STANDARD_CUT, ENTROPY, 0.90),
    *(Aim(f"pool of {size}", SHARE, 0.93) for size in (3, 7, 8)),
    *(Aim(cut, SHARE, 0.90) for cut in ("unseen pair of families", "new two-skilled workers")),
    Aim("a specialist missing", SHARE, 0.85),
    Aim(RECURSION, "repaired less broken", 0.0, surely=True),
    Aim(RECURSION, "calls, of one round's", 1.5, least=False),
)
