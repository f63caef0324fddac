"""A passkey in software, for tests without a browser: signs what a browser would, or what an attacker would."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

USER_PRESENT, USER_VERIFIED, ATTESTED = 0x01, 0x04, 0x40


@dataclass
class Authenticator:
    """One passkey. `verified`: whether the device checks the person; `origin`: what the browser says of the page."""

    origin: str
    host: str
    verified: bool = True
    count: int = 0
    credential: bytes = b"a passkey in software, for tests"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def make(self, options: Mapping[str, Any]) -> str:
        """Answer `navigator.credentials.create`."""
        numbers = self.key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        cose = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        attested = bytes(16) + len(self.credential).to_bytes(2, "big") + self.credential + cose
        data = self._data(ATTESTED) + attested
        made = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._written(
            {"clientDataJSON": self._client("webauthn.create", options), "attestationObject": encoded(made)}
        )

    def sign(self, options: Mapping[str, Any]) -> str:
        """Answer `navigator.credentials.get`."""
        self.count += 1
        client, data = self._client("webauthn.get", options), self._data()
        whole = data + sha256(decoded(client)).digest()
        signature = self.key.sign(whole, ec.ECDSA(hashes.SHA256()))
        return self._written(
            {"clientDataJSON": client, "authenticatorData": encoded(data), "signature": encoded(signature)}
        )

    def _data(self, more: int = 0) -> bytes:
        flags = USER_PRESENT | more | (USER_VERIFIED if self.verified else 0)
        return sha256(self.host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, options: Mapping[str, Any]) -> str:
        told = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return encoded(json.dumps(told).encode())

    def _written(self, response: dict[str, str]) -> str:
        named = encoded(self.credential)
        return json.dumps({"id": named, "rawId": named, "type": "public-key", "response": response})


def encoded(data: bytes) -> str:
    """Base64url without padding, as browsers write it."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """What base64url says."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
