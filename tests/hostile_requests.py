"""What a thief sends to a server with a stolen login: requests of every kind, on keys of every kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from streamvault.layouts.keys import decision_key, manifest_key, ranges_key
from streamvault.manifests.files import seal
from streamvault.manifests.history import with_rows
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.manifest import GapEntry, IndexEntry
from testkit.small_archives import NAME, Vault, a_root, archive_of, contents, objects_of
from tests.policies import KEYS

NOTHING: dict[str, object] = {"dropped": 0, "swept": 0, "merged": [], "holds": []}


def forgeries(vault: Vault, *, generations: bool) -> dict[str, bytes]:
    """Return forged files, valid in form, by their keys below the archive's root.

    Args:
        vault: the archive and its stream, which has more.
        generations: whether to forge the next generation too, with its last ranges and gaps before them. It keeps an
            export from going on.
    """
    newest = archive_of(vault.root).listing().newest
    owner = {"scope": NAME.scope, "stream": NAME.stream, "created": "2026-11-20T00:00:00Z"}
    found: dict[str, bytes] = {}
    for number, fields in (
        (1, {"dropped": newest - 1}),
        (2, {"dropped": newest - 1}),
        (5, {"deletion": "decided", "format": 2}),
        (0x7FFFFFFF, {}),
    ):
        document = {"format": 1, **owner, "number": number, **NOTHING, **fields}
        found[f"{NAME}/{decision_key(number)}"] = seal(document)
    if not generations:
        return found
    twin, held = replace(vault, root=a_root()), contents(vault.root)
    for key, data in held.items():
        objects_of(twin.root).put(key, data)
    twin.export("chunks")
    honest = archive_of(twin.root).load(newest + 1)
    kept = [rows[-1] for _, rows in sorted(honest.rows.items())]
    gaps = tuple(
        GapEntry(
            segment=one.in_stream(NAME), start=rows[0].start, end=rows[-1].start, reason="truncated before it was read"
        )
        for one, rows in sorted(honest.rows.items())
        if len(rows) > 1
    )
    assert gaps
    index, span = encode_ranges(NAME, kept), honest.manifest.span
    manifest = with_rows(honest.manifest.model_copy(update={"gaps": gaps}), kept, None, "")
    manifest = manifest.model_copy(update={"index": IndexEntry.of(index)})
    found |= {f"{NAME}/{ranges_key(span)}": index, f"{NAME}/{manifest_key(span)}": manifest.encode()}
    return found | {key: data for key, data in contents(twin.root).items() if key not in held and "/chunks/" in key}


class Thief:
    """Sends hostile requests.

    Args:
        client: of S3, with the stolen login.
        bucket: the bucket.
        published: full key → content, of everything that may not change.
        forged: full key → content, of files that would mislead later runs.
        folders: the archives, each with a trailing slash.
        kinds: the kinds of keys (`KEYS`) that are written at random.
        seed: draws the requests.

    Attributes:
        sent: number of requests.
        granted: what the server has granted, by its name → number.
    """

    def __init__(
        self,
        client: Any,
        bucket: str,
        published: Mapping[str, bytes],
        forged: Mapping[str, bytes],
        folders: Sequence[str],
        kinds: Mapping[str, Sequence[str]],
        seed: int,
    ) -> None:
        self.sent = 0
        self.granted: Counter[str] = Counter()
        self._client, self._bucket, self._published, self._forged = client, bucket, published, forged
        self._kinds, self._folders, self._draw = kinds, folders, random.Random(seed)
        client.meta.events.register("before-send.s3", self._count)

    def rob(self, requests: int) -> None:
        """Send at least so many requests."""
        kinds: list[Callable[[], None]] = [
            *[self._put] * 6, *[self._forge] * 2, *[self._delete] * 4, self._delete_many, self._copy,
            self._move_in_parts, self._of_an_object, self._of_versions, self._of_the_bucket,
        ]  # fmt: skip
        while self.sent < requests:
            with suppress(ClientError, BotoCoreError):
                self._draw.choice(kinds)()

    def _count(self, **_: Any) -> None:
        self.sent += 1

    def _ask(self, operation: str, **arguments: Any) -> Any:
        answer = getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        self.granted[operation] += 1
        return answer

    def _key(self) -> str:
        """A key of something published, of any kind, or outside of every archive."""
        kind = self._draw.random()
        folder = self._draw.choice(self._folders)
        if kind < 0.5:
            return self._draw.choice(sorted(self._published))
        if kind < 0.9:
            return folder + self._changed(KEYS[self._draw.choice(self._kinds[folder])])
        return self._draw.choice(
            ["elsewhere/x", f"{folder}../x", f"{folder}x\ny", "backups/_line-x/s/t/_manifest/x", folder]
        )

    def _changed(self, key: str) -> str:
        """The key, or one with other numbers."""
        return "".join(self._draw.choice("0123") if c == "0" and self._draw.random() < 0.02 else c for c in key)

    def _body(self) -> bytes:
        """Nothing, noise, or the content of another object, whole, cut or with a bit flipped."""
        body = bytearray(self._draw.choice(sorted(self._published.values())))
        match self._draw.randrange(5):
            case 0:
                return b""
            case 1:
                return self._draw.randbytes(self._draw.randrange(1, 200))
            case 2 if body:
                body[self._draw.randrange(len(body))] ^= 1
            case 3:
                del body[len(body) // 2 :]
        return bytes(body)

    def _condition(self) -> dict[str, str]:
        return self._draw.choice([{}, {"IfNoneMatch": "*"}, {"IfMatch": "*"}])

    def _put(self) -> None:
        self._ask("put_object", Key=self._key(), Body=self._body(), **self._condition())

    def _forge(self) -> None:
        key = self._draw.choice(sorted(self._forged))
        self._ask("put_object", Key=key, Body=self._forged[key], IfNoneMatch="*")

    def _delete(self) -> None:
        self._ask("delete_object", Key=self._key())

    def _delete_many(self) -> None:
        keys = [{"Key": self._key()} for _ in range(20)]
        answer = self._ask("delete_objects", Delete={"Objects": keys})
        self.granted["deleted"] += len(answer.get("Deleted", ()))

    def _copy(self) -> None:
        source = {"Bucket": self._bucket, "Key": self._draw.choice(sorted(self._published))}
        self._ask("copy_object", Key=self._key(), CopySource=source, MetadataDirective="REPLACE")

    def _move_in_parts(self) -> None:
        key = self._key()
        upload = self._ask("create_multipart_upload", Key=key)["UploadId"]
        part = self._ask("upload_part", Key=key, UploadId=upload, PartNumber=1, Body=self._body())["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        self._ask("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload=parts, **self._condition())

    def _of_an_object(self) -> None:
        until = {"Mode": "GOVERNANCE", "RetainUntilDate": "2020-01-01T00:00:00Z"}
        choices: list[tuple[str, dict[str, Any]]] = [
            ("put_object_tagging", {"Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}),
            ("put_object_retention", {"Retention": until, "BypassGovernanceRetention": True}),
            ("put_object_legal_hold", {"LegalHold": {"Status": "OFF"}}),
            ("put_object_acl", {"ACL": "public-read-write"}),
            ("restore_object", {"RestoreRequest": {"Days": 1}}),
        ]  # fmt: skip
        operation, arguments = self._draw.choice(choices)
        self._ask(operation, Key=self._key(), **arguments)

    def _of_versions(self) -> None:
        if self._draw.random() < 0.5:
            self._ask("delete_object", Key=self._key(), VersionId="null")
        else:
            self._ask("list_object_versions", Prefix="backups/")

    def _of_the_bucket(self) -> None:
        everything = {"Rules": [{"ID": "x", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}}]}
        choices: list[tuple[str, dict[str, Any]]] = [
            ("delete_bucket", {}),
            ("delete_bucket_policy", {}),
            ("put_bucket_policy", {"Policy": "{}"}),
            ("put_bucket_lifecycle_configuration", {"LifecycleConfiguration": everything}),
            ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Suspended"}}),
        ]  # fmt: skip
        operation, arguments = self._draw.choice(choices)
        self._ask(operation, **arguments)
