"""How subtasks are put: what opens a check, what a worker may be told besides its work, what earlier rounds brought.

Conductors write subtasks with these words; who reads a journal tells by them which steps did the same work. Invariant:
`subtask_core` of what a conductor wrote with them is the work's own sentences, and any other text's is that text.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

CHECK_OPENING = "Check this result, and correct it if it is wrong:"
# What a worker may be told besides the work itself, by name. Workers differ in what helps them; outcomes tell it.
WORDINGS: Mapping[str, str] = MappingProxyType(
    {
        "format": "Reply with the result only.",
        "unit": "Mind the units: whole numbers, dates as YYYY-MM-DD.",
        "example": "For example: 1234.",
        "check": "Go over your result twice.",
    }
)
_MOST_READ = 20_000  # characters; a longer subtask is its own core
_KNOWN = re.compile(r'Known: "[^"]{1,1000}" gave [^"\n]{1,200}?\.(?=\s|$)')


def write_known(sentence: str, value: str) -> str:
    """Return how a later round's subtask states what an earlier round brought."""
    return f'Known: "{sentence}" gave {value}.'


def subtask_core(text: str) -> str:
    """Return a subtask without what opens a check, states what is known, and tells the worker how."""
    if len(text) > _MOST_READ:
        return text
    core = text.removeprefix(CHECK_OPENING).strip()
    while (stated := _KNOWN.match(core)) is not None:
        core = core[stated.end() :].strip()
    told = True
    while told:
        told = False
        for words in WORDINGS.values():
            if core.endswith(words):
                core, told = core.removesuffix(words).strip(), True
    return core or text
