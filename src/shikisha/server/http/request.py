"""Reading a request: the JSON body, attachments, and the `X-Shikisha-` headers.

A body is parsed with a bounded depth and validated by a `RequestModel`; a 400 names the field that is wrong and repeats
at most a short value (invariant 8). A link in an attachment is passed on and never followed. Headers can only narrow
what a request may do. A header that would widen a cap, names an unknown worker, appears twice (labels add up), or has
an unknown `X-Shikisha-` name is refused, because its sender relies on it.

| header | holds |
|---|---|
| `X-Shikisha-Budget-Dollars`, `-Tokens`, `-Seconds`, `-Steps`, `-Rounds` | a tighter cap for this run |
| `X-Shikisha-Workers` | names of the workers that may be used, separated by commas |
| `X-Shikisha-Labels` | data labels of the content, separated by commas |
| `X-Shikisha-Domain` | the task's type, for rules and for autonomy by task class |
| `X-Shikisha-Metadata` | `summary` or `full`: a `shikisha` object in the response |
| `X-Shikisha-Progress` | `reasoning`: lines about earlier steps as reasoning content |
| `X-Shikisha-Session` | the session that the message goes on with: the server has its earlier turns |
| `X-Shikisha-Depth` | the number of Shikisha servers that the request has come through; chat workers send it |
"""

import re
from collections.abc import Callable, Collection, ItemsView, Mapping, Sequence
from enum import StrEnum
from mimetypes import guess_type
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, from_json

from shikisha.core.budget import Caps
from shikisha.core.errors import TaskError, describe_invalid
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.messages import Attachment, MediaKind
from shikisha.server.http.api_errors import ApiError

MAX_JSON_DEPTH = 64
_MAX_SHOWN_VALUE = 80
M = TypeVar("M", bound=BaseModel)


class RequestModel(BaseModel):
    """A part of a request: unknown names are refused, and types are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ParameterTreatment(StrEnum):
    """How a parameter is treated."""

    HONOURED = "honoured"  # it does what the API says
    IGNORED = "ignored"  # accepted, because it can change no answer
    REFUSED = "refused"  # a 400, unless it asks for what happens anyway


async def read_json(request: Request, check: Callable[[dict[str, object]], None] | None = None) -> dict[str, object]:
    """Return the body as a JSON object; ApiError when it is none. `check`: what refuses it before all else."""
    return parse_json(await request.body(), check)


def parse_json(body: bytes, check: Callable[[dict[str, object]], None] | None = None) -> dict[str, object]:
    """Return these bytes as a JSON object; ApiError when they are none."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        deep = "recursion" in str(error)
        raise ApiError(400, _TOO_DEEP if deep else f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(raw, dict):
        raise ApiError(400, "the body is not a JSON object", "invalid_json")
    if check is not None:
        check(raw)  # first, because walking all levels of a megabyte takes long
    if is_too_deep(raw):
        raise ApiError(400, _TOO_DEEP, "invalid_json")
    return raw


def validate_as(raw: Mapping[str, object], model: type[M]) -> M:
    """Return what was read as this model; ApiError names what is wrong."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise _validation_error(error, raw, model) from None


# What names texts that are kept elsewhere: without them the request would be another one, so none is ever left out.
_STATE_PARAMETERS = ("compaction", "container", "conversation", "previous_response_id", "prompt", "thread")
_MAX_MISTAKES = 1000
_MAX_PASSES = 4  # an unknown name may hide another
_MAX_NAMED = 20
_MAX_NAME = 80


def validate_known(raw: dict[str, object], model: type[M], *, refuse: bool) -> tuple[M, tuple[str, ...]]:
    """Return what was read as this model, and the places of parameters that it does not know, which are left out.

    `refuse`: an unknown parameter is an ApiError, as everything else is that is wrong. The body is changed.
    """
    for name in _STATE_PARAMETERS:
        if raw.get(name) is not None and name not in model.model_fields:
            known = ", or continue a previous_response_id" if "previous_response_id" in model.model_fields else ""
            message = f"{name}: cannot be honored, as nothing of the kind is kept here: send the whole content{known}"
            raise ApiError(400, message, "unsupported_value", param=name)
    ignored: list[str] = []
    for _ in range(_MAX_PASSES):
        try:
            return model.model_validate(raw), tuple(ignored)
        except ValidationError as error:
            if error.error_count() > _MAX_MISTAKES:
                raise _validation_error(error, raw, model) from None
            paths = [
                _error_path(each, raw)
                for each in error.errors(include_url=False, include_input=False)
                if each["type"] == "extra_forbidden"
            ]
            if refuse or not paths:
                raise _validation_error(error, raw, model) from None
            ignored += [_format_path(path) for path in paths if _delete(raw, path) is not None]
    return validate_as(raw, model), tuple(ignored)


def _delete(raw: object, path: Sequence[int | str]) -> object:
    """Delete what is at a place of the body, and return it; None when there is nothing any more."""
    *way, last = path
    for part in way:
        if isinstance(raw, dict):
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
    return raw.pop(last, None) if isinstance(raw, dict) else None


def drop_foreign(found: object, where: str, known: Collection[object]) -> list[str]:
    """Take objects of an unknown `type` out of a list; return their places, each with its type."""
    if not isinstance(found, list):
        return []
    dropped = []
    for place, each in enumerate(found):
        kind = each.get("type") if isinstance(each, dict) else None
        if isinstance(each, dict) and isinstance(kind, str) and kind not in known:
            dropped.append((place, kind))
    for place, _ in reversed(dropped):
        del found[place]
    return [f"{where}[{place}]={kind}" for place, kind in dropped]


def ignored_header(names: Sequence[str], scrub: Callable[[str], str]) -> dict[str, str]:
    """Return the header that names what was left out of a request, without keys in it; none where nothing was."""
    if not names:
        return {}
    shown = [_UNPRINTABLE.sub("?", scrub(name))[:_MAX_NAME] for name in names[:_MAX_NAMED]]
    more = [f"and {len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return {"x-shikisha-ignored": ", ".join([*shown, *more])}


_KIND = re.compile(r"[a-z_]{1,40}")
_UNPRINTABLE = re.compile(r"[^!-+\--~]", re.ASCII)  # what a header cannot hold, and the comma and space between names


def is_too_deep(value: object) -> bool:
    """Whether lists and objects are nested deeper than is taken."""
    level: list[object] = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


class _RequestBodyDoc(dict[str, object]):
    """The part of a route's documentation that describes its body, made when the document is asked for.

    Describing all bodies takes a twentieth of a server's start, and few ask.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        super().__init__()
        self._model = model

    def __bool__(self) -> bool:
        return True

    def items(self) -> ItemsView[str, object]:  # type: ignore[override]  # a dict has a view of its own class
        """Return what is merged into the operation."""
        schema = self._model.model_json_schema()
        whole = _inline_references(schema, schema.pop("$defs", {}))
        content: dict[str, object] = {"application/json": {"schema": whole}}
        return {"requestBody": {"required": True, "content": content}}.items()


def request_body_doc(model: type[BaseModel]) -> dict[str, object]:
    """Return what the OpenAPI document says of a route that reads this model by itself."""
    return _RequestBodyDoc(model)


def unsupported_parameter(treatments: Mapping[str, str], name: str, value: object) -> ApiError:
    """Return the error for a parameter that is not supported."""
    shown = repr(value)
    shown = shown if len(shown) <= _MAX_SHOWN_VALUE else shown[: _MAX_SHOWN_VALUE - 1] + "…"
    return ApiError(400, f"{name}: {shown} cannot be honoured: {treatments[name]}", "unsupported_value", param=name)


_TOO_DEEP = f"the body is nested deeper than {MAX_JSON_DEPTH} levels"


def _validation_error(error: ValidationError, raw: Mapping[str, object], model: type[BaseModel]) -> ApiError:
    """Return the error for the deepest mistake; a union of text and list reports one mistake per member."""
    if error.error_count() > _MAX_MISTAKES:
        return ApiError(400, f"the body has {error.error_count()} mistakes", "invalid_value")
    mistakes = error.errors(include_url=False, include_input=False)
    first, path = max(((each, _error_path(each, raw)) for each in mistakes), key=lambda pair: len(pair[1]))
    where = _format_path(path)
    match first["type"]:
        case "extra_forbidden":
            known = f"; known are: {', '.join(model.model_fields)}" if len(path) == 1 else ""
            return ApiError(400, f"unknown parameter: {where}{known}", "unknown_parameter", param=where)
        case "missing":
            return ApiError(400, f"missing parameter: {where}", "missing_required_parameter", param=where)
        case _:
            message = describe_invalid(first["msg"], "an object")
            if first["type"] in ("item", "part"):  # of an unknown kind, whose bare name is repeated
                found: object = raw
                for part in path:
                    found = found[part]  # type: ignore[index]  # the path was followed in it
                kind = found.get("type") if isinstance(found, dict) else None
                message += f", not {kind}" if isinstance(kind, str) and _KIND.fullmatch(kind) else ""
            return ApiError(400, f"{where}: {message}" if where else message, "invalid_value", param=where or None)


def _error_path(error: ErrorDetails, raw: object) -> list[int | str]:
    """Return the place of a mistake in what was sent: the names of union members are left out."""
    found = _resolve(error["loc"], raw, missing=error["type"] == "missing")
    return max(found, key=lambda each: (each[1], len(each[0])))[0]


def _resolve(parts: Sequence[int | str], raw: object, *, missing: bool) -> list[tuple[list[int | str], bool]]:
    """Return the places that these parts may mean, and whether the last part is in each.

    A part is a key, an index, or the name of a union's member, which may be the name of a key too (`text`).
    """
    if not parts:
        return [([], True)]
    part, *rest = parts
    inner: object = None
    if isinstance(part, int) and isinstance(raw, list):
        inner, is_key = raw[part] if part < len(raw) else None, True
    elif isinstance(raw, dict) and part in raw:
        inner, is_key = raw[part], True
    else:
        is_key = missing and not rest
    found = [([part, *path], last) for path, last in _resolve(rest, inner, missing=missing)] if is_key else []
    is_member = isinstance(raw, dict) and part in (raw.get("type"), raw.get("role"))
    if not is_key or (is_member and rest):
        skipped = _resolve(rest, raw, missing=missing)
        found += [(path, last and bool(rest)) for path, last in skipped]
    return found


def _format_path(path: Sequence[int | str]) -> str:
    """Return a place as clients write it: `messages[0].content`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _inline_references(value: object, parts: Mapping[str, object]) -> object:
    """Return a schema with every reference replaced by what it refers to; the models are not recursive."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            return _inline_references(parts[reference.rpartition("/")[2]], parts)
        return {name: _inline_references(part, parts) for name, part in value.items() if name != "discriminator"}
    return [_inline_references(part, parts) for part in value] if isinstance(value, list) else value


_HEADER_PREFIX = "x-shikisha-"
_MAX_HEADER_LENGTH = 2000
_MAX_NAME_LENGTH = 64
_MAX_DOMAIN_LENGTH = 200
_MAX_DEPTH_DIGITS = 9  # digits
_MAX_CAP = 10**12
_CAP_TYPES: Mapping[str, Callable[[str], float]] = {
    "dollars": float,
    "tokens": int,
    "seconds": float,
    "steps": int,
    "rounds": int,
}


class MetadataDetail(StrEnum):
    """How much a response says about its run."""

    NONE = "none"  # the standard fields and the headers
    SUMMARY = "summary"  # who did what, at which cost
    FULL = "full"  # and the subtasks and answers of every step


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What the headers of a request ask for."""

    caps: Mapping[str, float]
    workers: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    domain: str = ""
    detail: MetadataDetail = MetadataDetail.NONE
    progress: bool = False
    depth: int = 0
    session: str = ""

    def narrow_caps(self, caps: Caps) -> Caps:
        """Return these caps with the tighter ones in place; 400 for one that is wider than what is allowed."""
        if not self.caps:
            return caps
        given = {name: getattr(caps, name) for name in Caps.__dataclass_fields__}
        for name, wanted in self.caps.items():
            most = given[name]
            if most is not None and wanted > most:
                said = f"at most {most:g} is allowed here, and a header can only narrow that"
                raise _invalid_header(f"budget-{name}", said, "budget_widened")
            given[name] = wanted
        return Caps(**given)


def read_request_options(headers: Mapping[str, str]) -> RequestOptions:
    """Read the headers of a request; 400 names the one that cannot be honoured. Names are lower-case."""
    given: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_HEADER_PREFIX):
            _add_header(given, name.removeprefix(_HEADER_PREFIX), value.strip())
    if not given:
        return NO_OPTIONS
    for name, value in given.items():
        if name not in _KNOWN_HEADERS:
            raise _invalid_header(
                name,
                f"unknown; known are {', '.join(f'X-Shikisha-{known.title()}' for known in sorted(_KNOWN_HEADERS))}",
            )
        most = _MAX_DOMAIN_LENGTH if name == "domain" else _MAX_HEADER_LENGTH
        if len(value) > most:
            raise _invalid_header(name, f"longer than {most} characters")
    return RequestOptions(
        {name: _read_cap(given[f"budget-{name}"], name) for name in _CAP_TYPES if f"budget-{name}" in given},
        _read_names(given, "workers") if "workers" in given else None,
        _read_names(given, "labels") if "labels" in given else (),
        given.get("domain", ""),
        _read_detail(given.get("metadata", MetadataDetail.NONE)),
        _read_progress(given.get("progress", "none")),
        _read_depth(given.get("depth", "0")),
        _read_session(given["session"]) if "session" in given else "",
    )


def _add_header(given: dict[str, str], name: str, value: str) -> None:
    """Take a header in. A gateway may add a line of labels to its client's; no other header is taken twice."""
    if name in given and name != "labels":
        raise _invalid_header(name, "sent more than once")
    given[name] = f"{given[name]},{value}" if name in given else value


def _read_cap(text: str, name: str) -> float:
    try:
        number = _CAP_TYPES[name](text)
    except ValueError:
        number = -1
    if not 0 <= number <= _MAX_CAP or (number == 0 and name != "dollars"):
        raise _invalid_header(
            f"budget-{name}", "expected a number above 0" if name != "dollars" else "expected dollars from 0"
        )
    return number


def _read_names(given: Mapping[str, str], header: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given[header].split(",")))
    if not all(names):
        raise _invalid_header(header, "expected names with commas between them")
    if any(len(name) > _MAX_NAME_LENGTH for name in names):
        raise _invalid_header(header, f"expected names of at most {_MAX_NAME_LENGTH} characters")
    return names


def _read_detail(text: str) -> MetadataDetail:
    if text not in tuple(MetadataDetail):
        raise _invalid_header("metadata", f"expected one of {', '.join(MetadataDetail)}")
    return MetadataDetail(text)


def _read_progress(text: str) -> bool:
    if text not in ("reasoning", "none"):
        raise _invalid_header("progress", "expected reasoning or none")
    return text == "reasoning"


def _read_depth(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DEPTH_DIGITS):
        raise _invalid_header("depth", "expected a whole number from 0")
    return int(text)


def _read_session(text: str) -> str:
    if not text or len(text) > _MAX_DOMAIN_LENGTH or not text.isprintable():
        raise _invalid_header("session", f"expected a name of 1 to {_MAX_DOMAIN_LENGTH} printable characters")
    return text


def refuse_session(options: RequestOptions, why: str) -> None:
    """Raise a 400 where a request names a session that its API cannot go on with."""
    if options.session:
        raise _invalid_header("session", why)


def _invalid_header(name: str, what: str, code: str = "invalid_header") -> ApiError:
    header = f"X-Shikisha-{name.title()}"
    return ApiError(400, f"{header}: {what}", code, param=header)


_KNOWN_HEADERS = frozenset(
    {
        *(f"budget-{name}" for name in _CAP_TYPES),
        "workers",
        "labels",
        "domain",
        "metadata",
        "progress",
        "depth",
        "session",
    }
)
NO_OPTIONS = RequestOptions({})


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.-]+)*;base64,(.*)", re.ASCII | re.DOTALL)
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def image_attachment(url: str, detail: str | None, where: str) -> Attachment:
    """Return an image by its URL, which is an https link or holds the image itself."""
    if url.startswith("https://"):
        return _make_attachment(where, MediaKind.IMAGE, url=url, detail=detail or "")
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise _invalid_attachment(where, "expected a URL that begins https:// or data:image/…;base64,")
    return _make_attachment(where, MediaKind.IMAGE, media_type=found[1], data=found[2], detail=detail or "")


def audio_attachment(data: str, form: str, where: str) -> Attachment:
    """Return a sound."""
    return _make_attachment(where, MediaKind.AUDIO, media_type=_AUDIO_TYPES[form], data=data)


def file_attachment(data: str | None, name: str | None, where: str) -> Attachment:
    """Return a file, from a data URL, or from base64 and a name that says what it is."""
    if not data:
        raise _invalid_attachment(
            where, "expected file_data: files are not kept here, so there are no file ids or links"
        )
    found = _DATA_URL.fullmatch(data)
    media_type = found[1] if found else guess_type(name or "")[0]
    if media_type is None:
        raise _invalid_attachment(where, "expected a data URL, or a filename that says which type of file it is")
    return _make_attachment(
        where, MediaKind.FILE, media_type=media_type, data=found[2] if found else data, name=name or ""
    )


def _make_attachment(where: str, kind: MediaKind, **fields: str) -> Attachment:
    try:
        return Attachment(kind, **fields)
    except TaskError as error:
        raise _invalid_attachment(where, str(error)) from None


def _invalid_attachment(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where}: {what}", "invalid_value", param=where)
