"""The delegation tokens that segment stores ask for: one for each stream and kind of access, renewed in time."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from streamstore.model import StreamName

__all__ = ["DelegationTokens", "lifetime"]

DEFAULT_LIFETIME = 600.0
RENEW_AFTER = 0.8
"""A token is renewed when this share of its lifetime is over."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float


class DelegationTokens:
    """Tokens from the controller, cached until they must be renewed. Thread-safe.

    Args:
        ask: gets a new token for a stream, for writing or for reading.
        clock: seconds, monotonic.
    """

    def __init__(self, ask: Callable[[StreamName, bool], str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[tuple[StreamName, bool], _Token] = {}

    def get(self, stream: StreamName, *, write: bool) -> str:
        """A token that holds for a while; empty if the cluster asks for none."""
        with self._lock:
            token = self._tokens.get((stream, write))
        if token is not None and self._clock() < token.renew_at:
            return token.text
        asked_at = self._clock()
        text = self._ask(stream, write)
        token = _Token(text, asked_at + RENEW_AFTER * lifetime(text))
        with self._lock:
            self._tokens[stream, write] = token
        return text

    def forget(self, stream: StreamName, refused: str) -> None:
        """Ask anew at the next `get`: a segment store refused this token."""
        with self._lock:
            for write in (False, True):
                token = self._tokens.get((stream, write))
                if token is not None and token.text == refused:
                    del self._tokens[stream, write]


def lifetime(token: str) -> float:
    """Return a token's lifetime (seconds).

    A token is a JSON web token; only its own times are compared, so this machine's clock may be wrong.
    """
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        held = float(claims["exp"]) - float(claims["iat"])
    except (IndexError, KeyError, TypeError, ValueError):
        return DEFAULT_LIFETIME
    return max(held, 0.0)
