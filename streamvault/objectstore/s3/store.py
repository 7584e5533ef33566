"""Objects in an S3 bucket, opened with obstore.

This module does not import botocore, whose import takes as long as a task takes for some hundred objects.
`objectstore.s3.aws` does, on the driver and where credentials must be renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any

from obstore.store import MemoryStore, S3Store

from streamvault.common.errors import Problem
from streamvault.common.processes import give_back_large_buffers
from streamvault.objectstore.obstore_store import BACKEND_ERRORS, ObstoreStore
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.errors import beyond_the_end, translate
from streamvault.objectstore.store import KeptChecksums, ObjectStoreError, check_key

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time

    from streamvault.objectstore.uri import RootAddress

CONNECT_SECONDS = 5

LARGE = 1024 * 1024
"""Larger objects (bytes) get a longer timeout: a slow upload does not mean a dead server."""


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
                # Without a checksum, the body's signature protects it.
                **({"checksum_algorithm": access.checksum} if access.checksum else {}),
                "unsigned_payload": bool(access.checksum),
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


class BucketStore(ObstoreStore):
    """Objects below a prefix of a bucket.

    Args:
        address: the root, resolved; its class is the S3 storage class of new objects, empty for the bucket's default.
        timeout: seconds, see `open_bucket`.
    """

    def __init__(self, address: RootAddress, *, timeout: float) -> None:
        bucket, self._access = address.place, address.access
        super().__init__(
            open_bucket(bucket, self._access, timeout=timeout), bucket=f"s3://{bucket}", prefix=address.prefix
        )
        self._name, self._class, self._timeout = bucket, address.data_class, timeout
        if self._class:
            self._attributes = {"Storage-Class": self._class}
        self._lock = Lock()
        self._patient: S3Store | None = None

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `ObjectStore.put_blocks`."""
        from streamvault.objectstore.s3.multipart import upload  # noqa: PLC0415  (imports botocore; few objects need it)

        check_key(key)
        options = {"StorageClass": self._class} if self._class else {}
        upload(self._access, self._name, self._base + key, blocks, options)

    def checksums(self, key: str) -> KeptChecksums:
        """See `ObjectStore.checksums`."""
        from streamvault.objectstore.s3.multipart import kept_checksums  # noqa: PLC0415  (imports botocore)

        check_key(key)
        return kept_checksums(self._access, self._name, self._base + key)

    def _backend_for(self, size: int) -> S3Store | MemoryStore:
        """The bucket; for a large object with longer timeouts, opened with the first one: many runs have none."""
        if size <= LARGE:
            return self._backend
        with self._lock:
            if self._patient is None:
                self._patient = open_bucket(self._name, self._access, timeout=self._timeout, patient=True)
        return self._patient

    def _problem(self, error: BaseException, action: str, key: str) -> Problem:
        where = f"{self._bucket}/{self._base}{key}"
        return translate(error, action=action, bucket=self._bucket, endpoint=self._access.endpoint, key=where)

    def _is_beyond_end(self, error: BaseException) -> bool:
        return beyond_the_end(error)
