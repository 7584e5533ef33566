"""Multipart uploads with botocore, as obstore cannot complete a multipart upload create-only."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from streamvault.objectstore.errors import AlreadyExists, ServerBusy
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.aws import shared_client
from streamvault.objectstore.s3.boto_errors import code_of, named_errors
from streamvault.objectstore.transfers import in_order

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
        ObjectStoreError: as `objectstore.s3.boto_errors.named_errors`.
    """
    client, where = shared_client(access), f"s3://{bucket}/{key}"
    place = {"Bucket": bucket, "Key": key}
    kind = {"ChecksumAlgorithm": "SHA256"} if access.checksum else {}
    with named_errors("put", where):
        begun = client.create_multipart_upload(**place, **kind, **options)
    place["UploadId"] = begun["UploadId"]

    def send(part: tuple[int, bytearray]) -> dict[str, Any]:
        number, data = part
        text = base64.b64encode(hashlib.sha256(data).digest()).decode() if kind else ""
        proof = {"ChecksumSHA256": text} if kind else {}
        with named_errors("put", where):
            answer = client.upload_part(**place, PartNumber=number, Body=data, **proof)
        return {"PartNumber": number, "ETag": answer["ETag"], **proof}

    try:
        sent = list(in_order(_parts(blocks), send, lambda part: len(part[1]), PARTS, PARTS * PART_BYTES))
        _complete(client, place, sent, where)
    except BaseException:
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(**place)
        raise


def _complete(client: Any, place: dict[str, str], parts: list[dict[str, Any]], where: str) -> None:
    with named_errors("put", where):
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
    except (ClientError, BotoCoreError):
        return False
    return True


def _parts(blocks: Iterable[bytes | bytearray | memoryview]) -> Iterator[tuple[int, bytearray]]:
    """Join the blocks into numbered parts; yields at least one."""
    number, held = 1, bytearray()
    for block in blocks:
        view = memoryview(block)
        while view:
            missing = PART_BYTES - len(held)
            held += view[:missing]
            view = view[missing:]
            if len(held) == PART_BYTES:
                yield number, held
                number, held = number + 1, bytearray()
    if held or number == 1:
        yield number, held
