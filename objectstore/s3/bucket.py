"""Opens a bucket with obstore.

This module does not import botocore, whose import takes as long as a task takes for some hundred objects.
`objectstore.s3.aws` does, on the driver and where credentials must be renewed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from obstore.store import S3Store

from objectstore.errors import ObjectStoreError
from objectstore.s3.access import S3Access
from objectstore.s3.errors import BACKEND_ERRORS, translate

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time

__all__ = ["give_back_large_buffers", "open_bucket"]

CONNECT_SECONDS = 5

# malloc.h of glibc
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 4 * 1024 * 1024
"""A buffer of at least this size returns to the system when it is freed."""

HEAPS = 2
"""Memory freed in one heap cannot be reused by threads assigned to another."""


@cache
def give_back_large_buffers() -> None:
    """Tune glibc's malloc so that freed large buffers return to the system at once, also in future forks.

    obstore allocates the parts of large objects. By default glibc keeps freed buffers of up to 32 MiB for reuse, in up
    to eight heaps per core: a task process that had moved 4 GB held 284 MiB, a third of it in use.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, HEAPS)


def open_bucket(bucket: str, access: S3Access, *, timeout: float, patient: bool = False) -> S3Store:
    """Open a bucket without sending a request. obstore's retries are disabled, see `objectstore.retrying`.

    Args:
        bucket: its name.
        access: how to reach it.
        timeout: seconds without a received byte after which a request fails. No byte arrives during an upload, so it
            limits uploads too.
        patient: for large objects: a request fails only after ten times ``timeout`` in total.
    """
    give_back_large_buffers()
    scheme, _, host = access.endpoint.partition("://")
    encrypted = scheme == "https"
    client: dict[str, Any] = {
        "allow_http": not encrypted,
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=timeout * 10),
        "user_agent": "streamvault",
    }
    if not patient:
        client["read_timeout"] = timedelta(seconds=timeout)
    if access.authorities:
        client["root_certificate"] = access.authorities
    provider = access.keys or _renewed(access.profile)
    try:
        return S3Store(
            bucket,
            # Sets everything obstore would otherwise read from the environment, so that boto3's resolution applies.
            config={
                "endpoint": f"{scheme}://{bucket}.{host}" if access.virtual_host else access.endpoint,
                "region": access.region,
                "virtual_hosted_style_request": access.virtual_host,
                "skip_signature": False,
                "conditional_put": "etag",
                # The server verifies the body against the checksum, and requires one where Object Lock has a default
                # retention. The header is signed, so signing the body as well would only hash it twice.
                "checksum_algorithm": "sha256",
                "unsigned_payload": True,
            },
            client_options=client,  # type: ignore[arg-type]  # a TypedDict, built in two steps
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=timeout)},
            credential_provider=provider,
        )
    except BACKEND_ERRORS as error:
        if "InvalidCertificate" in str(error):
            raise ObjectStoreError("AWS_CA_BUNDLE contains an invalid certificate") from None
        raise translate(error, action="get", bucket=f"s3://{bucket}", endpoint=access.endpoint, key=bucket) from None


def _renewed(profile: str | None) -> Callable[[], S3Credential]:
    from objectstore.s3.aws import renewed_credentials  # noqa: PLC0415  (imports botocore, see above)

    return renewed_credentials(profile)
