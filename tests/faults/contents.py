"""The contents of an archive in a bucket, as S3 itself lists them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamvault.layouts.keys import parse_record, parse_row

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class Contents:
    """An archive.

    Attributes:
        objects: key → (size, MD5 of its bytes), in the order of the listing; without manifests and unfinished work.
        manifests: generation → manifest without the moment it was made, and without its own digest.
        work: the keys of unfinished work.
    """

    objects: dict[str, tuple[int, str]]
    manifests: dict[int, dict[str, Any]]
    work: tuple[str, ...]

    @property
    def events(self) -> list[str]:
        """The keys of the events."""
        return [key for key in self.objects if key.startswith("events/")]

    @property
    def is_finished(self) -> bool:
        """Whether there is a manifest and no unfinished work."""
        return bool(self.manifests) and not self.work

    @property
    def is_unfinished(self) -> bool:
        """Whether there is a plan without its manifest."""
        return any(key.endswith("/plan.json") for key in self.work) and not self.manifests


def contents_of(client: S3Client, bucket: str, prefix: str) -> Contents:
    """List an archive; `prefix` ends with a slash."""
    objects: dict[str, tuple[int, str]] = {}
    manifests: dict[int, dict[str, Any]] = {}
    work = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            key = entry["Key"].removeprefix(prefix)
            record = parse_record(key)
            if record is not None and record.kind == "manifest" and not record.span.is_merged:
                manifest = json.loads(client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
                del manifest["created"], manifest["sha256"]
                manifests[record.span.last] = manifest
            elif key.startswith("_work/probe-"):
                pass  # a run was killed while it tried out what the server does; they are never read again
            elif key.startswith("_work/"):
                work.append(key)
            else:
                # each object is written in one piece, so its ETag is the MD5 of its bytes
                objects[key] = entry["Size"], entry["ETag"]
    return Contents(objects, manifests, tuple(work))


def rows_of(client: S3Client, bucket: str, prefix: str) -> tuple[bool, list[str]]:
    """Whether an archive has a plan, and the keys of the rows of finished ranges (at most 1,000)."""
    answer = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}_work/")
    keys = [entry["Key"].removeprefix(prefix) for entry in answer.get("Contents", [])]
    return any(key.endswith("/plan.json") for key in keys), [key for key in keys if parse_row(key) is not None]
