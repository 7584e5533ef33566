"""Whoever may write into a table's folder, and the server of a catalog, make a handoff do nothing but a handoff."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from streamvault import write_table
from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.lake.catalogs import open_catalog
from streamvault.lake.location import TablePlace
from streamvault.lake.reports import HandoffReport
from streamvault.lake.table import find_options
from streamvault.manifests.archive import Archive
from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.uri import RootAddress
from testkit.killed import before_call
from testkit.small_archives import NAME, Vault

RESERVED = "write.py-location-provider.impl"
HONEST = {
    "comment": "of the shop",
    "EXTERNAL": "TRUE",
    "cost-center": "17",
    "flink.watermark": "at",
    "commit.retry.num-retries": "4",
    "created-at": "2026-01-01T00:00:00Z",
    "format-version": "2",
    "gc.enabled": "true",
    "history.expire.min-snapshots-to-keep": "3",
    "nessie.commit.id": "a",
    "note": "another writer's",
    "owner": "ops",
    "trino.stats.ndv.1.ndv": "3",
    "vacuum_max_snapshot_age_seconds": "432000",
    "write.delete.mode": "merge-on-read",
    "write.distribution-mode": "hash",
    "write.format.default": "parquet",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
    "write.object-storage.enabled": "true",
    "write.parquet.compression-codec": "zstd",
    "write.spark.accept-any-schema": "true",
    "write_compression": "zstd",
}
"""What Spark, Trino, Athena, Hive and Nessie set."""


class Lake:
    """A table of one generation in a catalog in SQLite, and a second generation that is not handed off yet."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.vault = folder, Vault(folder, f"file://{folder}/objects")
        (folder / "objects").mkdir()
        self.vault.create()
        self.vault.add(b"first")
        self.hand_off()
        self.vault.add(b"second")
        self.victim = folder / "objects/victim.txt"
        self.victim.write_text("of the operator")

    def hand_off(self) -> HandoffReport:
        catalog = f"sql:sqlite:///{self.folder}/catalog.db"
        return write_table(
            self.vault.uri(), root=self.vault.root, table="lake.stream", catalog=catalog, master="inline[1]"
        )

    @property
    def table(self) -> Table:
        return SqlCatalog("streamvault", uri=f"sqlite:///{self.folder}/catalog.db").load_table(("lake", "stream"))

    @property
    def place(self) -> TablePlace:
        return self.place_of("stream")

    @property
    def files_folder(self) -> Path:
        return Path(self.place.location.removeprefix("file://"))

    def place_of(self, table: str) -> TablePlace:
        archive = Archive(RootAddress.parse(self.vault.root).resolve(), NAME).table_archive(table)
        options = find_options(archive)
        assert options is not None
        return TablePlace("lake", options, archive)

    def forge(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the table's newest metadata as whoever may write into its folder can."""
        metadata = json.loads(self.newest.read_text())
        change(metadata)
        self.newest.write_text(json.dumps(metadata))

    @property
    def newest(self) -> Path:
        """The newest metadata."""
        return max((self.files_folder / "metadata").glob("*.metadata.json"))

    def files(self) -> set[Path]:
        return {path for path in (self.files_folder).rglob("*") if path.is_file()}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("made"))


@pytest.fixture
def shared(made: Lake) -> Iterator[Lake]:
    """A lake for tests that change only the newest metadata, which are put back."""
    before = made.newest.read_bytes()
    yield made
    made.newest.write_bytes(before)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the module ``planted`` was imported."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nX = None\n")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return tmp_path / "ran"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "py-io-impl",
            RESERVED,
            "metrics-reporter-impl",
            "write.location-provider.impl",
            "s3.endpoint",
            "s3.signer.uri",
        ),
        *(
            "s3.access-key-id",
            "client.role-arn",
            "gcs.service.host",
            "hdfs.host",
            "encryption.key-id",
            "DEFAULT_SCHEME",
        ),
    ],
)
def test_property_that_is_not_known_to_be_harmless_is_refused(shared: Lake, ran: Path, name: str) -> None:
    shared.forge(lambda metadata: metadata["properties"].update({name: "planted.X"}))
    before = shared.files()
    with pytest.raises(Conflict, match=f"has a property that may run code.*: {name}") as refused:
        shared.hand_off()
    assert "UNSET TBLPROPERTIES" in refused.value.todo
    assert not ran.exists()
    assert shared.files() == before, "nothing is written"


def in_log(metadata: dict[str, Any], file: str) -> None:
    metadata["properties"] |= HONEST
    metadata["metadata-log"] = [{"timestamp-ms": metadata["last-updated-ms"] - 1, "metadata-file": file}]


def in_snapshot(metadata: dict[str, Any], file: str) -> None:
    metadata["snapshots"][0]["manifest-list"] = file


def in_statistics(metadata: dict[str, Any], file: str) -> None:
    said = {"snapshot-id": metadata["current-snapshot-id"], "statistics-path": file, "file-size-in-bytes": 1}
    metadata["statistics"] = [{**said, "file-footer-size-in-bytes": 1, "blob-metadata": []}]
    metadata["partition-statistics"] = []


OUTSIDE = (
    "file://{root}/victim.txt",
    "file://{folder}/../../../../victim.txt",
    "file://{folder}/.\t./.\n./.\r./.\t./victim.txt",
    "{root}/victim.txt",
    "s3://other/key",
)
"""PyIceberg drops tabs and line breaks from an address, as ``urllib.parse`` does."""


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("place", [in_log, in_snapshot, in_statistics])
def test_file_outside_the_tables_folder_is_refused(
    shared: Lake, place: Callable[[dict[str, Any], str], None], outside: str
) -> None:
    file = outside.format(root=shared.folder / "objects", folder=shared.files_folder)
    shared.forge(lambda metadata: place(metadata, file))
    before = shared.files()
    with pytest.raises(Damaged, match="name a file outside the table's folder") as refused:
        shared.hand_off()
    assert "restore it from a backup" in refused.value.todo
    assert shared.files() == before, "nothing is written"
    assert shared.victim.exists()


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_property_that_names_a_folder_elsewhere_is_refused(shared: Lake, name: str, outside: str) -> None:
    path = outside.format(root=shared.folder / "objects", folder=shared.files_folder)
    shared.forge(lambda metadata: metadata["properties"].update({name: path}))
    with pytest.raises(Conflict, match=f"has a property that may run code, or make files be .* elsewhere: .*{name}"):
        shared.hand_off()


def test_link_out_of_the_tables_folder_is_refused(shared: Lake) -> None:
    link = shared.files_folder / "linked"
    link.symlink_to(shared.victim.parent)
    shared.forge(lambda metadata: in_log(metadata, f"file://{link}/victim.txt"))
    with pytest.raises(Damaged, match="outside the table's folder"):
        shared.hand_off()
    assert shared.victim.exists()
    link.unlink()


def test_metadata_elsewhere_are_refused(lake: Lake) -> None:
    """The catalog's pointer."""
    table = lake.table
    other = lake.folder / "objects/00001-0.metadata.json"
    other.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    catalog = cast("SqlCatalog", table.catalog)
    catalog.drop_table(("lake", "stream"))
    catalog.register_table(("lake", "stream"), f"file://{other}")
    with pytest.raises(Damaged, match="outside the table's folder"):
        lake.hand_off()


@pytest.mark.parametrize("outside", [True, False])
def test_manifest_may_name_only_data_files_of_the_folder(lake: Lake, outside: bool) -> None:
    data = next(path for path in lake.files() if path.suffix == ".parquet")
    copy = (lake.folder if outside else data.parent) / "copy.parquet"
    copy.write_bytes(data.read_bytes())
    lake.table.add_files([f"file://{copy}"])
    if not outside:
        assert lake.hand_off().registered == (2,)
        return
    with pytest.raises(Damaged, match=r"outside the table's folder.*copy\.parquet"):
        lake.hand_off()
    assert len(lake.table.history()) == 2


def test_manifest_list_may_name_only_manifests_of_the_folder(lake: Lake) -> None:
    """It is opened by PyIceberg itself."""
    moved = lake.folder / "moved.avro"
    [manifest] = lake.table.inspect.manifests()["path"].to_pylist()
    Path(manifest.removeprefix("file://")).rename(moved)
    Path(manifest.removeprefix("file://")).symlink_to(moved)
    with pytest.raises(Damaged, match="outside the table's folder"):
        lake.hand_off()


def test_file_is_added_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        TablePlace, "files", lambda *_: [str(task.file.file_path) for task in lake.table.scan().plan_files()]
    )
    with pytest.raises(Conflict, match="already has a file that is to be added"):
        lake.hand_off()


def test_metadata_that_are_changed_behind_the_check_are_refused(
    lake: Lake, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit reads them again."""
    before_call(
        monkeypatch,
        Table,
        "_do_commit",
        lambda: lake.forge(lambda metadata: metadata["properties"].update({RESERVED: "planted.X"})),
    )
    with pytest.raises(Conflict, match="has a property that may run code"):
        lake.hand_off()
    assert not ran.exists()


@pytest.mark.parametrize("planted", ["here", "home"])
def test_settings_in_the_working_folder_are_refused(
    shared: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    for name in ("here", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    (tmp_path / planted / ".pyiceberg.yaml").write_text("catalog:\n  house:\n    s3.proxy-uri: http://127.0.0.1:9\n")
    catalog = open_catalog(f"sql:sqlite:///{shared.folder}/catalog.db", "iceberg")
    if planted == "home":
        assert catalog.identity(shared.place)
        return
    with pytest.raises(Usage, match=r"settings of PyIceberg in the working folder.*/here/\.pyiceberg\.yaml"):
        catalog.identity(shared.place)


def test_properties_of_engines_are_accepted_and_nothing_is_deleted(lake: Lake) -> None:
    folder = f"file://{lake.files_folder}"
    with lake.table.transaction() as change:
        change.set_properties(
            {**HONEST, "write.object-storage.path": f"{folder}/data", "write.metadata.path": f"{folder}/metadata"}
        )
    for number in (2, 3, 4):
        before = lake.files()
        assert lake.hand_off().registered == (number,)
        assert before <= lake.files()
        lake.vault.add(b"more")
    assert len(lake.table.scan().to_arrow()) == 4
    assert len(lake.table.metadata.metadata_log) == 1, "as the engines have set it"


KEYS = StaticKeys("mine", "secret of mine", "token of mine")
ACCESS = S3Access(endpoint="http://127.0.0.1:1", region="here", virtual_host=False, keys=KEYS)
HOSTILE = {
    **dict.fromkeys(("s3.endpoint", "s3.proxy-uri", "s3.signer.uri", "oauth2-server-uri", "uri"), "http://127.0.0.1:9"),
    **dict.fromkeys(("s3.region", "py-io-impl", "token"), "planted.X"),
    "rest.sigv4-enabled": "true",
}
VENDED = {"s3.access-key-id": "lent", "s3.secret-access-key": "secret of the lent one"}


@contextmanager
def rest_server(config: dict[str, Any], of_table: dict[str, Any], *, is_there: bool = True) -> Iterator[str]:
    """A catalog's server and its address. It has a table, or is asked to create it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_config = "/config" in self.path
            error = {"error": {"message": "", "type": "NoSuchTableException", "code": 404}}
            self.answer(200 if is_config or is_there else 404, config if is_config else of_table if is_there else error)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, of_table if "/tables" in self.path else {"namespace": ["lake"]})

        def answer(self, code: int, content: dict[str, Any]) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("vended", [{}, VENDED, {**VENDED, "s3.session-token": "lent for an hour"}])
def test_rest_server_sets_nothing_but_a_login_for_the_table(
    shared: Lake, ran: Path, monkeypatch: pytest.MonkeyPatch, vended: dict[str, str]
) -> None:
    place, newest = shared.place, shared.newest
    metadata = json.loads(newest.read_text())
    monkeypatch.setattr(RootAddress, "access", ACCESS)
    of_table = {"metadata-location": f"file://{newest}", "metadata": metadata, "config": {**HOSTILE, **vended}}
    with rest_server({"defaults": HOSTILE, "overrides": {**HOSTILE, "prefix": "p"}}, of_table) as uri:
        catalog = cast("Any", open_catalog(f"rest:{uri}", "iceberg"))
        assert catalog.identity(place) == uri
        found = catalog._find(place)
    settings = found.io.properties
    own = {"s3.access-key-id": "mine", "s3.secret-access-key": "secret of mine", "s3.session-token": "token of mine"}
    assert {name: settings.get(name) or None for name in own} == ({**dict.fromkeys(own), **vended} if vended else own)
    assert {name: settings[name] for name in HOSTILE if name in settings} == {
        "s3.endpoint": ACCESS.endpoint,
        "s3.region": ACCESS.region,
        "uri": uri,
    }
    assert (found.catalog.uri, settings["prefix"]) == (uri, "p")
    assert not ran.exists()


def test_table_that_a_rest_server_puts_elsewhere_is_not_created(lake: Lake) -> None:
    write_table(lake.vault.uri(), root=lake.vault.root, table="lake.other", master="inline[1]")
    place = lake.place_of("other")
    metadata = {**json.loads(lake.newest.read_text()), "location": f"file://{lake.folder}/elsewhere"}
    with (
        rest_server({"defaults": {}, "overrides": {}}, {"metadata": metadata, "config": {}}, is_there=False) as uri,
        pytest.raises(Conflict, match=r"at another location: file://.*/elsewhere"),
    ):
        open_catalog(f"rest:{uri}", "iceberg").publish(place, place.archive.load(1))
    assert not (lake.folder / "elsewhere").exists()


def test_no_file_is_written_outside_the_tables_folder(shared: Lake) -> None:
    catalog = cast("Any", open_catalog(f"sql:sqlite:///{shared.folder}/catalog.db", "iceberg"))
    files = catalog._find(shared.place).io
    with pytest.raises(Damaged, match="outside the table's folder"):
        files.new_output(f"file://{shared.victim}")
    files.delete(f"file://{shared.newest}")
    assert shared.newest.exists()
