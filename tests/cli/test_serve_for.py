"""What `serve --for` tells a coding agent's shell."""

from shikisha.cli.serve import AgentClient, _agent_variables, _codex_command

URL = "http://127.0.0.1:8100"


def test_the_variables_are_those_that_the_agents_are_tested_with() -> None:
    claude = _agent_variables(AgentClient.CLAUDE_CODE, URL, "k")
    assert (claude["ANTHROPIC_BASE_URL"], claude["ANTHROPIC_AUTH_TOKEN"]) == (URL, "k")
    assert claude["ANTHROPIC_MODEL"] == "shikisha"
    assert _agent_variables(AgentClient.CODEX, URL, "k") == {"SHIKISHA_KEY": "k"}
    command = _codex_command(URL)
    assert f"-c model_providers.shikisha.base_url={URL}/v1" in command
    assert "-c model_providers.shikisha.wire_api=responses" in command
