"""Chats as proxies and traces keep them, as plain text: the messages of OpenAI, Anthropic and OpenTelemetry.

Invariants: a chat of one user's turn is that turn; any other is written turn by turn, each under its role; a part that
is no text (a tool call, an image) is written as its JSON.
"""

import json
from collections.abc import Mapping, Sequence

_TEXTS = ("text", "content")
_TEXT_TYPES = ("text", "input_text", "output_text", None)


def chat_text(messages: object) -> str | None:
    """Return a chat, a text or JSON of either as one text; None where there is nothing in it."""
    messages = parse_json_text(messages)
    if isinstance(messages, str):
        return messages if messages.strip() else None
    turns = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(turns, Sequence):
        return None
    said = [(_role(turn), message_text(turn) or "") for turn in turns if turn]
    if [role for role, _ in said] == ["user"]:
        return said[0][1] if said[0][1].strip() else None
    return "\n\n".join(f"[{role}]\n{text}" for role, text in said) if any(text.strip() for _, text in said) else None


def message_text(message: object) -> str | None:
    """Return what one message says, its tool calls included; None where it says nothing."""
    if not isinstance(message, Mapping):
        return message if isinstance(message, str) else None
    parts = message.get("parts", message.get("content"))
    texts = [_part(part) for part in (parts if isinstance(parts, list) else [parts]) if part not in (None, "")]
    calls = message.get("tool_calls")
    return "\n".join([*texts, *([_json(calls)] if calls else [])]) or None


def response_text(response: object) -> str | None:
    """Return the text of a provider's response object, or of its JSON; a text that is no JSON is the reply itself."""
    response = parse_json_text(response)
    if not isinstance(response, Mapping):
        return response if isinstance(response, str) and response else None
    choices, output = response.get("choices"), response.get("output")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        text = choices[0].get("text")
        return text if isinstance(text, str) else message_text(choices[0].get("message"))
    if isinstance(output, list):
        said = [message_text(item) for item in output if isinstance(item, Mapping) and item.get("type") == "message"]
        return "\n".join(text for text in said if text) or None
    return message_text(response)


def parse_json_text(value: object) -> object:
    """Return what a text that is JSON of a list or an object stands for, any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found


def _role(turn: object) -> str:
    role = turn.get("role") if isinstance(turn, Mapping) else None
    return role if isinstance(role, str) else "user"


def _part(part: object) -> str:
    if isinstance(part, Mapping) and part.get("type") in _TEXT_TYPES:
        text = next((part[name] for name in _TEXTS if isinstance(part.get(name), str)), None)
        if text is not None:
            return str(text)
    return part if isinstance(part, str) else _json(part)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
