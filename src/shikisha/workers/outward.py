"""What this machine says of the way out: which certificates are trusted, and through which proxy an address is reached.

Invariant: both come from the system and its environment, read when they are first needed. `SSL_CERT_FILE` and
`SSL_CERT_DIR` name other certificates, `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` the proxies, as most
programs have it. Deliberately absent: switching verification off, keys of `.netrc`, SOCKS.
"""

import os
import platform
import re
import ssl
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_HASHED = re.compile(r"[0-9a-fA-F]{8}\.\d+")
_ELSEWHERE = (  # where Linux systems keep them, for a Python that was built to look where nothing is
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)


@cache
def trusted() -> ssl.SSLContext:
    """Return the certificates that are trusted, read once: that takes 30 ms and more."""
    if platform.system() in ("Windows", "Darwin") and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        return _kept_by_the_system()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    paths = ssl.get_default_verify_paths()  # empty where there is nothing
    if not paths.cafile and not _holds_any(paths.capath):
        for file in filter(_is_file, _ELSEWHERE):
            context.load_verify_locations(file)
            break
    return context


def _kept_by_the_system() -> ssl.SSLContext:
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _holds_any(folder: str) -> bool:
    """Whether there are certificates in a folder under the names by which they are looked for."""
    return bool(folder) and any(_HASHED.fullmatch(each.name) for each in Path(folder).iterdir())


def _is_file(path: str) -> bool:
    return Path(path).is_file()


def proxy_for(url: str) -> str | None:
    """Return the proxy through which a URL is reached; None for straight ahead."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
