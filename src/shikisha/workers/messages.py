"""Turns as the messages of the chat API: calls of tools, their results, and attachments as content parts.

Invariant: a turn of text alone is a message whose content is that text; nothing that a turn holds is left out, and a
link is passed on as it is. Deliberately absent: reading messages (the server reads those of its clients).
"""

from collections.abc import Mapping

from shikisha.turn import Attachment, Json, Media, Speaker, Turn


def message(turn: Turn) -> dict[str, Json]:
    """Return the turn as a message."""
    said: dict[str, Json] = {"role": str(turn.speaker), "content": turn.text}
    if turn.attachments:
        text: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        said["content"] = [*text, *(part(each) for each in turn.attachments)]
    if turn.speaker is Speaker.TOOL:
        said["tool_call_id"] = turn.answers
    if turn.calls:
        said["content"] = turn.text or None
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    return said


def part(attachment: Attachment) -> Mapping[str, Json]:
    """Return the attachment as a content part."""
    link = f"data:{attachment.media_type};base64,{attachment.data}"
    match attachment.kind:
        case Media.IMAGE:
            image = {"url": attachment.url or link}
            return {"type": "image_url", "image_url": image | _named("detail", attachment.detail)}
        case Media.FILE:
            return {"type": "file", "file": {"file_data": link} | _named("filename", attachment.name)}
        case Media.AUDIO:
            sound = {"data": attachment.data, "format": _FORMATS.get(attachment.media_type, _last(attachment))}
            return {"type": "input_audio", "input_audio": sound}


_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def _last(attachment: Attachment) -> str:
    return attachment.media_type.rpartition("/")[2]


def _named(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}
