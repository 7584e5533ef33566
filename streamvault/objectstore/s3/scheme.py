"""Roots in S3 buckets, ``s3://BUCKET/PREFIX``, opened with obstore.

This module does not import botocore, whose import takes as long as a task takes for some hundred objects.
`objectstore.s3.aws` does, on the driver and where credentials must be renewed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from obstore.store import S3Store

from streamvault.objectstore.errors import InvalidRoot, ObjectStoreError
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.errors import BACKEND_ERRORS, translate
from streamvault.objectstore.scheme import Scheme, parse_path
from streamvault.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time

CONNECT_SECONDS = 5

# malloc.h of glibc
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 4 * 1024 * 1024
"""A buffer of at least this size returns to the system when it is freed."""

HEAPS = 2
"""Memory freed in one heap cannot be reused by threads assigned to another."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


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
    from streamvault.objectstore.s3.aws import renewed_credentials  # noqa: PLC0415  (imports botocore, see above)

    return renewed_credentials(profile)


class _S3Scheme(Scheme):
    form = "s3://BUCKET/PREFIX"
    has_storage_classes = True

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """The bucket and the prefix in it."""
        bucket, _, prefix = rest.partition("/")
        if not bucket:
            raise InvalidRoot("the URI has no bucket", where=repr(uri), todo=f"A root is {self.form}.")
        if {":", "@"} & set(bucket):
            todo = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
            raise InvalidRoot("a bucket URI must not contain credentials", where="s3://…", todo=todo)
        if not _BUCKET.fullmatch(bucket):
            raise InvalidRoot("invalid bucket name", where=repr(bucket), todo=f"A root is {self.form}.")
        return bucket, parse_path(prefix, uri)

    def resolve(self, place: str) -> S3Access:
        """Static credentials become part of the result; each process resolves renewable ones from the profile."""
        from streamvault.objectstore.s3.aws import resolve_access  # noqa: PLC0415  (imports botocore, which tasks avoid)

        return resolve_access(place)

    def open(
        self,
        place: str,
        path: str,
        access: S3Access,
        *,
        storage_class: str,
        retry_seconds: float,
        timeout_seconds: float,
    ) -> ObjectStore:
        """See the base class."""
        open_it = partial(open_bucket, place, access, timeout=timeout_seconds)

        def upload(key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
            from streamvault.objectstore.s3.multipart import upload  # noqa: PLC0415  (imports botocore; few objects need it)

            upload(access, place, key, blocks, storage_class=storage_class)

        store = ObstoreStore(
            open_it(),
            bucket=f"s3://{place}",
            prefix=path,
            endpoint=access.endpoint,
            patient=partial(open_it, patient=True),
            storage_class=storage_class,
            upload=upload,
        )
        return RetryingStore(store, total_seconds=retry_seconds)


SCHEME = _S3Scheme()
