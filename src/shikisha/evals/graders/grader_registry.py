"""The registry of checkers: which kinds there are, where each is defined, and the one way to build one.

Invariants: what is not in this table cannot be built. Whatever is wrong with a checker's settings is a ConfigError that
names the place they came from and the field, before anything is graded. A module is imported when its kind is first
used. Deliberately absent: plug-in discovery; the kind `entry_point` calls a user's own function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from pydantic import BaseModel

from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.evals.graders import Checker, GraderTools


@dataclass(frozen=True, slots=True)
class CheckerKind:
    """Where a kind of checker is defined: its module here, its settings class (pydantic) and its build function."""

    module: str
    settings: str
    build: str


CHECKERS: Mapping[str, CheckerKind] = {
    "choice": CheckerKind("choice", "ChoiceSettings", "build_choice_checker"),
    "code": CheckerKind("code", "CodeSettings", "build_code_checker"),
    "entry_point": CheckerKind("entry_point", "EntryPointSettings", "build_entry_point_checker"),
    "json_schema": CheckerKind("json_answer", "JsonSchemaSettings", "build_json_schema_checker"),
    "judge": CheckerKind("judge", "JudgeSettings", "build_judge_checker"),
    "math": CheckerKind("math", "MathSettings", "build_math_checker"),
    "number": CheckerKind("number", "NumberSettings", "build_number_checker"),
    "regex": CheckerKind("text_match", "RegexSettings", "build_regex_checker"),
    "text": CheckerKind("text_match", "TextSettings", "build_text_checker"),
}


def build_checker(kind: str, spec: Mapping[str, object], tools: GraderTools, where: str) -> Checker:
    """Build a checker from a user's settings.

    UnknownName when there is no such kind; ConfigError says `where`, which field, and what was expected; MissingExtra
    when the kind needs a library that is not installed.
    """
    if kind not in CHECKERS:
        raise UnknownName(f"kind of checker in {where}", kind, CHECKERS)
    entry = CHECKERS[kind]
    module = import_module(f"{__package__}.{entry.module}")
    schema: type[BaseModel] = getattr(module, entry.settings)
    build: Callable[[BaseModel, GraderTools], Checker] = getattr(module, entry.build)
    settings = toml.validate_model(schema, spec, where, kind)
    try:
        return build(settings, tools)
    except MissingExtra:
        # It says what to install, which is the same everywhere.
        raise
    except ConfigError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from None
