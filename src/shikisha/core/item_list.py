"""The list that a map step goes through: its items from the text of a step, and the answers to them as a list again.

Invariants: an item is what a step brought, whole, as one entry of one JSON list; nothing is split, guessed, repaired or
left out, and the number of items and of characters is bounded. An answer is in the new list as a string, so what a
worker writes in it cannot pass for another item or another answer; an item without an answer is null, which no worker
can write. So a map step may go through the list of another one. Deliberately absent: lists in prose or in a fence.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from shikisha.core.errors import describe_error
from shikisha.core.messages import Json, dump_json
from shikisha.core.plan import MOST_ITEMS
from shikisha.core.task import storage_problem

MOST_CHARACTERS = 1_000_000  # of a list of items, and of the list of the answers to them
_SHOWN = 60


def list_schema(most: int) -> Mapping[str, Json]:
    """Return the JSON Schema that a step's answer must fit for a map step to go through it."""
    return {"type": "array", "maxItems": min(most, MOST_ITEMS)}


def parse_items(text: str) -> tuple[str | None, ...]:
    """Return the items of a list as texts; None for what is nothing to work on. ValueError says why it is no list."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the list has {len(text):,} characters: at most {MOST_CHARACTERS:,} are read")
    try:
        items = json.loads(text, parse_constant=_reject_constant)
        texts = [_item_text(item) for item in items] if isinstance(items, list) else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON list, found {text[:_SHOWN]!r} ({describe_error(error)})") from None
    if texts is None:
        raise ValueError(f"expected a JSON list, found {text[:_SHOWN]!r}")
    for place, item in enumerate(texts):
        if item is not None and (problem := storage_problem(item)):
            raise ValueError(f"item {place} of the list holds {problem}")
    return tuple(texts)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _item_text(item: Json) -> str | None:
    if item is None or (isinstance(item, str) and not item.strip()):
        return None
    return item if isinstance(item, str) else dump_json(item)


def join_answers(answers: Sequence[str | None]) -> str:
    """Return the answers to a list's items as a JSON list in their order; null for an item without one."""
    return dump_json(list(answers))
