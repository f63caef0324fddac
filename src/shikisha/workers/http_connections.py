"""The connections of a worker to its endpoint, opened at its first call."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shikisha.core.secrets import SecretStore
from shikisha.engine.worker import Card
from shikisha.workers.endpoint import AddressRule

if TYPE_CHECKING:
    from shikisha.workers.http_client import HttpClient
    from shikisha.workers.local_model import LocalModel


class HttpConnections:
    """An HTTP client that opens at the first call: only then is there an event loop, and a need for aiohttp."""

    def __init__(
        self,
        card: Card,
        url: str,
        max_bytes: int,
        headers: Mapping[str, str],
        secret_store: SecretStore,
        rule: AddressRule | None = None,
        *,
        local: "LocalModel | None" = None,
    ) -> None:
        """Name the endpoint; `local`: the model that answers on this machine, in place of `url`."""
        self._settings = (card, url, max_bytes, headers, secret_store, rule)
        self._local = local
        self._client: HttpClient | None = None

    def open(self) -> "HttpClient":
        """Return the client."""
        if self._client is None:
            # aiohttp takes longer to import than everything else here, and `doctor` and `init` never call a worker.
            from shikisha.workers.http_client import HttpClient

            self._client = HttpClient(*self._settings)
        return self._client

    async def base(self) -> str:
        """Return the base URL; that of a model of this machine changes where its server was started again."""
        card, url, most, headers, secret_store, rule = self._settings
        if self._local is not None and (now := await self._local.address()) != url:
            client, self._client = self._client, None
            if client is not None:
                await client.aclose()
            self._settings = (card, now, most, headers, secret_store, rule)
        return self._settings[1]

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        if self._local is not None:
            self._local.close()
