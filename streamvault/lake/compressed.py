"""Decompresses records in bounded memory, whatever an event claims to expand to."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable

import pyarrow as pa

from streamvault.lake.payloads import NotDecoded, varint

LEAST_RECORD, MOST_RATIO, MOST_RECORD = 4096, 100, 64 * 1024 * 1024
"""A record may expand to `LEAST_RECORD` bytes and `MOST_RATIO` for each compressed one, at most to `MOST_RECORD`."""


def expanded(expand: Callable[[bytes, int], bytes], data: bytes) -> bytes:
    """Decompress a record.

    Args:
        expand: one of the functions of this module.
        data: the compressed bytes.

    Raises:
        NotDecoded: the bytes are not valid, or expand to too many.
    """
    most = min(LEAST_RECORD + MOST_RATIO * len(data), max(MOST_RECORD, len(data)))
    try:
        return expand(data, most)
    except (zlib.error, OSError, ValueError, EOFError) as error:
        raise NotDecoded(str(error)) from None


def of_gzip(data: bytes, most: int) -> bytes:
    """Decompress gzip to at most so many bytes; see `expanded`."""
    return _of_zlib(data, most, 31)


def of_deflate(data: bytes, most: int) -> bytes:
    """Decompress raw deflate, see `of_gzip`."""
    return _of_zlib(data, most, -15)


def _of_zlib(data: bytes, most: int, wbits: int) -> bytes:
    unzip = zlib.decompressobj(wbits=wbits)
    return _whole(unzip.decompress(data, most), unzip.eof, unzip.unused_data)


def of_bzip2(data: bytes, most: int) -> bytes:
    """Decompress bzip2, see `of_gzip`."""
    unzip = bz2.BZ2Decompressor()
    return _whole(unzip.decompress(data, most), unzip.eof, unzip.unused_data)


def _whole(found: bytes, eof: bool, rest: bytes) -> bytes:
    if not eof or rest:
        raise NotDecoded("it is cut off, followed by other data, or suspiciously large")
    return found


def of_snappy(data: bytes, most: int) -> bytes:
    """Decompress Snappy's raw format, see `of_gzip`."""
    size, _ = varint(data, 0)
    if size > most:
        raise NotDecoded("it is suspiciously large")
    return pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True) if size else b""


def of_summed_snappy(data: bytes, most: int) -> bytes:
    """Decompress Snappy followed by the CRC-32 of the decompressed data, as in Avro files; see `of_gzip`."""
    found = of_snappy(data[:-4], most)
    if data[-4:] != zlib.crc32(found).to_bytes(4, "big"):
        raise NotDecoded("its checksum is wrong")
    return found


def of_zstandard(data: bytes, most: int) -> bytes:
    """Decompress Zstandard, see `of_gzip`."""
    import zstandard  # noqa: PLC0415

    with zstandard.ZstdDecompressor(max_window_size=MOST_RECORD).stream_reader(data) as reader:
        try:
            found = reader.read(most + 1)
        except zstandard.ZstdError as error:
            raise NotDecoded(str(error)) from None
    if len(found) > most:
        raise NotDecoded("it is suspiciously large")
    return found
