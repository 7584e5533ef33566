"""The narrow interface to a way of writing events, and its contract."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

__all__ = ["NotDecoded", "PayloadParser"]


class NotDecoded(ValueError):
    """Some payload is not what it should be; with one payload, says why."""


class PayloadParser(Protocol):
    """One way to write events."""

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """Why each payload certainly is not right, or None.

        Asked only if a batch failed, so that most of what spoils it is found at once.
        """

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """The fields' values, an array for each column.

        Raises:
            NotDecoded: a payload, whichever, is not right.
        """
