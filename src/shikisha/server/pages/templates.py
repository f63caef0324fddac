"""Jinja templates, and the headers that every page carries.

Invariants: whatever a template prints is escaped and cleaned of control characters in one place; a misspelled name in
a template is an error. The browser may load from this server only, and run only the scripts in `static`.
"""

import json
from collections.abc import Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from fastapi.responses import HTMLResponse
from starlette.requests import Request

from shikisha.core.errors import MissingExtra
from shikisha.core.text import clean_text
from shikisha.plots.format import TEMPLATE_FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment

UI_ROOT = "/ui"
STATIC_FOLDER = Path(__file__).parent / "static"
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "manifest-src 'self'; worker-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_STORE = {"Cache-Control": "no-store"}
_HTMX_CONFIG = json.dumps(
    {
        "allowEval": False,
        "allowScriptTags": False,
        "includeIndicatorStyles": False,
        "selfRequestsOnly": True,
        "historyCacheSize": 0,
        "refreshOnHistoryMiss": True,
    }
)


def render_page(request: Request, template: str, shown: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Return a template as a page; `shown` are its names."""
    return HTMLResponse(render_template(request, template, shown), status, SECURITY_HEADERS | NO_STORE)


def render_template(request: Request, template: str, shown: Mapping[str, object]) -> str:
    """Return a template's text, for a part of a page."""
    session = getattr(request.state, "session", None)
    where = {"path": request.url.path, "address": f"{request.url.path}?{request.url.query}".rstrip("?")}
    return template_environment().get_template(template).render({"session": session, **where, **shown})


@cache
def template_environment() -> "Environment":
    """Return what renders the templates; MissingExtra when jinja2 is not installed."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("server", "the pages") from None
    made = Environment(
        loader=PackageLoader("shikisha.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_show_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(TEMPLATE_FILTERS)
    made.globals.update(home=UI_ROOT, htmx_config=_HTMX_CONFIG, versions=static_urls(), once=partial(token_hex, 8))
    return made


def _show_control_characters(value: object) -> object:
    """Make control characters visible in a text that is about to be escaped; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean_text(value)


@cache
def static_urls() -> dict[str, str]:
    """Return where each file of `static` is found: by its content, so that a browser may keep it for ever."""
    return {
        file.name: f"{UI_ROOT}/static/{sha256(file.read_bytes()).hexdigest()[:12]}/{file.name}"
        for file in sorted(STATIC_FOLDER.iterdir())
    }
