"""Probes of AG2."""

from probing import KEY, QUESTION, URL, expect, run_probes


def agent(kind="OpenAIConfig", **more):
    """Return AG2's agent, at the door that its configuration is for."""
    from ag2 import Agent, config

    made = getattr(config, kind)(model="shikisha", base_url=URL, api_key=KEY, max_retries=0, **more.pop("own", {}))
    return Agent("geographer", "Be brief.", config=made, **more)


async def population(city: str) -> str:
    """Return how many people live in a city."""
    return "2100000"


async def asked():
    expect("Paris" in (await agent().ask(QUESTION)).body)


async def streamed():
    expect("Paris" in (await agent(own={"streaming": True}).ask(QUESTION)).body)


async def tool():
    expect("2100000" in (await agent(tools=[population]).ask(QUESTION)).body)


async def twice():
    first = await agent(tools=[population]).ask(QUESTION)
    expect("2100000" in (await first.ask("Sure?")).body)


async def responses():
    expect("2100000" in (await agent("OpenAIResponsesConfig", tools=[population]).ask(QUESTION)).body)


run_probes(
    {
        "AG2: ask": asked,
        "AG2: streamed": streamed,
        "AG2: with a tool": tool,
        "AG2: a second question": twice,
        "AG2: responses": responses,
    }
)
