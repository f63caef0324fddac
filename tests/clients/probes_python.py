"""Probes of Python clients that share an environment: the openai SDK, LangChain, LiteLLM, pydantic-ai."""

import json

from probing import KEY, QUESTION, URL, expect, run_probes
from pydantic import BaseModel

ASKED = [{"role": "user", "content": QUESTION}]
TOOL = {
    "type": "function",
    "function": {
        "name": "population",
        "description": "How many people live in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FLAT = {"type": "function", "name": "population", **{k: v for k, v in TOOL["function"].items() if k != "name"}}


class City(BaseModel):
    """A city and its people."""

    name: str
    people: int


def openai(key=KEY):
    """Return the SDK's client."""
    from openai import OpenAI

    return OpenAI(base_url=URL, api_key=key, max_retries=0)


def population(city: str) -> int:
    """Return how many people live in a city."""
    return 2_100_000


def models():
    expect("shikisha" in [each.id for each in openai().models.list()])


def chat():
    said = openai().chat.completions.create(model="shikisha", messages=ASKED)
    expect("Paris" in said.choices[0].message.content)
    expect(said.usage.total_tokens > 0)


def chat_stream():
    stream = openai().chat.completions.create(
        model="shikisha", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    parts = list(stream)
    expect("Paris" in "".join(each.choices[0].delta.content or "" for each in parts if each.choices))
    expect(parts[-1].usage.total_tokens > 0)


def chat_tools(choice="auto"):
    messages = list(ASKED)
    first = openai().chat.completions.create(model="shikisha", messages=messages, tools=[TOOL], tool_choice=choice)
    message = first.choices[0].message
    (call,) = message.tool_calls
    expect(json.loads(call.function.arguments)["city"], "Paris")
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "2100000"}]
    said = openai().chat.completions.create(model="shikisha", messages=messages, tools=[TOOL])
    expect("2100000" in said.choices[0].message.content)


def chat_json_object():
    said = openai().chat.completions.create(model="shikisha", messages=ASKED, response_format={"type": "json_object"})
    expect(json.loads(said.choices[0].message.content)["name"], "Paris")


def chat_parse():
    said = openai().chat.completions.parse(model="shikisha", messages=ASKED, response_format=City)
    expect(said.choices[0].message.parsed.name, "Paris")


def chat_n():
    said = openai().chat.completions.create(model="shikisha", messages=ASKED, n=2)
    expect([each.index for each in said.choices], [0, 1])


def legacy_completions():
    expect("Paris" in openai().completions.create(model="shikisha", prompt=QUESTION).choices[0].text)


def embeddings():
    expect(len(openai().embeddings.create(model="vectors", input="Paris").data[0].embedding), 3)


def responses():
    expect("Paris" in openai().responses.create(model="shikisha", input=QUESTION).output_text)


def responses_stream():
    with openai().responses.stream(model="shikisha", input=QUESTION) as stream:
        kinds = [event.type for event in stream]
        expect("Paris" in stream.get_final_response().output_text)
    expect(kinds[-1], "response.completed")


def responses_parse():
    expect(openai().responses.parse(model="shikisha", input=QUESTION, text_format=City).output_parsed.name, "Paris")


def responses_conversation():
    first = openai().responses.create(model="shikisha", input=QUESTION, store=True)
    expect(openai().responses.retrieve(first.id).id, first.id)
    expect(
        "Paris" in openai().responses.create(model="shikisha", input="And?", previous_response_id=first.id).output_text
    )


def responses_tools():
    first = openai().responses.create(model="shikisha", input=QUESTION, tools=[FLAT], tool_choice="required")
    call = next(each for each in first.output if each.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "2100000"}
    said = openai().responses.create(model="shikisha", input=[result], previous_response_id=first.id, tools=[FLAT])
    expect("2100000" in said.output_text)


def wrong_key():
    from openai import AuthenticationError

    try:
        openai("sk-shikisha-none").models.list()
    except AuthenticationError:
        return
    raise AssertionError("a wrong key was taken")


def unknown_model():
    from openai import NotFoundError

    try:
        openai().chat.completions.create(model="gpt-99", messages=ASKED)
    except NotFoundError as error:
        expect("shikisha" in str(error))
        return
    raise AssertionError("an unknown model was taken")


async def async_chat():
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=URL, api_key=KEY) as client:
        said = await client.chat.completions.create(model="shikisha", messages=ASKED)
    expect("Paris" in said.choices[0].message.content)


def langchain():
    """Return LangChain's model."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="shikisha", base_url=URL, api_key=KEY)


def langchain_invoke():
    expect("Paris" in langchain().invoke(QUESTION).content)


def langchain_stream():
    expect("Paris" in "".join(each.content for each in langchain().stream(QUESTION)))


def langchain_tools():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    model = langchain().bind_tools([tool(population)], tool_choice="population")
    messages = [HumanMessage(QUESTION)]
    said = model.invoke(messages)
    call = said.tool_calls[0]
    messages += [said, ToolMessage("2100000", tool_call_id=call["id"])]
    expect("2100000" in langchain().invoke(messages).content)


def langchain_structured():
    expect(langchain().with_structured_output(City).invoke(QUESTION).name, "Paris")


def langchain_embeddings():
    from langchain_openai import OpenAIEmbeddings

    made = OpenAIEmbeddings(model="vectors", base_url=URL, api_key=KEY, check_embedding_ctx_length=False)
    expect(len(made.embed_query("Paris")), 3)


def litellm_completion():
    import litellm

    said = litellm.completion(model="openai/shikisha", api_base=URL, api_key=KEY, messages=ASKED)
    expect("Paris" in said.choices[0].message.content)


def litellm_stream():
    import litellm

    stream = litellm.completion(model="openai/shikisha", api_base=URL, api_key=KEY, messages=ASKED, stream=True)
    expect("Paris" in "".join(each.choices[0].delta.content or "" for each in stream))


def litellm_messages():
    import litellm

    base = URL.removesuffix("/v1")
    said = litellm.completion(model="anthropic/shikisha", api_base=base, api_key=KEY, messages=ASKED, max_tokens=500)
    expect("Paris" in said.choices[0].message.content)


def pydantic_agent(**options):
    """Return pydantic-ai's agent."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return Agent(OpenAIChatModel("shikisha", provider=OpenAIProvider(base_url=URL, api_key=KEY)), **options)


def pydantic_ai_text():
    expect("Paris" in pydantic_agent().run_sync(QUESTION).output)


def pydantic_ai_output_tool():
    expect(pydantic_agent(output_type=City, tools=[population]).run_sync(QUESTION).output.name, "Paris")


def pydantic_ai_native():
    from pydantic_ai import NativeOutput

    expect(pydantic_agent(output_type=NativeOutput(City)).run_sync(QUESTION).output.name, "Paris")


async def pydantic_ai_stream():
    async with pydantic_agent().run_stream(QUESTION) as result:
        said = [piece async for piece in result.stream_text(delta=True)]
    expect("Paris" in "".join(said))


run_probes(
    {
        "openai-python: models": models,
        "openai-python: chat": chat,
        "openai-python: chat, streamed with usage": chat_stream,
        "openai-python: chat, asynchronous": async_chat,
        "openai-python: tools": chat_tools,
        "openai-python: tools, required": lambda: chat_tools("required"),
        "openai-python: tools, named": lambda: chat_tools({"type": "function", "function": {"name": "population"}}),
        "openai-python: json_object": chat_json_object,
        "openai-python: parse (json_schema)": chat_parse,
        "openai-python: n": chat_n,
        "openai-python: completions": legacy_completions,
        "openai-python: embeddings": embeddings,
        "openai-python: responses": responses,
        "openai-python: responses, streamed": responses_stream,
        "openai-python: responses, parse": responses_parse,
        "openai-python: responses, stored conversation": responses_conversation,
        "openai-python: responses, tools": responses_tools,
        "openai-python: a wrong key": wrong_key,
        "openai-python: an unknown model": unknown_model,
        "LangChain: invoke": langchain_invoke,
        "LangChain: stream": langchain_stream,
        "LangChain: bind_tools": langchain_tools,
        "LangChain: with_structured_output": langchain_structured,
        "LangChain: embeddings": langchain_embeddings,
        "LiteLLM: completion": litellm_completion,
        "LiteLLM: stream": litellm_stream,
        "LiteLLM: anthropic/": litellm_messages,
        "pydantic-ai: text": pydantic_ai_text,
        "pydantic-ai: output tool": pydantic_ai_output_tool,
        "pydantic-ai: native output": pydantic_ai_native,
        "pydantic-ai: stream": pydantic_ai_stream,
    }
)
