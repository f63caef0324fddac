"""Which split an item of a set is in: as its files or rows say, else by content hash; and that splits do not overlap.

A file's name says a split when one of its words does (`train.jsonl`, `test-00000-of-00001.parquet`). Names that all
say the same split, or none, divide nothing: then the content hash does. Where files give a train split and no dev
split, dev is taken out of train by content hash. Invariants: what a row says of its own split is kept; the same content
is never in two splits: a user's own set is refused with both places named, and of a published set, which nobody can
mend (MMLU's dev and test share five questions), the copy that is nearer to training is dropped and named. Deliberately
absent: near-duplicates (`contamination`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shikisha.errors import ConfigError
from shikisha.taskset import Item, Split, content_key, place, split_of

WORDS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "dev": Split.DEV,
    "val": Split.DEV,
    "valid": Split.DEV,
    "validation": Split.DEV,
    "test": Split.TEST,
    "heldout": Split.TEST,
}
_ORDER = (Split.TRAIN, Split.DEV, Split.TEST)
_NAMED = 20  # of what was dropped
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Placed:
    """An item, where it came from (for errors), and the split that its file's name says."""

    item: Item
    where: str
    named: Split | None = None


def split_named(name: str) -> Split | None:
    """Return the split that a file's name says; None where it says none, or two."""
    said = {WORDS[word] for word in _WORD.findall(name.casefold()) if word in WORDS}
    return said.pop() if len(said) == 1 else None


def divided(
    found: Sequence[Placed], shares: Mapping[Split, float], *, published: bool = False
) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items, each with its split settled, and notes on what was dropped.

    ConfigError when two splits share content and the set is not a published one.
    """
    named = {one.named for one in found}
    by_name = len(named - {None}) > 1
    dev = 0.0
    if by_name and Split.DEV not in named:
        dev = shares.get(Split.DEV, 0.0) / ((shares.get(Split.DEV, 0.0) + shares.get(Split.TRAIN, 0.0)) or 1.0)
    settled = [replace(one, item=_settled(one, by_name, dev, shares)) for one in found]
    notes: tuple[str, ...] = ()
    if published:
        settled, notes = _unshared(settled)
    refuse_shared(settled)
    return tuple(one.item for one in settled), notes


def _unshared(found: Sequence[Placed]) -> tuple[list[Placed], tuple[str, ...]]:
    """Drop what stands in a split that is further from training too; the notes name what was dropped."""
    kept: dict[str, Placed] = {}
    for one in found:
        known = kept.setdefault(content_key(one.item.task), one)
        if _ORDER.index(one.item.split) > _ORDER.index(known.item.split):
            kept[content_key(one.item.task)] = one
    left, dropped = [], []
    for one in found:
        best = kept[content_key(one.item.task)].item
        if best.split is one.item.split:
            left.append(one)
        else:
            dropped.append(f"{one.item.task.id} ({one.item.split}) is {best.task.id} ({best.split})")
    if not dropped:
        return left, ()
    more = f", and {len(dropped) - _NAMED} more" if len(dropped) > _NAMED else ""
    what = (
        "1 task was dropped, as it stands" if len(dropped) == 1 else f"{len(dropped)} tasks were dropped, as they stand"
    )
    return left, (f"{what} in a split further from training too: {'; '.join(dropped[:_NAMED])}{more}.",)


def refuse_shared(found: Iterable[Placed]) -> None:
    """Refuse items of two splits whose content is the same but for case and white space; names both places."""
    seen: dict[str, Placed] = {}
    for one in found:
        other = seen.setdefault(content_key(one.item.task), one)
        if other.item.split is not one.item.split:
            first, second = f"{other.where} ({other.item.split})", f"{one.where} ({one.item.split})"
            raise ConfigError(f"splits overlap: {first} and {second} hold the same task")


def _settled(one: Placed, by_name: bool, dev: float, shares: Mapping[Split, float]) -> Item:
    if one.item.given is not None:
        return one.item
    if not by_name or one.named is None:
        given = split_of(one.item.task, shares)
    else:
        out_of_train = one.named is Split.TRAIN and place(one.item.task, "split") < dev
        given = Split.DEV if out_of_train else one.named
    return replace(one.item, given=given)
