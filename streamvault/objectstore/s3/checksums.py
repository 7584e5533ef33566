"""Which checksum objects are sent with: the cheapest one that the server verifies."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from botocore.exceptions import BotoCoreError, ClientError

from streamvault.objectstore.errors import ObjectStoreError
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.aws import open_client
from streamvault.objectstore.s3.boto_errors import code_of
from streamvault.objectstore.s3.errors import SPOILED_CODES

_WRONG = "AAAAAAAAAAA="


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
            client.put_object(**place, Body=b"x", ChecksumCRC64NVME=_WRONG)
        except ClientError as error:
            return replace(access, checksum="CRC64NVME") if code_of(error) in SPOILED_CODES else access
        client.delete_object(**place)
    return access
