"""Interface of payload decoders."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

__all__ = ["NotDecoded", "PayloadParser"]


class NotDecoded(ValueError):
    """A payload cannot be decoded; if there is only one, the message says why."""


class PayloadParser(Protocol):
    """Decoder for one format of payloads."""

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """Return, for each payload, why it is certainly invalid, or None.

        Called only if a batch failed, to find most invalid payloads at once.
        """

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """Return the fields' values, an array for each column.

        Raises:
            NotDecoded: at least one payload is invalid.
        """
