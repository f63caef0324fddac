"""Probes of CrewAI."""

import os

from probing import KEY, QUESTION, URL, expect, run_probes

os.environ |= {"CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true", "CREWAI_DISABLE_TELEMETRY": "true"}


def model():
    """Return CrewAI's model."""
    from crewai import LLM

    return LLM(model="openai/shikisha", base_url=URL, api_key=KEY)


def call():
    expect("Paris" in model().call(QUESTION))


def crew():
    from crewai import Agent, Crew, Task

    agent = Agent(role="geographer", goal="Answer questions.", backstory="Knows cities.", llm=model(), verbose=False)
    task = Task(description=QUESTION, expected_output="A city.", agent=agent)
    expect("Paris" in str(Crew(agents=[agent], tasks=[task], verbose=False).kickoff()))


def crew_with_tool():
    from crewai import Agent, Crew, Task
    from crewai.tools import tool

    @tool("population")
    def population(city: str) -> str:
        """Return how many people live in a city."""
        return "2100000"

    agent = Agent(role="geographer", goal="Answer.", backstory="Knows.", llm=model(), tools=[population], verbose=False)
    task = Task(description=QUESTION, expected_output="A city.", agent=agent)
    expect("2100000" in str(Crew(agents=[agent], tasks=[task], verbose=False).kickoff()))


run_probes({"CrewAI: call": call, "CrewAI: crew": crew, "CrewAI: crew with a tool": crew_with_tool})
