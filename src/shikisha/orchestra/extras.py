"""Workers whose trade no question needs: they stand in large pools and can only say that they cannot.

Invariant: no word of theirs is a cue of a kind of work, so whoever reads descriptions can tell that they are of no use.
Deliberately absent: skills.
"""

from shikisha.budget import Price
from shikisha.orchestra.cast import Profile
from shikisha.orchestra.wording import wordings

_TRADES: dict[str, tuple[float, tuple[str, ...]]] = {  # dollars a call, and what they say of themselves
    "painter": (
        0.001,
        (
            "(paints|draws) (pictures|portraits) of (people|landscapes)",
            "(makes|sketches) (pictures|drawings) (by hand|in oil)",
        ),
    ),
    "singer": (0.0004, ("(sings|hums) (songs|tunes) (aloud|on request)", "(a voice|a choir) for (songs|tunes)")),
    "travel-agent": (
        0.0012,
        ("books (trips|flights|hotels) (abroad|at home)", "(plans|arranges) (trips|journeys) (abroad|at home)"),
    ),
    "cook": (
        0.001,
        ("(cooks|prepares) (meals|soups) (for guests|at home)", "(invents|collects) recipes for (meals|soups)"),
    ),
    "gardener": (
        0.0004,
        ("(waters|prunes) (plants|trees|roses)", "(grows|tends) (plants|trees|roses) in the garden"),
    ),
    "translator": (
        0.004,
        (
            "(translates|renders) (poems|novels) into (french|latin)",
            "(speaks|understands) (french|latin) like a native",
        ),
    ),
    "coach": (
        0.002,
        ("(trains|coaches) (runners|swimmers)", "gives (fitness|swimming) (lessons|advice) to (beginners|runners)"),
    ),
    "tailor": (0.0012, ("(sews|mends) (coats|dresses|shirts)", "(cuts|fits) (coats|dresses|shirts) to measure")),
}

EXTRAS = tuple(
    Profile(name, (wordings(*said),), Price(call=dollars), seconds=0.02) for name, (dollars, said) in _TRADES.items()
)
