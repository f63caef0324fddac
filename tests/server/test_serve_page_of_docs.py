"""The pages on serving have every header, and TOML that can be loaded."""

import re
import tomllib

from paths import ROOT

from shikisha.config.autonomy_settings import AutonomyTable
from shikisha.server.http import request

PAGE = (ROOT / "docs" / "how-to" / "serve.md").read_text()
RULES = (ROOT / "docs" / "how-to" / "govern.md").read_text()


def test_the_page_has_every_header() -> None:
    assert set(re.findall(r"`(X-Shikisha-[A-Za-z]+)", request.__doc__ or "")) <= set(
        re.findall(r"`(X-Shikisha-[A-Za-z]+)", PAGE)
    )


def test_the_page_s_classes_of_autonomy_are_right() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", RULES, re.DOTALL)
    table = AutonomyTable.model_validate(tomllib.loads(block)["autonomy"])
    assert [each.mode for each in table.classes] == ["review", "escalate", "autonomous"]


def test_the_deployed_example_is_a_configuration() -> None:
    text = (ROOT / "deploy" / "shikisha.example.toml").read_text()
    assert tomllib.loads(text)["server"]["admin_key_env"] == "SHIKISHA_ADMIN_KEY"
