"""What boto3 raises, as named problems of one line. Bytes go by obstore; boto3 does what that has no call for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from objectstore.errors import AccessDenied, NoSuchBucket, NoSuchObject, ObjectStoreError, ObjectStoreUnavailable

__all__ = ["named_errors"]

_DENIED = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_MISSING = {"NoSuchKey", "NoSuchVersion", "404"}


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
