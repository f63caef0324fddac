"""LiteLLM as a client of Shikisha (their users; nothing of it is in our own process)."""

import os

import litellm

QUESTION = os.environ.get(
    "SHIKISHA_QUESTION",
    "What is 9 times 939?",
)


def main() -> None:
    """Ask once."""
    answer = litellm.completion(
        model="openai/shikisha",
        api_base=os.environ["SHIKISHA_URL"],
        api_key=os.environ["SHIKISHA_KEY"],
        messages=[{"role": "user", "content": QUESTION}],
    )
    print("answer:", answer.choices[0].message.content)


if __name__ == "__main__":
    main()
