"""LangChain's ChatOpenAI against Shikisha: an answer, and a streamed one."""

import os

from langchain_openai import ChatOpenAI

QUESTION = os.environ.get(
    "SHIKISHA_QUESTION",
    "What is 9 times 939?",
)


def main() -> None:
    """Ask twice."""
    model = ChatOpenAI(
        model="shikisha", base_url=os.environ["SHIKISHA_URL"], api_key=os.environ["SHIKISHA_KEY"], max_retries=0
    )
    print("answer:", model.invoke(QUESTION).content)
    print("streamed:", "".join(str(piece.content) for piece in model.stream(QUESTION)))


if __name__ == "__main__":
    main()
