"""What models of known providers cost, and how much they read: a dated catalogue that `scripts/prices` writes.

Invariants: a price carries the day on which it was looked up, into the configuration too, so that `doctor` can say
which are old; a model that the catalogue does not name has no price, never that of a similar one. The file is read when
the first price is asked for. Deliberately absent: looking anything up over the network.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from shikisha.config.providers import PROVIDERS

MAX_PRICE_DAYS = 30  # after which `doctor` says that a price is old


@cache
def _catalogue() -> Mapping[str, object]:
    text = resources.files("shikisha.config").joinpath("prices.json").read_text(encoding="utf-8")
    loaded: Mapping[str, object] = json.loads(text)
    return loaded


def catalogue_date() -> date:
    """Return the day on which the catalogue was written."""
    return date.fromisoformat(str(_catalogue()["as_of"]))


def catalogue_source() -> str:
    """Return what the catalogue was made from."""
    return str(_catalogue()["source"])


def known_price(provider: str, model: str) -> dict[str, object]:
    """Return `price` and `context_tokens` of a model, as in [workers.NAME]; empty where it is not known."""
    named = PROVIDERS[provider].prices if provider in PROVIDERS else ""
    table = _catalogue().get(named or provider)
    row = _find_row(table, model.lower()) if isinstance(table, Sequence) and not isinstance(table, str) else None
    if row is None and isinstance(table, Sequence):  # google/gemini-... on Vertex AI, and Bedrock's two endpoints
        other = f"{model}-1:0" if provider == "bedrock" else model.rpartition("/")[2]
        row = _find_row(table, other.lower())
    if row is None:
        return {}
    dollars, output, cached, window, *_ = row
    price: dict[str, object] = {"input": dollars, "output": output}
    price |= {} if cached is None else {"cached": cached}
    found: dict[str, object] = {"price": price | {"as_of": catalogue_date()}}
    return found if window is None else found | {"context_tokens": window}


def _find_row(table: Sequence[Sequence[object]], model: str) -> Sequence[object] | None:
    """Return the row that names the model; an exact name before a pattern, a longer pattern before a shorter one."""
    fitting = [
        (name == model, len(str(name)), row)
        for row in table
        for name in row[4:]
        if name == model or ("*" in str(name) and fnmatchcase(model, str(name)))
    ]
    return max(fitting, key=lambda found: found[:2])[2] if fitting else None
