"""Roots in S3 buckets, ``s3://BUCKET/PREFIX``. Modules that import botocore are imported late: tasks seldom need it."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamvault.common import logins
from streamvault.common.errors import Usage
from streamvault.common.tls import speaks_tls
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.s3.access import ARCHIVE_CLASSES, S3Access, access_from_environment
from streamvault.objectstore.s3.store import BucketStore
from streamvault.objectstore.store import ColdStorage, InvalidRoot, ObjectLocks, ObjectStore, ObjectStoreError
from streamvault.objectstore.uri import Scheme, parse_path

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress


WORTH_ASKING = 512 * 1024 * 1024
"""Bytes for which the cheapest checksum saves more processor time than it takes to load botocore and ask."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_STORAGE_CLASS = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class _S3Scheme(Scheme):
    form = "s3://BUCKET/PREFIX"
    may_be_cold = True

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
        if (access := access_from_environment()) is None:
            from streamvault.objectstore.s3.aws import resolve_access  # noqa: PLC0415  (botocore, which tasks avoid)

            access = resolve_access(place)
        return access if logins.are_sent() else replace(access, keys=None)

    def probe(self, address: RootAddress, folder: str, size: int) -> S3Access:
        """See the base class; it is the checksum."""
        access: S3Access = address.access
        if size < WORTH_ASKING or not access.checksum:
            return access
        from streamvault.objectstore.s3.multipart import with_cheapest  # noqa: PLC0415

        return with_cheapest(access, address.place, f"{address.prefix}/{folder}".lstrip("/"))

    def open(self, address: RootAddress, *, retry_seconds: float, timeout_seconds: float) -> ObjectStore:
        """See the base class."""
        reach = partial(check_plain, address.access.endpoint, f"s3://{address.place}")
        return RetryingStore(BucketStore(address, timeout=timeout_seconds), total_seconds=retry_seconds, reach=reach)

    def check_data_class(self, name: str, root: str) -> None:  # noqa: ARG002
        """See the base class; it is the storage class."""
        if not _STORAGE_CLASS.fullmatch(name):
            todo = "Use S3's name, for example STANDARD_IA."
            raise Usage("not a storage class", where=repr(name), todo=todo)

    def check_read_at_once(self, name: str) -> None:
        """See the base class."""
        if name in ARCHIVE_CLASSES:
            raise Usage(
                "a rotation reads back what it has written, which this storage class does not allow",
                where=name,
                todo="Use GLACIER_IR, or have a lifecycle rule move the objects later.",
            )

    def open_locks(self, address: RootAddress) -> ObjectLocks | None:
        """See the base class."""
        from streamvault.objectstore.s3.cold import open_locks  # noqa: PLC0415

        return open_locks(address)

    def open_cold_storage(self, address: RootAddress) -> ColdStorage:
        """See the base class."""
        from streamvault.objectstore.s3.cold import BucketColdStorage  # noqa: PLC0415

        return BucketColdStorage(address)


SCHEME = _S3Scheme()


REACH_SECONDS = 2.0
"""How long a server may be silent that is asked whether it speaks TLS."""


def check_plain(endpoint: str, bucket: str) -> None:
    """Check that a server is not addressed by ``http://`` although it speaks TLS.

    The opposite is told by the first answer. This is not: some servers say so in a text, others hang up.

    Args:
        endpoint: the server's URL.
        bucket: the bucket's URI.

    Raises:
        ObjectStoreError: it speaks TLS.
    """
    url = urlsplit(endpoint)
    if url.scheme != "http":
        return
    with suppress(OSError), socket.create_connection((url.hostname, url.port or 80), timeout=REACH_SECONDS) as plain:
        if speaks_tls(plain):
            todo = "Use https:// in AWS_ENDPOINT_URL."
            raise ObjectStoreError("the server speaks TLS", where=f"{bucket} at {endpoint}", todo=todo)
