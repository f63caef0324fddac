"""JSON for the hot paths, by pydantic's own core, which takes a quarter of the standard library's time.

Invariant: what comes out is what `json` gives back for the same text, and what `json` refuses to write is refused.
pydantic's core knows neither half a surrogate pair nor what is no JSON; there the standard library decides, which keeps
the one and refuses the other. The bytes may differ from `json`'s in how a float is spelled.
"""

import json

from pydantic_core import from_json, to_json

_slow_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode_json(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8; ValueError for numbers that JSON lacks."""
    try:
        written = to_json(value)
    except ValueError:  # half a surrogate pair
        return _slow_text(value).encode()
    return _slow_text(value).encode() if _may_be_no_json(written) else written


def encode_ascii_json(value: object) -> str:
    """Return a value as compact JSON that is ASCII; ValueError for numbers that JSON lacks."""
    try:
        written = to_json(value)
    except ValueError:
        return _slow_text(value)
    return written.decode() if written.isascii() and not _may_be_no_json(written) else _slow_text(value)


def decode_json(text: str | bytes) -> object:
    """Return the value of a JSON text; ValueError where it is none."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _may_be_no_json(written: bytes) -> bool:
    """Whether it may hold a number that JSON lacks, or just the word for one."""
    return b"NaN" in written or b"Infinity" in written
