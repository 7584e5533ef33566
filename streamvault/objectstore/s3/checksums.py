"""Which checksum objects are sent with, the cheapest one that the server verifies; and which the server keeps."""

from __future__ import annotations

import secrets
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from threading import BoundedSemaphore
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from streamvault.objectstore.checksums import KeptChecksums
from streamvault.objectstore.errors import ObjectStoreError
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.aws import MAX_CONNECTIONS, open_client, shared_client
from streamvault.objectstore.s3.boto_errors import code_of, named_errors
from streamvault.objectstore.s3.errors import SPOILED_CODES

_WRONG = "AAAAAAAAAAA="

_BYTES = {"CRC64NVME": 8, "SHA256": 32}
"""The checksums that are compared, and how long they are."""

_connections = BoundedSemaphore(MAX_CONNECTIONS)


@lru_cache(maxsize=16)
def with_cheapest(access: S3Access, bucket: str, folder: str) -> S3Access:
    """Return the access with CRC64NVME as checksum if the server verifies it.

    Asks by a put with a wrong one below ``folder``. Servers that know it reject that; others may take it, which makes
    an object of a byte that is deleted. Whatever happens, SHA-256 stays: an error that matters will come up again.
    """
    place = {"Bucket": bucket, "Key": f"{folder}probe-{secrets.token_hex(8)}/checksum"}
    with suppress(BotoCoreError, ClientError, ObjectStoreError):
        client = open_client(access)
        try:
            client.put_object(**place, Body=b"x", ChecksumCRC64NVME=_WRONG, IfNoneMatch="*")
        except ClientError as error:
            return replace(access, checksum="CRC64NVME") if code_of(error) in SPOILED_CODES else access
        client.delete_object(**place)
    return access


def kept_checksums(access: S3Access, bucket: str, key: str) -> KeptChecksums:
    """Return what the server says of an object, by a HEAD request. That works in archive classes, too.

    Raises:
        ObjectStoreError: as `objectstore.s3.boto_errors.named_errors`.
    """
    where = f"s3://{bucket}/{key}"
    with named_errors("read the checksums", where, "s3:GetObject, and kms:Decrypt for objects encrypted with KMS,"):
        client = shared_client(access)
        with _connections:
            found = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    return KeptChecksums(
        found["ContentLength"], **{name.lower(): _of_all_bytes(found, name, size) for name, size in _BYTES.items()}
    )


def _of_all_bytes(found: Any, algorithm: str, size: int) -> str:
    """Return a checksum; empty if there is none, or none of the object's bytes.

    The checksum of a multipart upload may be one of its parts' checksums (COMPOSITE). Some servers mistake it for the
    other one, or send another checksum in its place.
    """
    text = str(found.get(f"Checksum{algorithm}", ""))
    return text if found.get("ChecksumType") == "FULL_OBJECT" and len(text) == len(b64encode(bytes(size))) else ""
