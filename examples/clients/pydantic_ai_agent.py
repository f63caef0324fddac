"""A pydantic-ai agent whose model is Shikisha."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = os.environ.get(
    "SHIKISHA_QUESTION",
    "What is 9 times 939?",
)


def main() -> None:
    """Ask once."""
    provider = OpenAIProvider(base_url=os.environ["SHIKISHA_URL"], api_key=os.environ["SHIKISHA_KEY"])
    agent = Agent(OpenAIChatModel("shikisha", provider=provider))
    print("answer:", agent.run_sync(QUESTION).output)


if __name__ == "__main__":
    main()
