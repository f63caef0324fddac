"""What all tables of `shikisha.toml` have in common: closed to unknown keys, and names that are names.

Invariant 8: a key is never written in the file; a table names the environment variable that holds it. Deliberately
absent: the tables themselves (`settings`, `serving`, and the adapters' own).
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

_NAME = re.compile(r"\w[\w.@:+/ -]*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LOGIN = re.compile(r"://[^/@]*:[^/@]*@")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a name is letters, digits and . @ : + / - _, beginning with a letter or digit")
    return name


def _checked_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of an environment variable, never the key itself")
    return name


def checked_url(url: str) -> str:
    """Return the URL; ValueError for one that holds a password."""
    if _LOGIN.search(url):
        raise ValueError(
            "a URL holds no password: put the whole URL into an environment variable and name it in url_env"
        )
    return url


Name = Annotated[str, AfterValidator(_checked_name)]
Variable = Annotated[str, AfterValidator(_checked_variable)]
Uncapped = BeforeValidator(lambda value: None if value == "none" else value)


class Table(BaseModel):
    """A table of the file: frozen, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
