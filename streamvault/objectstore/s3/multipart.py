"""Multipart uploads with botocore, which can be create-only, and the checksums that objects are sent with."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from threading import BoundedSemaphore
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from streamvault.objectstore.bulk import in_blocks, in_order
from streamvault.objectstore.retrying import Retries
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.aws import (
    MAX_CONNECTIONS,
    ask,
    code_of,
    named_errors,
    open_client,
    shared_client,
    unavailable,
)
from streamvault.objectstore.s3.errors import SPOILED_CODES
from streamvault.objectstore.store import AlreadyExists, KeptChecksums, ObjectStoreError, ServerBusy

PART_BYTES = 5 * 1024 * 1024
"""Size of each part but the last: S3's minimum. S3 allows 10,000 parts, so 49 GiB."""

PARTS = 2
"""Parts in flight. Together with the one being filled they fit the smallest window."""

_TAKEN = {"PreconditionFailed", "412"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted", "409"}
_GONE = {"NoSuchUpload", "404"}


def upload(
    access: S3Access, bucket: str, key: str, blocks: Iterable[bytes | bytearray | memoryview], options: dict[str, str]
) -> None:
    """Create an object atomically from blocks.

    A kill leaves the uploaded parts behind; they are invisible, and a lifecycle rule can remove them. S3 verifies each
    part's SHA-256, unless the access is without checksums. Each block is valid until the next is requested; ``options``
    are for `create_multipart_upload`.

    Raises:
        AlreadyExists: the key is taken.
        ObjectStoreError: as `objectstore.s3.aws.named_errors`.
    """
    client, where, retries = shared_client(access), f"s3://{bucket}/{key}", Retries(answered=True)
    place = {"Bucket": bucket, "Key": key}
    kind = {"ChecksumAlgorithm": "SHA256"} if access.checksum else {}
    begun = ask(retries, partial(client.create_multipart_upload, **place, **kind, **options), "put", where)
    place["UploadId"] = begun["UploadId"]

    def send(part: tuple[int, bytearray]) -> dict[str, Any]:
        number, data = part
        text = b64encode(hashlib.sha256(data).digest()).decode() if kind else ""
        proof = {"ChecksumSHA256": text} if kind else {}
        request = partial(client.upload_part, **place, PartNumber=number, Body=data, **proof)
        answer = ask(retries, request, "put", where)
        return {"PartNumber": number, "ETag": answer["ETag"], **proof}

    try:
        sent = list(in_order(_parts(blocks), send, lambda part: len(part[1]), PARTS, PARTS * PART_BYTES))
        ask(retries, partial(_complete, client, place, sent, where), "put", where)
    except BaseException:
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(**place)
        raise


def _complete(client: Any, place: dict[str, str], parts: list[dict[str, Any]], where: str) -> None:
    try:
        client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    except ClientError as error:
        code = code_of(error)
        # An attempt with a lost response may have completed it: then the upload is gone and the object exists.
        if code in _TAKEN or (code in _GONE and _is_there(client, place)):
            raise AlreadyExists("the object exists", where=where) from None
        if code in _CONFLICT:
            what = "another upload of the same object was completed at the same time"
            raise ServerBusy(what, where=where, todo="Run the same command again.") from None
        raise


def _is_there(client: Any, place: dict[str, str]) -> bool:
    try:
        client.head_object(Bucket=place["Bucket"], Key=place["Key"])
    except ClientError as error:
        if unavailable(error, "put", "") is not None:
            raise
        return False
    return True


def _parts(blocks: Iterable[bytes | bytearray | memoryview]) -> Iterator[tuple[int, bytearray]]:
    """Join the blocks into numbered parts; yields at least one."""
    number = 0
    for number, part in enumerate(in_blocks(blocks, PART_BYTES), 1):
        yield number, part
    if not number:
        yield 1, bytearray()


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
        ObjectStoreError: as `objectstore.s3.aws.named_errors`.
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
