"""The logins of docs/reference/policies, on a real MinIO: each verb runs with its own, which permits nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from streamvault import (
    check_archive,
    check_setup,
    compact_archive,
    convert_archive,
    delete_archive,
    export_stream,
    follow_stream,
    hold_archive,
    import_stream,
    list_archives,
    release_archive,
    rotate_stream,
    show_status,
    warm_archive,
    write_table,
)
from streamvault.cli import main
from streamvault.common.units import now_utc
from streamvault.layouts.keys import chunk_key
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.s3.multipart import with_cheapest
from streamvault.objectstore.s3.store import BucketStore
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.minio import limited
from testkit.servers.s3 import S3Server
from testkit.servers.spoiling import SpoilingGateway
from testkit.streams import append_events, append_more
from tests.policies import CREATES, DELETES, FILES, FOLDER, KEYS, RECORDS, kinds_of, policy

pytestmark = pytest.mark.minio

NAME = StreamName("scope", "stream")
SMALL: dict[str, Any] = {"range_size": "1MiB", "window": "16MiB", "master": "inline"}
LOGINS = sorted(CREATES)
UNUSED = {
    **{name: set[str]() for name in LOGINS},
    "check": {"merged mark", "noted blocks", "merged noted blocks"},  # as of each generation; of earlier releases
    "compact": {"mark", "probe"},  # of a generation that an earlier run has not read back; of 512 MiB and more
    "convert": {"probe"},
    "handoff": {"table mark", "table metadata"},  # nothing writes the one; PyIceberg writes the other
    "rotate": {"merged mark", "probe"},
}
"""What a login may create and this test does not."""


@pytest.fixture
def bucket_name() -> str:
    """A short name: MinIO takes no policy of more than 2,048 characters for a login that is lent."""
    return f"vault-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def use(minio: S3Server, bucket: str, use_s3: Callable[[S3Server], None]) -> Callable[[str], None]:
    """A function that logs in with the permissions of one of the guide's policies."""

    def log_in(name: str) -> None:
        use_s3(limited(minio, policy(name, bucket)))

    return log_in


class Used:
    """The kinds of keys that each login has created and deleted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.login = ""
        self.created: dict[str, set[str]] = {name: set() for name in LOGINS}
        self.deleted: dict[str, set[str]] = {name: set() for name in LOGINS}
        monkeypatch.setattr(ObstoreStore, "put", self._noting(ObstoreStore.put, self.created))
        monkeypatch.setattr(BucketStore, "put_blocks", self._noting(BucketStore.put_blocks, self.created))
        monkeypatch.setattr(ObstoreStore, "delete", self._noting(ObstoreStore.delete, self.deleted))

    def _noting(self, function: Any, noted: dict[str, set[str]]) -> Any:
        def note(store: Any, keys: str | Sequence[str], *rest: Any) -> Any:
            full = [store._base + key for key in ([keys] if isinstance(keys, str) else keys)]
            below = [key.partition(f"{NAME}/")[2] for key in full]
            noted[self.login] |= kinds_of(below)
            return function(store, keys, *rest)

        return note


def test_each_verb_runs_with_its_own_login(
    use: Callable[[str], None], stream: str, bucket_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"s3://{bucket_name}/backups"
    used = Used(monkeypatch)

    def log_in(name: str) -> None:
        use(name)
        used.login = name

    for layout in ("events", "chunks"):
        here = f"{root}/{layout}"
        archive = f"{here}/{NAME}"
        log_in("export")
        assert check_setup(stream, here).passed
        assert export_stream(stream, here, layout=layout, **SMALL).warnings == ()
        append_more(stream)
        assert follow_stream(stream, here, layout=layout, idle=0.1, every=0.1, **SMALL).generation == 2
        with parse_stream(stream)[0].open() as store:
            append_events(store, NAME, min(store.describe(NAME).tail.offsets), [b"x" * 17_000_000])
        assert export_stream(stream, here, layout=layout, **SMALL).generation == 3
        log_in("import")
        assert [found.archive for found in list_archives(here)] == [archive]
        assert show_status(here).statuses[0].generation == 3
        compared = check_archive(archive, stored_checksums=True, master="inline")
        assert compared.ok
        unmarked = check_archive(archive, read_data=True, master="inline")
        assert (unmarked.ok, unmarked.marked) == (True, ())
        assert ["cannot be recorded" in note for note in unmarked.notes] == [True]
        import_stream(archive, f"local://{tmp_path}/streams/scope/{layout}", master="inline")
        log_in("warm")
        warm_archive(archive)
        log_in("check")
        assert check_archive(archive, read_data=True, master="inline").marked == (1, 2, 3)
        log_in("hold")
        hold_archive(archive, "audit", generation=1)
        release_archive(archive, "audit")
        log_in("convert")
        convert_archive(
            archive, f"{here}/converted", layout="events" if layout == "chunks" else "chunks", master="inline"
        )
        log_in("compact")
        assert compact_archive(archive, master="inline").runs
        with monkeypatch.context() as later:
            for module in ("manifests.merging", "exporter.compact"):
                later.setattr(f"streamvault.{module}.now_utc", lambda: now_utc() + timedelta(days=1))
            assert bool(compact_archive(archive, master="inline").objects_deleted) == (layout == "chunks")
        log_in("convert")
        convert_archive(archive, f"{here}/merged", layout=layout, master="inline")
        log_in("handoff")
        # of the archive, or of the stream, below a root of its own
        tables = here if layout == "events" else f"{here}/tables"
        if layout == "events":
            catalog = f"sql:sqlite:///{tmp_path}/catalog.db"
            write_table(archive, format="iceberg", table="lake.clicks", catalog=catalog, master="inline")
        else:
            write_table(stream, root=tables, format="parquet", table="clicks", master="inline")
        log_in("query")
        client = boto3.client("s3")
        prefix = f"{tables.removeprefix(f's3://{bucket_name}/')}/{NAME}/table/clicks/"
        (first, *_) = client.list_objects_v2(Bucket=bucket_name, Prefix=prefix)["Contents"]
        assert client.get_object(Bucket=bucket_name, Key=first["Key"])["ContentLength"] == first["Size"]
        log_in("rotate")
        append_more(stream)
        rotated = rotate_stream(
            stream, here, layout=layout, keep=1, truncate_source=layout == "chunks", hold="last", **SMALL
        )
        assert (rotated.generation, rotated.expired, rotated.truncated) == (4, (1, 2, 3), layout == "chunks")
        release_archive(archive, "last")
        log_in("delete")
        assert delete_archive(archive, yes=True).generations == (4,)
    assert {name: CREATES[name] - used.created[name] for name in used.created if name in CREATES} == UNUSED
    assert used.created["import"] - CREATES["import"] == {"mark"}  # and a note
    for name in LOGINS:
        assert used.created[name] <= CREATES[name] or name == "import", name
        assert used.deleted[name] <= DELETES[name], name


def test_verb_that_lacks_a_right_says_so_in_one_line(
    use: Callable[[str], None], minio: S3Server, stream: str, bucket_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    root = f"s3://{bucket_name}/backups"
    archive = f"{root}/{NAME}"

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = main([*arguments])
        lines = capfd.readouterr().err.splitlines()
        return code, [line for line in lines if line.startswith(("streamvault: ", "warning: "))]

    def is_refused(said: tuple[int, list[str]], key: str) -> None:
        code, lines = said
        assert (code, len(lines)) == (1, 1), lines
        assert re.search(rf"^streamvault: no permission to .*{key}.* Allow s3:\w+ there\b", lines[0]), lines[0]

    export = ("export", stream, root, "--layout", "chunks", "--range-size", "16KiB", "--master", "inline")
    with parse_stream(stream)[0].open() as store:
        segment, offset = min(store.describe(NAME).tail.offsets.items())
    stray = chunk_key(segment, offset + 9, 20)
    use("export")
    assert run(*export) == (0, [])
    append_more(stream)
    minio.client().put_object(Bucket=bucket_name, Key=f"backups/{NAME}/{stray}", Body=b"x" * 20)
    code, lines = run(*export)
    assert (code, len(lines)) == (0, 1)
    assert re.search(rf"^warning: .*'streamvault check {archive} --repair'$", lines[0])
    is_refused(run("hold", archive, "audit"), "_manifest/decisions/0000000001.json")
    is_refused(run("delete", archive, "--yes"), f"s3://{bucket_name}")
    is_refused(run("rotate", *export[1:], "--keep", "1"), "_manifest/0000000001.checked.json")
    is_refused(run("compact", archive, "--master", "inline"), "_work/0000000002-0000000001/plan.json")
    append_more(stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamvault.exporter.compact.FACTOR", 2)
        code, lines = run("follow", *export[1:], "--idle", "1s", "--every", "1s")
    assert (code, len(lines)) == (0, 1), lines
    assert re.search("^warning: some generations were not merged or read back: no permission to write", lines[0])
    use("import")
    append_more(stream)
    is_refused(run(*export), "_work/")
    use("check")
    is_refused(run("check", archive, "--repair"), stray)
    use("rotate")
    assert check_archive(archive, repair=True, read_data=True, master="inline").removed == 1
    assert check_archive(archive).strays == 0


@pytest.mark.parametrize("login", LOGINS)
def test_login_may_do_nothing_else(minio: S3Server, bucket: str, login: str) -> None:
    """Each kind of key, and archives whose streams are named like a folder of an archive."""
    server = limited(minio, policy(login, bucket))
    client, admin = server.client(), minio.client()
    base = "backups/scope/stream/"
    readable = "backups/scope/other/table/t/012345678901/generation=1/f.parquet"
    for key in ("elsewhere/x", readable, *(base + key for key in KEYS.values())):
        admin.put_object(Bucket=bucket, Key=key, Body=b"x")

    def allowed(operation: str, key: str, **arguments: Any) -> bool:
        try:
            getattr(client, operation)(Bucket=bucket, Key=key, **arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"AccessDenied", "403"}:
                raise
            return False
        return True

    reads = {kind for kind, key in KEYS.items() if allowed("head_object", base + key)}
    assert reads == (FILES if login == "query" else set(KEYS))
    assert {kind for kind, key in KEYS.items() if allowed("put_object", base + key, Body=b"x")} == CREATES[login]
    copies = {
        kind for kind, key in KEYS.items() if allowed("copy_object", base + key, CopySource=f"{bucket}/{readable}")
    }
    assert copies == CREATES[login]
    assert {kind for kind, key in KEYS.items() if allowed("delete_object", base + key)} == DELETES[login]
    other = [f"backups/scope/{name}/{KEYS[kind]}" for name in ("events", "chunks", "table") for kind in sorted(RECORDS)]
    denied = [key for key in other if kinds_of([key.split("/", 3)[3]]).isdisjoint(CREATES[login] | DELETES[login])]
    for key in [*denied, "elsewhere/x", "backups", "x"]:
        assert not allowed("put_object", key, Body=b"x"), key
        assert not allowed("delete_object", key), key
    assert not allowed("get_object", "elsewhere/x")
    with pytest.raises(ClientError, match="AccessDenied"):
        client.list_objects_v2(Bucket=bucket)


def test_every_write_is_create_only(
    minio: S3Server, stream: str, bucket_name: str, use_s3: Callable[[S3Server], None], tmp_path: Path
) -> None:
    """No server of the tests knows the policy of create-only.json, so a gateway enforces it as S3 describes it."""
    policy = json.loads((FOLDER / "create-only.json").read_text())
    (statement,) = policy["Statement"]
    assert statement["Condition"]["Null"] == {"s3:if-none-match": "true"}
    minio.make_bucket(bucket_name)
    with SpoilingGateway(minio.endpoint) as gateway:
        gateway.create_only = f"/{bucket_name}/backups/"
        use_s3(dataclasses.replace(minio, endpoint=gateway.endpoint))
        root = f"s3://{bucket_name}/backups"
        archive = f"{root}/{NAME}"
        with parse_stream(stream)[0].open() as store:
            append_events(store, NAME, min(store.describe(NAME).tail.offsets), [b"x" * 17_000_000])
        for _ in range(2):
            rotate_stream(
                stream, root, layout="chunks", range_size="1MiB", window="16MiB", keep=5, hold="audit", master="inline"
            )
            append_more(stream)
        release_archive(archive, "audit")
        assert compact_archive(archive, master="inline").runs
        rotate_stream(stream, root, layout="events", range_size="1MiB", window="16MiB", keep=1, master="inline")
        convert_archive(archive, f"{root}/converted", layout="events", master="inline")
        write_table(archive, format="parquet", master="inline")
        assert check_archive(archive, read_data=True, master="inline").ok
        keys = StaticKeys(minio.access_key, minio.secret_key)
        access = S3Access(gateway.endpoint, minio.region, virtual_host=False, keys=keys)
        assert with_cheapest(access, bucket_name, "backups/").checksum == "CRC64NVME"
        assert gateway.rejected == []
        with pytest.raises(ClientError, match="AccessDenied"):
            boto3.client("s3").put_object(Bucket=bucket_name, Key="backups/other", Body=b"x")
