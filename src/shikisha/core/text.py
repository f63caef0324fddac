"""Making text that a model, a tool or a stranger wrote safe for a terminal, and finding the fenced blocks in it.

Invariants: what `clean_text` returns moves no cursor, sets no colour or title, reverses no reading order and writes to
no clipboard: of the control characters only newline and tab are left. Each of the others becomes a visible sign, so
nothing is hidden either. Fenced blocks are found in one pass over the lines, whatever they hold (a regular expression
for this can be made quadratic). Deliberately absent: removal of markup (our printing never interprets any), indented
code, ~~~ fences, and the language that an opening fence names.
"""

import json
import re
from collections.abc import Sequence

_LOOP, _LOOP_PIECES = 2_000, 32  # characters that repeat, and after how many pieces each look is
_MOST_UNIT = 200  # characters of what repeats; a right answer may repeat, as a table of zeros of 1,250 does

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, embeddings, overrides, isolates
    "\u2028\u2029\ufff9-\ufffb\ufeff"  # separators, annotations, byte order mark
    "\U000e0000-\U000e007f\ud800-\udfff]"  # invisible tags, halves of characters
)
_CONTROL_PICTURES = 0x2400  # Unicode has a picture for every C0 control, in their order


def clean_text(text: str) -> str:
    """Return the text with every control character replaced by a visible sign; newlines and tabs stay."""
    return _CONTROLS.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str, longest: int = 200) -> str:
    """Return the text cleaned, on one line, cut to `longest` characters."""
    line = " ".join(clean_text(text[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def to_safe_json(value: object) -> str:
    """Return the value as one line of JSON in which control characters are escaped too."""
    return _CONTROLS.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if ord(match[0]) > 0x7F else f"\\u{ord(match[0]):04x}"


_FENCE = "```"


def fenced_blocks(text: str) -> list[str]:
    """Return the fenced blocks' contents, in order; a block that is not closed is none."""
    blocks: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        rest = line.removeprefix(_FENCE)
        if inside is None:
            if rest != line and "`" not in rest:
                inside = []
        elif rest != line and not rest.strip():
            blocks.append("\n".join(inside))
            inside = None
        else:
            inside.append(line)
    return blocks


def with_confidence(text: str, confidence: float | None) -> str:
    """Return a response as the response model reads it: with the worker's own confidence in words, in tens of per cent.

    So a confidence that an endpoint gives is read as one that a worker writes, and dropped where it does not help.
    """
    return text if confidence is None else f"{text}\n{10 * round(10 * confidence)} % sure"


def repeated_end(pieces: Sequence[str]) -> str:
    """Return what an answer has repeated over its last 2,000 characters, ten times or more; looked at now and then."""
    if len(pieces) % _LOOP_PIECES or not pieces:
        return ""
    parts, held = list[str](), 0
    for piece in reversed(pieces[-_LOOP:]):
        parts.append(piece[-_LOOP:])
        held += len(piece)
        if held >= _LOOP:
            break
    tail = "".join(parts[::-1])[-_LOOP:]
    sizes = range(1, _MOST_UNIT + 1) if len(tail) == _LOOP else ()
    return next((tail[-size:] for size in sizes if tail.startswith(tail[size:])), "")
