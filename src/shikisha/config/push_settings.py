"""The keys of [push]: notifications to the phones of people who may approve.

Invariant: the private key is named by its environment variable and never written in the file.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

BROWSER_PUSH_SERVICES = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "web.push.apple.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)


class PushTable(BaseModel):
    """[push]: web push. Only the push services that are named here are ever called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key_env: str = Field(
        default="SHIKISHA_VAPID_KEY",
        pattern="^[A-Za-z_][A-Za-z0-9_]*$",
        description="the environment variable that holds the VAPID key; `shikisha keys vapid` makes one",
    )
    contact: str = Field(
        pattern="^(mailto:.+@.+|https://.+)$",
        description="how push services reach the operator: mailto:you@example.com or an https:// URL",
    )
    services: tuple[Annotated[str, Field(pattern=r"^[a-z0-9.*:-]+$")], ...] = Field(
        default=BROWSER_PUSH_SERVICES,
        min_length=1,
        description="hosts of push services, with * for any text; by default those of the common browsers",
    )
    content: bool = Field(default=False, description="whether the question's text is in the message; it is sealed")
