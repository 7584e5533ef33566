"""boto3's client for what obstore has no call for: storage classes, locks, restoring from an archive class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from objectstore.errors import AccessDenied, NoSuchBucket, NoSuchObject, ObjectStoreError, ObjectStoreUnavailable
from objectstore.s3 import S3Access

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["named_errors", "s3_client"]

CONNECTIONS = 16
"""Connections of a client; as many calls may be under way at once."""

_DENIED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_MISSING = {"NoSuchKey", "NoSuchVersion", "404"}


def s3_client(access: S3Access) -> S3Client:
    """A client for the same server with the same credentials as obstore's; boto3 retries by itself.

    Args:
        access: how the bucket is reached, as resolved on the driver.

    Raises:
        ObjectStoreError: the AWS configuration cannot be used.
    """
    config = Config(
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 6},
        s3={"addressing_style": "virtual" if access.virtual_host else "path"},
    )
    keys = access.keys
    with named_errors("use", access.endpoint):
        session = boto3.Session(profile_name=None if keys else access.profile)
        return session.client(
            "s3",
            region_name=access.region,
            endpoint_url=access.endpoint,
            aws_access_key_id=keys.access_key if keys else None,
            aws_secret_access_key=keys.secret_key if keys else None,
            aws_session_token=keys.token if keys else None,
            config=config,
        )


@contextmanager
def named_errors(action: str, where: str) -> Iterator[None]:
    """Turn boto3's errors into problems of one line.

    Args:
        action: what is done, for the message.
        where: the object's or the bucket's URI.

    Raises:
        AccessDenied, NoSuchBucket, NoSuchObject, ObjectStoreUnavailable: as named.
        ObjectStoreError: anything else.
    """
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _DENIED:
            raise AccessDenied(f"no permission to {action} ({code})", where=where) from None
        if code == "NoSuchBucket":
            raise NoSuchBucket("no such bucket", where=where) from None
        if code in _MISSING:
            raise NoSuchObject("no such object", where=where) from None
        raise ObjectStoreError(f"the server refuses to {action} ({code})", where=where) from None
    except BotoCoreError as error:
        raise ObjectStoreUnavailable(f"cannot {action}: {error}", where=where, todo="Try again later.") from None
