"""What cards of the office's workers say, by kind of work and author. Texts only: nothing here tells what is true."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from shikisha_train.office.questions import AuthorSplit


@cache
def card_texts() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return what cards say, by kind of work (or "generalist", "vague") and author."""
    table = tomllib.loads(files("shikisha_train.office").joinpath("cards.toml").read_text("utf-8"))
    return {name: {author: tuple(texts) for author, texts in by.items()} for name, by in table["cards"].items()}


@cache
def card_authors(split: AuthorSplit) -> tuple[str, ...]:
    """Return the authors of the split's cards."""
    table = tomllib.loads(files("shikisha_train.office").joinpath("cards.toml").read_text("utf-8"))
    return tuple(table["authors"][split])
