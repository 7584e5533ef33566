"""Roots in S3 buckets: ``s3://BUCKET/PREFIX``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from objectstore.errors import InvalidRoot
from objectstore.obstore_store import ObstoreStore
from objectstore.retrying import RetryingStore
from objectstore.s3.access import S3Access
from objectstore.s3.bucket import open_bucket
from objectstore.scheme import Scheme, parse_path
from objectstore.store import ObjectStore

__all__ = ["SCHEME"]

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


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
        from objectstore.s3.aws import resolve_access  # noqa: PLC0415  (imports botocore, which tasks avoid)

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
            from objectstore.s3.multipart import upload  # noqa: PLC0415  (imports botocore; few objects need it)

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
