"""Where a model to begin with is."""

from pathlib import Path

import pytest

from shikisha.core.errors import ConfigError
from shikisha_train.model_loader import resolve_start


def test_a_model_stands_where_the_training_file_says(tmp_path: Path) -> None:
    (tmp_path / "recipes" / "warm").mkdir(parents=True)
    home = tmp_path / "recipes"
    assert resolve_start("warm", home) == str(home / "warm")
    assert Path(resolve_start("../recipes/warm", home)).samefile(home / "warm")
    assert resolve_start(str(home / "warm"), Path("elsewhere")) == str(home / "warm")
    assert resolve_start("owner/name", home) == "owner/name"
    for gone in ("cold", "./cold", "../warm", "a/b/c", str(tmp_path / "cold")):
        with pytest.raises(
            ConfigError, match=r"model\.start: .*: expected a folder with a model, or a name on the hub"
        ):
            resolve_start(gone, home)
