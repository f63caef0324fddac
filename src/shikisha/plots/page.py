"""The HTML pages that are one file each: the environment that renders their templates.

Invariants: every text is cleaned of control characters and escaped at one place, whatever the templates do with it; a
page loads nothing and runs no script but its own, whose hash stands in the page's content security policy.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from shikisha.core.budget import format_dollars
from shikisha.core.errors import MissingExtra
from shikisha.core.text import clean_text
from shikisha.plots.format import compact, count, percent, plural, points, seconds

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST = 2_000  # characters of a text
_FILTERS = (percent, points, format_dollars, seconds, count, compact, plural)


def page_environment(*packages: str) -> "Environment":
    """Return what renders the templates in these packages' `pages`, then the kit's own; MissingExtra without jinja2."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("eval", "the HTML page") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "pages") for package in (*packages, "shikisha.plots")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    return environment


def render_page(environment: "Environment", template: str, values: Mapping[str, object]) -> str:
    """Return a page, whose template finds its script's hash as `script_digest`."""
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render({"script_digest": digest, **values})


def _clean_value(value: object) -> object:
    """Clean a text that is about to be escaped and keep per cent signs at their numbers; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean_text(value[:_LONGEST]).replace("\n", " ").replace(" %", "\u00a0%")
