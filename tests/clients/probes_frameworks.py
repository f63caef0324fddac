"""Probes of clients that share an environment: Agents SDK, instructor, LlamaIndex, smolagents, Anthropic, MCP."""

import json

from probing import KEY, QUESTION, URL, expect, run_probes
from pydantic import BaseModel


class City(BaseModel):
    """A city and its people."""

    name: str
    people: int


def population(city: str) -> int:
    """Return how many people live in a city.

    Args:
        city: The city's name.
    """
    return 2_100_000


def sdk_agent(*, chat: bool, **options):
    """Return an agent of OpenAI's SDK."""
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    over = OpenAIChatCompletionsModel if chat else OpenAIResponsesModel
    model = over("shikisha", AsyncOpenAI(base_url=URL, api_key=KEY))
    return Agent(name="geographer", model=model, tools=[function_tool(population)], **options)


async def agents_sdk(*, chat: bool):
    from agents import Runner

    expect((await Runner.run(sdk_agent(chat=chat, output_type=City), QUESTION)).final_output.name, "Paris")


async def agents_sdk_stream():
    from agents import Runner

    run = Runner.run_streamed(sdk_agent(chat=False), QUESTION)
    kinds = [event.type async for event in run.stream_events()]
    expect("raw_response_event" in kinds)
    expect("2100000" in run.final_output)


async def agents_sdk_handoff():
    from agents import Runner

    expert = sdk_agent(chat=True)
    expert.name = "expert"
    expert.handoff_description = "Knows cities."
    first = sdk_agent(chat=True, handoffs=[expert])
    first.tools = []
    run = await Runner.run(first, QUESTION)
    expect(run.last_agent.name, "expert")
    expect("Paris" in run.final_output)


def instructor_client(**options):
    """Return instructor's client."""
    import instructor
    from openai import OpenAI

    return instructor.from_openai(OpenAI(base_url=URL, api_key=KEY), **options)


def instructor_tools():
    asked = [{"role": "user", "content": QUESTION}]
    expect(instructor_client().create(model="shikisha", messages=asked, response_model=City).name, "Paris")


def instructor_json():
    import instructor

    asked = [{"role": "user", "content": QUESTION}]
    client = instructor_client(mode=instructor.Mode.JSON)
    expect(client.create(model="shikisha", messages=asked, response_model=City).name, "Paris")


def llama(**options):
    """Return LlamaIndex's model."""
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model="shikisha", api_base=URL, api_key=KEY, is_chat_model=True, is_function_calling_model=True, **options
    )


def llama_chat():
    from llama_index.core.llms import ChatMessage

    expect("Paris" in str(llama().chat([ChatMessage(role="user", content=QUESTION)])))


def llama_stream():
    from llama_index.core.llms import ChatMessage

    pieces = [each.delta or "" for each in llama().stream_chat([ChatMessage(role="user", content=QUESTION)])]
    expect("Paris" in "".join(pieces))


def llama_structured():
    from llama_index.core.prompts import PromptTemplate

    expect(llama().structured_predict(City, PromptTemplate("{question}"), question=QUESTION).name, "Paris")


async def llama_agent():
    from llama_index.core.agent.workflow import FunctionAgent

    said = await FunctionAgent(tools=[population], llm=llama()).run(QUESTION)
    expect("2100000" in str(said))


def smol_model():
    """Return smolagents' model."""
    from smolagents import OpenAIServerModel

    return OpenAIServerModel("shikisha", api_base=URL, api_key=KEY)


def smolagents_tools():
    from smolagents import ToolCallingAgent, tool

    agent = ToolCallingAgent(tools=[tool(population)], model=smol_model(), max_steps=4, verbosity_level=0)
    expect("Paris" in str(agent.run(QUESTION)))


def smolagents_code():
    from smolagents import CodeAgent

    expect("Paris" in str(CodeAgent(tools=[], model=smol_model(), max_steps=3, verbosity_level=0).run(QUESTION)))


def anthropic():
    """Return Anthropic's client."""
    from anthropic import Anthropic

    return Anthropic(base_url=URL.removesuffix("/v1"), api_key=KEY, max_retries=0)


ASKED = {"model": "shikisha", "messages": [{"role": "user", "content": QUESTION}]}


def anthropic_messages():
    said = anthropic().messages.create(**ASKED, max_tokens=256)
    expect("Paris" in said.content[0].text)
    expect(anthropic().messages.count_tokens(**ASKED).input_tokens > 0)


def anthropic_stream():
    with anthropic().messages.stream(**ASKED, max_tokens=256) as stream:
        expect("Paris" in "".join(stream.text_stream))


def anthropic_tool():
    tool = {"name": "city", "description": "Takes a city.", "input_schema": City.model_json_schema()}
    said = anthropic().messages.create(
        **ASKED, max_tokens=256, tools=[tool], tool_choice={"type": "tool", "name": "city"}
    )
    expect(next(block.input for block in said.content if block.type == "tool_use")["name"], "Paris")


async def mcp_http():
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {KEY}"}
    address = f"{URL.removesuffix('/v1')}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60.0) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        expect("run" in [tool.name for tool in (await client.list_tools()).tools])
        told = await client.call_tool("run", {"prompt": QUESTION})
    expect("Paris" in json.dumps(told.model_dump(mode="json")))


run_probes(
    {
        "Agents SDK: responses": lambda: agents_sdk(chat=False),
        "Agents SDK: chat": lambda: agents_sdk(chat=True),
        "Agents SDK: streamed": agents_sdk_stream,
        "Agents SDK: handoff": agents_sdk_handoff,
        "instructor: tools": instructor_tools,
        "instructor: json": instructor_json,
        "LlamaIndex: chat": llama_chat,
        "LlamaIndex: stream": llama_stream,
        "LlamaIndex: structured_predict": llama_structured,
        "LlamaIndex: FunctionAgent": llama_agent,
        "smolagents: ToolCallingAgent": smolagents_tools,
        "smolagents: CodeAgent": smolagents_code,
        "Anthropic SDK: messages, count_tokens": anthropic_messages,
        "Anthropic SDK: stream": anthropic_stream,
        "Anthropic SDK: named tool": anthropic_tool,
        "MCP SDK: run over HTTP": mcp_http,
    }
)
