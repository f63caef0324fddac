"""The openai SDK against Shikisha: a chat, a streamed chat, a response, and what it cost."""

import os
import sys

from openai import OpenAI

QUESTION = os.environ.get(
    "SHIKISHA_QUESTION",
    "What is 9 times 939?",
)


def main() -> None:
    """Ask three times."""
    client = OpenAI(base_url=os.environ["SHIKISHA_URL"], api_key=os.environ["SHIKISHA_KEY"])
    chat = client.chat.completions.create(model="shikisha", messages=[{"role": "user", "content": QUESTION}])
    print("chat:", chat.choices[0].message.content)
    cost = (chat.usage.model_extra or {}).get("cost") if chat.usage else None
    print("cost:", cost)
    stream = client.chat.completions.create(
        model="shikisha", messages=[{"role": "user", "content": QUESTION}], stream=True
    )
    print("streamed: ", end="")
    for chunk in stream:
        sys.stdout.write(chunk.choices[0].delta.content or "" if chunk.choices else "")
    print()
    print("response:", client.responses.create(model="shikisha", input=QUESTION).output_text)


if __name__ == "__main__":
    main()
