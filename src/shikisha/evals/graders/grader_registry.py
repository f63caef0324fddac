"""The registry of graders: which kinds there are, where each is defined, and the one way to build one.

Invariants: what is not in this table cannot be built. Whatever is wrong with a grader's settings is a ConfigError that
names the place they came from and the field, before anything is graded. A module is imported when its kind is first
used. Deliberately absent: plug-in discovery; the kind `entry_point` calls a user's own function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from pydantic import BaseModel

from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra, UnknownName
from shikisha.evals.graders import Grader, GraderTools


@dataclass(frozen=True, slots=True)
class GraderKind:
    """Where a kind of grader is defined: its module here, its settings class (pydantic) and its build function."""

    module: str
    settings: str
    build: str


GRADERS: Mapping[str, GraderKind] = {
    "choice": GraderKind("choice", "ChoiceSettings", "build_choice_grader"),
    "code": GraderKind("code", "CodeSettings", "build_code_grader"),
    "entry_point": GraderKind("entry_point", "EntryPointSettings", "build_entry_point_grader"),
    "json_schema": GraderKind("json_answer", "JsonSchemaSettings", "build_json_schema_grader"),
    "judge": GraderKind("judge", "JudgeSettings", "build_judge_grader"),
    "math": GraderKind("math", "MathSettings", "build_math_grader"),
    "number": GraderKind("number", "NumberSettings", "build_number_grader"),
    "regex": GraderKind("text_match", "RegexSettings", "build_regex_grader"),
    "repository": GraderKind("repository", "RepositorySettings", "build_repository_grader"),
    "text": GraderKind("text_match", "TextSettings", "build_text_grader"),
}


def build_grader(kind: str, spec: Mapping[str, object], tools: GraderTools, where: str) -> Grader:
    """Build a grader from a user's settings.

    UnknownName when there is no such kind; ConfigError says `where`, which field, and what was expected; MissingExtra
    when the kind needs a library that is not installed.
    """
    if kind not in GRADERS:
        raise UnknownName(f"kind of grader in {where}", kind, GRADERS)
    entry = GRADERS[kind]
    module = import_module(f"{__package__}.{entry.module}")
    schema: type[BaseModel] = getattr(module, entry.settings)
    build: Callable[[BaseModel, GraderTools], Grader] = getattr(module, entry.build)
    settings = toml.validate_model(schema, spec, where, kind)
    try:
        return build(settings, tools)
    except MissingExtra:
        # It says what to install, which is the same everywhere.
        raise
    except ConfigError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from None
