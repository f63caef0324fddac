"""Where a worker is called and which headers carry its keys, as the configuration says it.

Invariants: an address comes from the configuration and from nowhere else; a key is named by its environment variable
and never written into an address or a header (8). Deliberately absent: any address made from text.
"""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import AfterValidator

from shikisha.errors import ConfigError
from shikisha.secrets import Vault

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL holds no user or password; name an environment variable instead")
    if parts.fragment:
        raise ValueError("a URL holds no fragment")
    return url


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, template in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no header name")
        if _SECRET_HEADER.search(name) and not _VARIABLE.search(template):
            raise ValueError(f"{name} looks like a key: write ${{NAME}} for the value of environment variable NAME")
    return headers


Url = Annotated[str, AfterValidator(_checked_url)]
Headers = Annotated[dict[str, str], AfterValidator(_checked_headers)]


def below(base: str, path: str) -> str:
    """Return the address of a path below a base; the base's query (Azure's `api-version`) stays behind it."""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def read_key(vault: Vault, variable: str) -> str:
    """Return the key in this environment variable; ConfigError when a header cannot carry it."""
    key = vault.read(variable)
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"environment variable {variable} holds characters that no HTTP header can carry")
    return key


def fill(headers: Mapping[str, str], vault: Vault) -> dict[str, str]:
    """Return the headers with each `${NAME}` replaced by the key in environment variable NAME."""
    return {
        name: _VARIABLE.sub(lambda found: read_key(vault, found[1]), template) for name, template in headers.items()
    }


def idempotency(key: str) -> dict[str, str]:
    """Return the header that carries a call's idempotency key; what a header cannot carry is percent-encoded."""
    return {"Idempotency-Key": quote(key, safe="/:")} if key else {}
