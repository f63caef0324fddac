"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT

from shikisha.config.container import load_config

README = (ROOT / "README.md").read_text()


def block(language: str, heading: str = "#") -> str:
    """The README's first fenced block of this language under a heading."""
    found = re.search(rf"^{heading}.*?```{language}\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert found, f"no {language} block in the README"
    return found[1]


def test_the_ten_lines_of_python_print_what_they_say(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block("python", "## Ten lines of Python"))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603 - our own README
    assert done.stdout == "HELLO WORLD 0.0\n"


async def test_the_configuration_makes_a_pool_and_a_conductor(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(block("toml"))
    composition = load_config(file, {"OPENAI_API_KEY": "sk-not-a-real-one"})
    pool = composition.pool()
    assert pool.names == ("cheap", "expensive", "calculator")
    assert composition.conductor("", pool).name == "lm:planner"
    assert (composition.caps.dollars, composition.caps.seconds) == (0.25, 120)
    await composition.aclose()
