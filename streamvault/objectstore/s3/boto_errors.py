"""Translates botocore's errors. Data moves through obstore; botocore serves requests that obstore does not support."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, SSLError  # noqa: A004  (as botocore has it)

from streamvault.objectstore.errors import (
    AccessDenied,
    NoSuchBucket,
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)
from streamvault.objectstore.s3.errors import TRANSIENT_CODES, TRANSIENT_STATUS

_FORBIDDEN = {"AccessDenied", "403", "Forbidden"}
_DENIED = {*_FORBIDDEN, "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidTokenId"}
_MISSING = {"NoSuchKey", "NoSuchVersion", "404"}


@contextmanager
def named_errors(action: str, where: str, permission: str = "") -> Iterator[None]:
    """Translate botocore's errors into object store errors.

    Args:
        action: the operation, for messages.
        where: the object's or the bucket's URI.
        permission: what the action needs, to be named if it is missing.

    Raises:
        AccessDenied: the credentials are invalid or lack permission.
        NoSuchBucket: the bucket does not exist.
        NoSuchObject: the object does not exist.
        ObjectStoreUnavailable: no answer came.
        ServerBusy: the server throttles or fails.
        ObjectStoreError: any other error.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        if (away := unavailable(error, action, where)) is not None:
            raise away from None
        if not isinstance(error, ClientError):
            raise ObjectStoreError(f"cannot {action}: {error}", where=where) from None
        code = code_of(error)
        if permission and code in _FORBIDDEN:
            raise AccessDenied(f"no permission to {action}", where=where, todo=f"Allow {permission} there.") from None
        if code in _DENIED:
            raise AccessDenied(f"no permission to {action} ({code})", where=where) from None
        if code == "NoSuchBucket":
            raise NoSuchBucket.of(where) from None
        if code in _MISSING:
            raise NoSuchObject("no such object", where=where) from None
        raise ObjectStoreError(f"the server refused to {action} ({code})", where=where) from None


def code_of(error: ClientError | BotoCoreError) -> str:
    """Return S3's error code; empty if there is none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def unavailable(error: ClientError | BotoCoreError, action: str, where: str) -> ObjectStoreUnavailable | None:
    """Return the error if a later retry may help (no answer, throttling or a server failure), else None."""
    if isinstance(error, ClientError):
        code = code_of(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in TRANSIENT_CODES or status in TRANSIENT_STATUS:
            what = f"cannot {action}: the server is busy or failing ({code})"
            return ServerBusy(what, where=where, todo="Try again later.")
    elif isinstance(error, ConnectionError | HTTPClientError) and not isinstance(error, SSLError):
        return ObjectStoreUnavailable(f"cannot {action}: {error}", where=where, todo="Try again later.")
    return None
