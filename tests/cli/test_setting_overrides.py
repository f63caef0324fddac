"""`--set`: what is put in the place of a file's settings, and what is none."""

import pytest

from shikisha.core.errors import ConfigError
from shikisha_train.train_session import override_settings


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["grpo.group=4"], {"seed": 1, "grpo": {"group": 4, "steps": 9}}),
        (["grpo.rate = 1e-3", "grpo.rate=2"], {"seed": 1, "grpo": {"group": 64, "steps": 9, "rate": 2}}),
        (['trl.vllm=""', "seed=2"], {"seed": 2, "grpo": {"group": 64, "steps": 9}, "trl": {"vllm": ""}}),
        (["tasks.pool=['a', 'b=c']"], {"seed": 1, "grpo": {"group": 64, "steps": 9}, "tasks": {"pool": ["a", "b=c"]}}),
    ],
)
def test_values_are_put_in_the_place_of_others(given: list[str], found: dict[str, object]) -> None:
    tables = {"seed": 1, "grpo": {"group": 64, "steps": 9}}
    assert override_settings(tables, given) == found
    assert tables == {"seed": 1, "grpo": {"group": 64, "steps": 9}}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("grpo.group", "--set grpo.group: expected KEY=VALUE, as in grpo.group=4"),
        ("=4", "expected KEY=VALUE"),
        ("grpo..group=4", "expected KEY=VALUE"),
        ("trl.vllm=server", "expected a TOML value; a text needs quotes: 'trl.vllm=\"server\"'"),
        ("a=1\nb=2", "expected a TOML value"),
        ("a=", "expected a TOML value"),
        ("seed.x=1", "--set seed.x=1: seed is a value, not a table"),
    ],
)
def test_what_is_no_setting_is_refused(given: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override_settings({"seed": 1}, [given])
    assert told in str(caught.value)
