"""Images, files and sounds as clients send them, as attachments.

Invariant: a link is passed on and never followed; only an https link or a data URL is taken. Deliberately absent: a
look into the bytes (whoever reads them says what is wrong with them).
"""

import re
from mimetypes import guess_type

from shikisha.errors import TaskError
from shikisha.server.problems import Problem
from shikisha.turn import Attachment, Media

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.-]+)*;base64,(.*)", re.ASCII | re.DOTALL)
_SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def image(url: str, detail: str | None, where: str) -> Attachment:
    """Return an image by its URL, which is an https link or holds the image itself."""
    if url.startswith("https://"):
        return _made(where, Media.IMAGE, url=url, detail=detail or "")
    found = _DATA_URL.fullmatch(url)
    if found is None:
        raise _bad(where, "expected a URL that begins https:// or data:image/…;base64,")
    return _made(where, Media.IMAGE, media_type=found[1], data=found[2], detail=detail or "")


def sound(data: str, form: str, where: str) -> Attachment:
    """Return a sound."""
    return _made(where, Media.AUDIO, media_type=_SOUNDS[form], data=data)


def file(data: str | None, name: str | None, where: str) -> Attachment:
    """Return a file, from a data URL, or from base64 and a name that says what it is."""
    if not data:
        raise _bad(where, "expected file_data: files are not kept here, so there are no file ids or links")
    found = _DATA_URL.fullmatch(data)
    media_type = found[1] if found else guess_type(name or "")[0]
    if media_type is None:
        raise _bad(where, "expected a data URL, or a filename that says which type of file it is")
    return _made(where, Media.FILE, media_type=media_type, data=found[2] if found else data, name=name or "")


def _made(where: str, kind: Media, **fields: str) -> Attachment:
    try:
        return Attachment(kind, **fields)
    except TaskError as error:
        raise _bad(where, str(error)) from None


def _bad(where: str, what: str) -> Problem:
    return Problem(400, f"{where}: {what}", "invalid_value", param=where)
