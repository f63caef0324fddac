"""[[webhooks]]: who is told, by a signed POST, when a person is asked, when a run ends, or when a budget is used up.

Invariant 8: the secret, and a URL that is one, are named by environment variables; an address comes from here and from
nowhere else, so no request and no model can have us call anything. Deliberately absent: retries' settings.
"""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from shikisha.config.table import Table, Variable, checked_url


class Occasion(StrEnum):
    """What a webhook may be told of."""

    QUESTION_ASKED = "question.asked"  # a run waits for a person
    RUN_FINISHED = "run.finished"  # a run has ended, in whatever way
    BUDGET_REFUSED = "budget.refused"  # a cap on dollars, tokens or requests ended a run


def _checked_address(url: str) -> str:
    parts = urlsplit(checked_url(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected the whole URL, beginning with https:// or http://")
    return url


Address = Annotated[str, AfterValidator(_checked_address)]


class WebhookTable(Table):
    """[[webhooks]]: one receiver."""

    url: Address | None = Field(default=None, description="where to POST; redirects are not followed")
    url_env: Variable | None = Field(default=None, description="the environment variable that holds the URL")
    secret_env: Variable = Field(description="the environment variable with the secret that signs (whsec_...)")
    events: tuple[Occasion, ...] = Field(default=tuple(Occasion), min_length=1)
    tenant: str | None = Field(default=None, description="runs of this tenant only")
    content: bool = Field(default=False, description="send texts too: what is asked, what was answered")
    timeout: float = Field(default=10.0, gt=0, le=60, allow_inf_nan=False, description="seconds for one attempt")

    @model_validator(mode="after")
    def _addressed(self) -> Self:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("expected url or url_env, one of them")
        return self
