"""Example clients leave what belongs to their user alone."""

import os
import subprocess
from pathlib import Path

from paths import ROOT

EXAMPLES = ROOT / "examples" / "clients"
LLM = """#!/bin/sh
folder=${LLM_USER_PATH:-$HOME/.config/io.datasette.llm}
case $1 in
logs) echo "$folder/logs.db" ;;
*) cat "$folder/extra-openai-models.yaml" ;;
esac
"""  # where simonw/llm keeps its models, as its documentation has it


def test_the_example_for_llm_overwrites_no_models(tmp_path: Path) -> None:
    own = tmp_path / ".config" / "io.datasette.llm" / "extra-openai-models.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("- model_id: mine\n")
    program = tmp_path / "bin" / "llm"
    program.parent.mkdir()
    program.write_text(LLM)
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "SHIKISHA_URL": "http://127.0.0.1:1/v1",
        "SHIKISHA_KEY": "sk-none",
    }
    done = subprocess.run(  # noqa: S603 - our own example
        [str(EXAMPLES / "llm.sh")], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "http://127.0.0.1:1/v1" in done.stdout
    assert own.read_text() == "- model_id: mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config", "bin"]  # what it made is gone again
