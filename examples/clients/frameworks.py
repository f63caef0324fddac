"""Agent frameworks against Shikisha, each in the way it asks for structure by itself: mostly a forced call of a tool.

    python frameworks.py              # all that are installed
    python frameworks.py instructor   # one of them

`SHIKISHA_URL` ends in /v1, `SHIKISHA_KEY` is a key. A worker needs `tools = true`, for JSON also `structured_output`.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

from pydantic import BaseModel

URL, KEY = os.environ["SHIKISHA_URL"], os.environ["SHIKISHA_KEY"]
QUESTION = os.environ.get("SHIKISHA_QUESTION", "Which city is the capital of France, and how many people live there?")
PEOPLE = {"Paris": 2_100_000, "London": 8_900_000}


class City(BaseModel):
    """A city and its people."""

    name: str
    people: int


def population(city: str) -> int:
    """Return how many people live in a city.

    Args:
        city: The city's name.
    """
    return PEOPLE.get(city, 0)


def ask_instructor() -> City:
    """Ask with a forced call of a tool named as the model."""
    import instructor

    client = instructor.from_provider("openai/shikisha", base_url=URL, api_key=KEY)
    return client.create(messages=[{"role": "user", "content": QUESTION}], response_model=City)


def ask_instructor_json() -> City:
    """Ask for `json_object`."""
    import instructor
    from openai import OpenAI

    client = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY), mode=instructor.Mode.JSON)
    return client.create(model="shikisha", messages=[{"role": "user", "content": QUESTION}], response_model=City)


def ask_pydantic_ai() -> City:
    """Ask with an output tool, one call of a tool in between."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("shikisha", provider=OpenAIProvider(base_url=URL, api_key=KEY))
    return Agent(model, output_type=City, tools=[population]).run_sync(QUESTION).output


def ask_llama_index() -> City:
    """Ask for a structured prediction, which is a forced call."""
    from llama_index.core.prompts import PromptTemplate
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model="shikisha", api_base=URL, api_key=KEY, is_chat_model=True, is_function_calling_model=True)
    return llm.structured_predict(City, PromptTemplate("{question}"), question=QUESTION)


def ask_smolagents() -> City:
    """Ask an agent that must call a tool in every step."""
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel("shikisha", api_base=URL, api_key=KEY)
    agent = ToolCallingAgent(tools=[tool(population)], model=model, max_steps=4, verbosity_level=0)
    return City.model_validate_json(str(agent.run(QUESTION)))


def ask_agents_sdk(*, chat: bool) -> City:
    """Ask OpenAI's Agents SDK, with a call that is required first; over responses, or over chat completions."""
    from openai import AsyncOpenAI

    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)
    over = OpenAIChatCompletionsModel if chat else OpenAIResponsesModel
    agent = Agent(
        name="geographer",
        instructions="Answer with JSON.",
        model=over("shikisha", AsyncOpenAI(base_url=URL, api_key=KEY)),
        model_settings=ModelSettings(tool_choice="population" if chat else "required", truncation="auto", store=True),
        tools=[function_tool(population)],
        output_type=City,
    )
    return asyncio.run(Runner.run(agent, QUESTION)).final_output


def ask_anthropic() -> City:
    """Ask over `/v1/messages`, streamed, with a forced tool; its tokens are counted before."""
    from anthropic import Anthropic

    client = Anthropic(base_url=URL.removesuffix("/v1"), api_key=KEY)
    tool = {"name": "city", "description": "Takes a city.", "input_schema": City.model_json_schema()}
    asked = {"model": "shikisha", "messages": [{"role": "user", "content": QUESTION}], "tools": [tool]}
    if client.messages.count_tokens(**asked).input_tokens < 1:
        raise ValueError("the question has no tokens")
    with client.messages.stream(**asked, max_tokens=256, tool_choice={"type": "tool", "name": "city"}) as stream:
        said = stream.get_final_message()
    return City.model_validate(next(block.input for block in said.content if block.type == "tool_use"))


def ask_anthropic_runner() -> City:
    """Ask with the SDK's tool runner, which would keep the conversation as a thread of the server's."""
    from anthropic import Anthropic, beta_tool

    @beta_tool(name="population")
    def look_up(city: str) -> str:
        """Return how many people live in a city."""
        return str(population(city))

    client = Anthropic(base_url=URL.removesuffix("/v1"), api_key=KEY)
    asked = [{"role": "user", "content": QUESTION}]
    runner = client.beta.messages.tool_runner(model="shikisha", max_tokens=256, tools=[look_up], messages=asked)
    return City.model_validate_json(runner.until_done().content[0].text)


FRAMEWORKS: Mapping[str, Callable[[], City]] = {
    "instructor": ask_instructor,
    "instructor-json": ask_instructor_json,
    "pydantic-ai": ask_pydantic_ai,
    "llama-index": ask_llama_index,
    "smolagents": ask_smolagents,
    "agents-sdk": partial(ask_agents_sdk, chat=False),
    "agents-sdk-chat": partial(ask_agents_sdk, chat=True),
    "anthropic": ask_anthropic,
    "anthropic-runner": ask_anthropic_runner,
}


def main() -> None:
    """Ask each of the frameworks, and print what it answers."""
    for name in sys.argv[1:] or FRAMEWORKS:
        try:
            print(f"{name}: {FRAMEWORKS[name]().model_dump_json()}", flush=True)
        except ImportError as error:
            print(f"{name}: not installed ({error.name})", flush=True)


if __name__ == "__main__":
    main()
