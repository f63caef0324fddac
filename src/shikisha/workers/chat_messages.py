"""Turns as messages of the chat API, as one endpoint takes them.

Invariants: nothing of a turn is left out; an envelope goes to the endpoint that sent it, and to no other. Deliberately
absent: code for a single provider (its profile says what it takes).
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import cast

from shikisha.core.messages import Attachment, ChatMessage, Envelope, Json, MediaKind, Speaker, dump_json
from shikisha.workers.chat_reply import call_id
from shikisha.workers.provider_profile import ProviderProfile


def chat_message(turn: ChatMessage) -> dict[str, Json]:
    """Return the turn as a message."""
    said: dict[str, Json] = {"role": str(turn.speaker), "content": turn.text}
    if turn.attachments:
        text: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        said["content"] = [*text, *(content_part(each) for each in turn.attachments)]
    if turn.speaker is Speaker.TOOL:
        said["tool_call_id"] = turn.answers
    if turn.calls:
        said["content"] = turn.text or None
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    return said


class WireMessages:
    """Turns as one endpoint takes them: with its own envelopes, and ids and names within its limits.

    `endpoint` identifies it in envelopes. Ids of calls are its own where it made them, and short ones made of ours
    otherwise: providers refuse each other's ids.
    """

    def __init__(self, profile: ProviderProfile, endpoint: str) -> None:
        self._profile = profile
        self._endpoint = endpoint
        self._own_id = re.compile(profile.calls.id, re.ASCII)
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()

    def message(self, turn: ChatMessage) -> dict[str, Json]:
        """Return a turn as a message."""
        return self._adapt(chat_message(turn), turn.envelope)

    def adapted(
        self, messages: Sequence[Mapping[str, Json]], turns: Sequence[ChatMessage] = ()
    ) -> list[dict[str, Json]]:
        """Return a client's own messages with ids and names as the endpoint takes them, and envelopes of the turns."""
        envelopes = {turn.calls[0].id: turn.envelope for turn in turns if turn.calls}
        return [self._adapt(each, envelopes.get(_first_id(each), "")) for each in messages]

    def _adapt(self, message: Mapping[str, Json], kept: str) -> dict[str, Json]:
        envelope = Envelope.load(kept, self._endpoint)
        answers, calls = message.get("tool_call_id"), message.get("tool_calls")
        said = dict(message)
        if isinstance(answers, str):
            said["tool_call_id"] = self._ids.get(answers, answers)
        if isinstance(calls, list) and calls:
            theirs = envelope.calls if envelope is not None and len(envelope.calls) == len(calls) else ()
            said["tool_calls"] = [self._call(call, theirs[place] if theirs else {}) for place, call in enumerate(calls)]
        if envelope is not None and self._profile.reasoning.back != "refused":
            said |= {name: value for name, value in envelope.message.items() if name == "content" or name not in said}
        return said

    def _call(self, call: Json, theirs: Mapping[str, Json]) -> Json:
        if not isinstance(call, Mapping):
            return call
        own, inner, given = theirs.get("id"), theirs.get("function"), str(call.get("id", ""))
        known = own if isinstance(own, str) else given if self._own_id.fullmatch(given) else ""
        while not known or known in self._taken:
            known = call_id(given, known)
        self._taken.add(known)
        self._ids[given] = known
        named = self.named(call)
        function = named.get("function") if isinstance(named, Mapping) else None
        if isinstance(function, Mapping):
            if not isinstance(text := function.get("arguments"), str):  # a client's own history
                function = {**function, "arguments": dump_json(text or {})}
            function = {**inner, **function} if isinstance(inner, Mapping) else function
        return {**theirs, **cast("Mapping[str, Json]", named), "id": known, "function": function}

    def named(self, value: Json) -> Json:
        """Return a tool, a call or a tool choice with names as the endpoint takes them."""
        if not isinstance(value, Mapping):
            return value
        named, function, allowed = dict(value), value.get("function"), value.get("allowed_tools")
        if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
            named["function"] = {**function, "name": self.tool_name(name)}
        if isinstance(allowed, Mapping) and isinstance(tools := allowed.get("tools"), list):
            named["allowed_tools"] = {**allowed, "tools": [self.named(each) for each in tools]}
        return named

    def tool_name(self, name: str) -> str:
        """Return a tool's name as the endpoint takes it: what is too long, or has other letters, ends with a hash."""
        most = self._profile.calls.max_name
        if len(name) <= most and _NAME.fullmatch(name):
            return name
        kept = "".join(letter if _NAME.fullmatch(letter) else "_" for letter in name)[: most - _NAME_HASH - 1]
        return f"{kept}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_NAME_HASH]}"


def _first_id(message: Mapping[str, Json]) -> str:
    match message:
        case {"tool_calls": [{"id": str(name)}, *_]}:
            return name
    return ""


_NAME, _NAME_HASH = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII), 8


def content_part(attachment: Attachment) -> Mapping[str, Json]:
    """Return the attachment as a content part."""
    link = f"data:{attachment.media_type};base64,{attachment.data}"
    match attachment.kind:
        case MediaKind.IMAGE:
            image = {"url": attachment.url or link}
            return {"type": "image_url", "image_url": image | _optional_field("detail", attachment.detail)}
        case MediaKind.FILE:
            return {"type": "file", "file": {"file_data": link} | _optional_field("filename", attachment.name)}
        case MediaKind.AUDIO:
            sound = {
                "data": attachment.data,
                "format": _AUDIO_FORMATS.get(attachment.media_type, attachment.media_type.rpartition("/")[2]),
            }
            return {"type": "input_audio", "input_audio": sound}


_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def _optional_field(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}
