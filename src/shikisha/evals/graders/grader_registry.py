"""The registry of graders: which kinds there are, where each is defined, and the one way to build one.

Invariants: what is neither in this table nor brought by an installed distribution (`core.kinds`) cannot be built.
Whatever is wrong with a grader's settings is a ConfigError that names the place they came from and the field, before
anything is graded. A module is imported when its kind is first used. The kind `entry_point` calls a user's function.
"""

from collections.abc import Mapping
from pathlib import Path

from shikisha.core import toml
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.kinds import Kind, Registry
from shikisha.evals.graders import Grader, GraderTools

GRADERS: Registry[Kind[Grader]] = Registry(
    "graders",
    "kind of grader",
    Kind,
    {
        "regex": f"{__package__}.text_match:REGEX",
        "text": f"{__package__}.text_match:TEXT",
        "json_schema": f"{__package__}.json_answer",
        **{kind: f"{__package__}.{kind}" for kind in ("choice", "entry_point", "judge", "math", "number")},
    },
    dict.fromkeys(("code", "repository"), "shikisha-code"),
)


def build_grader(kind: str, spec: Mapping[str, object], tools: GraderTools, where: str) -> Grader:
    """Build a grader from a user's settings.

    UnknownName when there is no such kind; ConfigError says `where`, which field, and what was expected; MissingExtra
    when the kind needs a library that is not installed.
    """
    with toml.error_location(where):
        found = GRADERS[kind]
    settings = toml.validate_model(found.settings, spec, where, kind)
    try:
        return found.make(settings, Path(), tools)
    except MissingExtra:
        # It says what to install, which is the same everywhere.
        raise
    except ConfigError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from None
