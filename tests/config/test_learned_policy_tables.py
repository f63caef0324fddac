"""[conductors.NAME] kind = "policy": a learned policy by name, its dial where the file says."""

from pathlib import Path

import pytest
from panels import panel

from shikisha.conductors.learned_policy import PolicyConductor
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.policy_file import save_policy

WORKERS = "\n".join(f'[workers.{name}]\nkind = "scripted"\nanswers = ["A"]' for name in ("cheap", "middle", "dear"))


def written(folder: Path, options: str) -> Path:
    save_policy(select_policy(panel(tasks=40)).policy, folder / "our.policy")
    file = folder / "shikisha.toml"
    file.write_text(f'conductor = "learned"\n{WORKERS}\n[conductors.learned]\nkind = "policy"\n{options}\n')
    return file


@pytest.mark.parametrize("option", ["", "quality = 0.9", "max_cost = 0.8", "price = 0.5", 'rung = "table"'])
def test_a_policy_conducts_by_its_name_in_the_file(option: str, tmp_path: Path) -> None:
    composition = load_config(written(tmp_path, f'file = "our.policy"\n{option}'))
    conductor = composition.conductor("", composition.pool(()))
    assert isinstance(conductor, PolicyConductor)
    assert conductor.name == "learned"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('file = "none.policy"', "cannot be read"),
        ('file = "our.policy"\nquality = -1', "conductors.learned"),
        ('file = "our.policy"\nmax_cost = 0.1\nquality = 1.0', "at a time"),
        ('file = "our.policy"\nrung = "top"', "unknown rung 'top'"),
        ("", "file"),
    ],
)
def test_what_cannot_conduct_is_refused(options: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(written(tmp_path, options)).conductor("")
