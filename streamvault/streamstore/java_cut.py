"""The Java client's text of a stream cut."""

from __future__ import annotations

import base64
import zlib

from streamvault.streamstore.errors import InvalidCut

_BEGIN = "H4sI"
_LONGEST = 16 * 1024 * 1024  # bytes; about 500,000 segments


def is_java_cut(text: str) -> bool:
    """Return whether a text begins as the Java client's text of a stream cut does: it is gzipped, in base64."""
    return text.lstrip().startswith(_BEGIN)


def offsets_of_java_cut(text: str) -> dict[str, int]:
    """Return what ``io.pravega.client.stream.StreamCut.asText`` of the Java client 0.13 has printed.

    That is ``0:scope/stream:numbers:epochs:offsets``; the last three are lists with commas.

    Returns:
        Segment, as ``scope/stream/N.#epoch.E`` → offset (bytes). The stream and the offsets may be invalid.

    Raises:
        InvalidCut: it is no such text, or not the whole.
    """
    try:
        unzip = zlib.decompressobj(wbits=31)
        plain = unzip.decompress(base64.b64decode(text.strip(), validate=True), _LONGEST)
        version, stream, *lists = plain.decode().split(":")
        numbers, epochs, offsets = ([int(one) for one in each.split(",")] for each in lists)
        if version != "0" or not unzip.eof or min(*numbers, *epochs) < 0:
            raise ValueError  # noqa: TRY301  (as for any other text)
        cut = zip(numbers, epochs, offsets, strict=True)
        return {f"{stream}/{number}.#epoch.{epoch}": offset for number, epoch, offset in cut}
    except (ValueError, zlib.error):
        todo = "Give the whole text that asText prints."
        raise InvalidCut("not a whole stream cut of the Java client", where=text[:80], todo=todo) from None
