"""Templates, and the headers that every page bears.

Invariants: what a template prints is escaped and cleaned of control characters at one place (`_cleaned`); a name that a
template misspells is an error and not an empty text; the browser may load from this server only, and run only the
scripts that lie in `static`. Deliberately absent: what is shown (the views), and who may see it (`doors`).
"""

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi.responses import HTMLResponse
from starlette.requests import Request

from shikisha.clean import clean
from shikisha.errors import MissingExtra
from shikisha.server.pages import wording

if TYPE_CHECKING:
    from jinja2 import Environment

HOME = "/ui"
STATIC = Path(__file__).parent / "static"
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UNKEPT = {"Cache-Control": "no-store"}
_HTMX = json.dumps(
    {
        "allowEval": False,
        "allowScriptTags": False,
        "includeIndicatorStyles": False,
        "selfRequestsOnly": True,
        "historyCacheSize": 0,
        "refreshOnHistoryMiss": True,
    }
)


def page(request: Request, template: str, shown: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Return a template as a page; `shown` are its names."""
    return HTMLResponse(render(request, template, shown), status, SECURITY | UNKEPT)


def render(request: Request, template: str, shown: Mapping[str, object]) -> str:
    """Return a template's text, for a part of a page."""
    session = getattr(request.state, "session", None)
    return environment().get_template(template).render({"session": session, "path": request.url.path, **shown})


@cache
def environment() -> "Environment":
    """Return what renders the templates; MissingExtra when jinja2 is not installed."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("server", "the pages") from None
    made = Environment(
        loader=PackageLoader("shikisha.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(wording.FILTERS)
    made.globals.update(home=HOME, htmx_config=_HTMX, versions=_versions())
    return made


def _cleaned(value: object) -> object:
    """Make control characters visible in a text that is about to be escaped; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean(value)


def _versions() -> dict[str, str]:
    """Return where each file of `static` is found: by its content, so that a browser may keep it for ever."""
    return {
        file.name: f"{HOME}/static/{sha256(file.read_bytes()).hexdigest()[:12]}/{file.name}"
        for file in sorted(STATIC.iterdir())
    }
