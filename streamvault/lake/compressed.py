"""Compressed records, which are expanded in bounded memory: events must not fill it."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable

import pyarrow as pa

from streamvault.lake.payloads import NotDecoded, varint

LEAST_RECORD, MOST_RATIO, MOST_RECORD = 4096, 100, 64 * 1024 * 1024
"""A compressed record may have so many bytes, and this many for each of its own, up to the most."""


def expanded(expand: Callable[[bytes, int], bytes], data: bytes) -> bytes:
    """Return the record that some bytes are of.

    Args:
        expand: one of the functions of this module.
        data: the bytes.

    Raises:
        NotDecoded: they are not compressed so, or too well.
    """
    most = min(LEAST_RECORD + MOST_RATIO * len(data), max(MOST_RECORD, len(data)))
    try:
        return expand(data, most)
    except (zlib.error, OSError, ValueError, EOFError) as error:
        raise NotDecoded(str(error)) from None


def of_gzip(data: bytes, most: int) -> bytes:
    """Expand gzip, given the most bytes that may come of it; see `expanded`."""
    return _of_zlib(data, most, 31)


def of_deflate(data: bytes, most: int) -> bytes:
    """Expand bare deflate, see `of_gzip`."""
    return _of_zlib(data, most, -15)


def _of_zlib(data: bytes, most: int, wbits: int) -> bytes:
    unzip = zlib.decompressobj(wbits=wbits)
    return _whole(unzip.decompress(data, most), unzip.eof, unzip.unused_data)


def of_bzip2(data: bytes, most: int) -> bytes:
    """Expand bzip2, see `of_gzip`."""
    unzip = bz2.BZ2Decompressor()
    return _whole(unzip.decompress(data, most), unzip.eof, unzip.unused_data)


def _whole(found: bytes, eof: bool, rest: bytes) -> bytes:
    if not eof or rest:
        raise NotDecoded("it is cut off, followed by other data, or suspiciously large")
    return found


def of_snappy(data: bytes, most: int) -> bytes:
    """Expand Snappy's plain format, see `of_gzip`."""
    size, _ = varint(data, 0)
    if size > most:
        raise NotDecoded("it is suspiciously large")
    return pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True) if size else b""


def of_summed_snappy(data: bytes, most: int) -> bytes:
    """Expand Snappy with the CRC-32 of what it is of behind it, as Avro files have it; see `of_gzip`."""
    found = of_snappy(data[:-4], most)
    if data[-4:] != zlib.crc32(found).to_bytes(4, "big"):
        raise NotDecoded("its checksum is wrong")
    return found


def of_zstandard(data: bytes, most: int) -> bytes:
    """Expand Zstandard, see `of_gzip`."""
    import zstandard  # noqa: PLC0415

    with zstandard.ZstdDecompressor(max_window_size=MOST_RECORD).stream_reader(data) as reader:
        try:
            found = reader.read(most + 1)
        except zstandard.ZstdError as error:
            raise NotDecoded(str(error)) from None
    if len(found) > most:
        raise NotDecoded("it is suspiciously large")
    return found
