"""What a key looks like, and what is kept of it.

A key is `sk-shikisha-ID-SECRET`: the id finds its row, the secret is 256 bits of chance. Invariant: only a SHA-256 of
the whole is kept, and it is compared in constant time. A slow hash protects what people think up, by making each guess
dear; nobody guesses 256 bits of chance however cheap a guess is, and a slow hash on each request would let anyone
exhaust us with wrong keys. Deliberately absent: keys that say what they may do (that is looked up, and so revocable).
"""

import hmac
import secrets
from hashlib import sha256

from shikisha.secrets import OURS

PREFIX = OURS
_ID = "23456789abcdefghjkmnpqrstvwxyz"  # nothing that is read for something else
_ID_LENGTH = 10
_LONGEST = 200


def new_id() -> str:
    """Return a fresh id; it is no secret."""
    return "".join(secrets.choice(_ID) for _ in range(_ID_LENGTH))


def new_key(own_id: str) -> str:
    """Return a fresh key of this id."""
    return f"{PREFIX}{own_id}-{secrets.token_urlsafe(32)}"


def id_of(presented: str) -> str | None:
    """Return the id that something presented as a key bears; None where it is none of ours."""
    if not presented.startswith(PREFIX) or len(presented) > _LONGEST:
        return None
    own_id, dash, secret = presented.removeprefix(PREFIX).partition("-")
    plain = own_id.isascii() and own_id.isalnum() and secret.isascii() and secret.isprintable()
    return own_id if dash and plain else None


def digest(key: str) -> str:
    """Return what is kept of a key."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def matches(presented: str, kept: str) -> bool:
    """Whether this is the key of which this is kept; it takes as long if it is not."""
    return hmac.compare_digest(digest(presented), kept)
