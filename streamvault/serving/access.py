"""Who may use the server: one login for the controller, and tokens that it makes for the segment store."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping

EXPIRED, INVALID = 1, 0
"""Why a token is refused, as Pravega numbers it."""


class Access:
    """Without a login, everything is allowed, and tokens are empty.

    Args:
        login: ``USER:PASSWORD``; empty for none.
        seconds: how long a token holds.
    """

    def __init__(self, login: str = "", seconds: float = 600) -> None:
        self._expected = b"Basic " + base64.b64encode(login.encode()) if login else b""
        # servers behind one address have the same login, and take each other's tokens
        self._secret = hashlib.scrypt(login.encode(), salt=b"streamvault serve", n=1 << 14, r=8, p=1) if login else b""
        self._seconds = seconds

    def is_known(self, metadata: Mapping[str, str | bytes]) -> bool:
        """Return whether a call's metadata have the login."""
        given = metadata.get("authorization", "")
        given = given.encode() if isinstance(given, str) else given
        return not self._expected or hmac.compare_digest(given, self._expected)

    def token(self) -> str:
        """Return a JSON web token, of which Java's client reads when it expires; empty if no login is asked for."""
        if not self._expected:
            return ""
        now = time.time()
        claims = {"sub": "reader", "aud": "segmentstore", "iat": int(now), "exp": int(now + self._seconds)}
        claims["jti"] = secrets.token_hex(8)
        text = ".".join(_part(json.dumps(one).encode()) for one in ({"alg": "HS256", "typ": "JWT"}, claims))
        return f"{text}.{self._sign(text)}"

    def refusal(self, token: str) -> int | None:
        """Return why a token is refused, `EXPIRED` or `INVALID`; None if it holds."""
        if not self._expected:
            return None
        text, _, signed = token.rpartition(".")
        if not hmac.compare_digest(signed.encode(), self._sign(text).encode()):
            return INVALID
        claims = text.rpartition(".")[2]
        try:
            until = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        except (binascii.Error, ValueError, LookupError):
            return INVALID
        return EXPIRED if until < time.time() else None

    def _sign(self, text: str) -> str:
        return _part(hmac.new(self._secret, text.encode(), hashlib.sha256).digest())


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
