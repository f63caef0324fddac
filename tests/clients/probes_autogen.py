"""Probes of AutoGen."""

from probing import KEY, QUESTION, URL, expect, run_probes

INFO = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True}


def model():
    """Return AutoGen's model."""
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    return OpenAIChatCompletionClient(model="shikisha", base_url=URL, api_key=KEY, model_info=INFO)


async def population(city: str) -> str:
    """Return how many people live in a city."""
    return "2100000"


async def assistant():
    from autogen_agentchat.agents import AssistantAgent

    said = await AssistantAgent("geographer", model_client=model()).run(task=QUESTION)
    expect("Paris" in said.messages[-1].content)


async def assistant_with_tool():
    from autogen_agentchat.agents import AssistantAgent

    agent = AssistantAgent("geographer", model_client=model(), tools=[population], reflect_on_tool_use=True)
    expect("2100000" in (await agent.run(task=QUESTION)).messages[-1].content)


async def stream():
    from autogen_core.models import CreateResult, UserMessage

    parts = [each async for each in model().create_stream([UserMessage(content=QUESTION, source="user")])]
    expect(isinstance(parts[-1], CreateResult))
    expect("Paris" in parts[-1].content)


run_probes(
    {"AutoGen: AssistantAgent": assistant, "AutoGen: with a tool": assistant_with_tool, "AutoGen: stream": stream}
)
