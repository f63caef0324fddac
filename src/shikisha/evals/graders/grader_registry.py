"""The registry of checkers: which kinds there are, the module that builds each, and the one way to build one.

A module exposes `Settings` (pydantic, closed and frozen) and `build(settings, tools)`. Invariant: what is not in this
table cannot be built, and whatever is wrong with a checker's settings is a ConfigError that names the place they came
from and the field, before anything is graded. Deliberately absent: plug-in discovery (a user's own function is the kind
`entry_point`). A module is imported when its kind is used.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from pydantic import BaseModel

from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.evals.graders import Checker, GraderTools

CHECKERS: Mapping[str, str] = {
    "choice": "shikisha.evals.graders.choice",
    "code": "shikisha.evals.graders.code",
    "entry_point": "shikisha.evals.graders.entry_point",
    "json_schema": "shikisha.evals.graders.json_answer",
    "judge": "shikisha.evals.graders.judge",
    "math": "shikisha.evals.graders.math",
    "number": "shikisha.evals.graders.number",
    "regex": "shikisha.evals.graders.text_match",
    "text": "shikisha.evals.graders.text_match",
}


class CheckerModule(Protocol):
    """What a checker's module exposes."""

    Settings: type[BaseModel]

    def build(self, settings: BaseModel, tools: GraderTools) -> Checker:
        """Build the checker; ConfigError when it cannot be used."""
        ...


def build_checker(kind: str, spec: Mapping[str, object], tools: GraderTools, where: str) -> Checker:
    """Build a checker from what somebody wrote.

    UnknownName when there is no such kind; ConfigError says `where`, which field, and what was expected; MissingExtra
    when the kind needs a library that is not installed.
    """
    if kind not in CHECKERS:
        raise UnknownName(f"kind of checker in {where}", kind, CHECKERS)
    module = cast("CheckerModule", import_module(CHECKERS[kind]))
    settings = toml.validate_model(module.Settings, spec, where, kind)
    try:
        return module.build(settings, tools)
    except MissingExtra:
        raise  # it says what to install, which is the same everywhere
    except ConfigError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from None
