"""The page and the charts, and the checks of a set-up, on the embedded store."""

from __future__ import annotations

import errno
import json
import re
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import altair as alt
import pytest

from streamvault import check_setup, hold_archive, write_report
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.common.units import now_utc
from streamvault.inspect import doctor, write
from streamvault.inspect.reports import SetupCheck, SetupReport
from streamvault.manifests.verbs.costs import Requests
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AccessDenied, ObjectInfo
from streamvault.runner.runner import NoJava
from streamvault.streamstore.model import StreamConfiguration
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault, a_root, a_vault, objects_of
from tests.counting import counted
from tests.told import Ran

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(tags=(HOSTILE,)))
    vault.add(b"one", b"two")
    vault.export()
    vault.add(b"three")
    vault.export("chunks")
    return vault


class Elements(HTMLParser):
    """The elements of a page, and the specifications in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.specs: list[dict[str, object]] = []
        self._in_spec = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_spec = tag == "script" and dict(attrs).get("class") == "spec"

    def handle_endtag(self, _tag: str) -> None:
        self._in_spec = False

    def handle_data(self, data: str) -> None:
        if self._in_spec:
            self.specs.append(json.loads(data))


def page_of(place: str, folder: Path, **options: str) -> tuple[str, Elements]:
    file = folder / "page.html"
    report = write_report(place, output=file, **options)
    assert report.file == str(file)
    text = file.read_text()
    return text, Elements(text)


def test_page_of_an_archive(vault: Vault, tmp_path: Path) -> None:
    hold_archive(vault.archive, "audit", generation=1)
    text, found = page_of(vault.archive, tmp_path)
    assert [tag for tag, _ in found.tags].count("h3") == 5
    for spec in found.specs:  # valid by Vega-Lite's schema, with the data
        alt.Chart.from_dict(spec) if "layer" not in spec else alt.LayerChart.from_dict(spec)
    heat, bars, segments = ([*spec["datasets"]["rows"]] for spec in found.specs)  # type: ignore[index]
    assert [(row["generations"], row["bytes"]) for row in heat] == [("1", "22"), ("2", "13")]
    assert [row["bytes per second"] == "not known" for row in heat] == [True, False]
    assert float(heat[1]["bytes per second"].replace(",", "")) == pytest.approx(heat[1]["rate"], rel=0.1)
    assert [row["state"] for row in bars] == ["held", "not read back"]
    assert [(row["segment"], row["bytes"], row["events"]) for row in segments] == [("0.#epoch.0", "35", "3")]
    assert f"streamvault import {vault.archive} STREAM --generation 1" in text


def test_page_runs_no_text_of_the_stream_and_loads_nothing(vault: Vault, tmp_path: Path) -> None:
    text, found = page_of(vault.archive, tmp_path)
    assert "alert(1)" in text  # the tag is shown, as text
    assert HOSTILE not in text
    assert "img" not in [tag for tag, _ in found.tags]
    assert not [attributes for _, attributes in found.tags if {"src", "onerror"} & attributes.keys()]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in found.tags)
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none';")


def test_page_of_a_root_has_a_row_and_a_section_for_each_archive(vault: Vault, tmp_path: Path) -> None:
    vault.export("events", same_stream=True)
    text, found = page_of(vault.root, tmp_path)
    assert [a.get("id") for tag, a in found.tags if tag == "section"] == ["a0"]
    assert '<a href="#a0">scope/stream</a>' in text
    row = text[text.index('<a href="#a0">') :].partition("</tr>")[0]
    assert re.search(r">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</td>", row), "a time as in the rest of the page"


@pytest.mark.parametrize("is_root", [True, False])
def test_each_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_root: bool) -> None:
    vault = Vault(tmp_path, root := a_root())
    vault.make(events=5)
    for _ in range(3):
        vault.export(same_stream=True)
        vault.add(b"more")
    of_folders = 3 if is_root else 0  # the root, the scope, and the first archive in it
    with counted(monkeypatch) as requests:
        write_report(root if is_root else vault.archive, output=tmp_path / "page.html")
    assert requests == [Requests(0, of_folders + 1, 3)]


def test_page_of_a_root_with_many_archives_has_the_table_only(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MAX_SECTIONS", 0)
    _, found = page_of(vault.root, tmp_path)
    assert found.specs == []
    assert write_report(vault.root, output=tmp_path / "page.html").warnings == (
        "charts are drawn for up to 0 archives; there are 1: name one",
    )


def test_page_of_a_stream_has_the_live_tail(vault: Vault, tmp_path: Path) -> None:
    vault.add(b"four")
    _, found = page_of(vault.uri(), tmp_path)
    (spec,) = found.specs
    assert [row["bytes"] for row in spec["datasets"]["rows"]] == ["47"]  # type: ignore[index]


def test_what_is_not_archived_yet_is_counted(vault: Vault, tmp_path: Path) -> None:
    for expected in (0, 12):
        assert write_report(vault.archive, output=tmp_path / "a.html", stream=vault.uri()).unarchived == expected
        vault.add(b"four")


def test_another_stream_is_not_taken_for_the_archived_one(vault: Vault, tmp_path: Path) -> None:
    other = Vault(tmp_path / "other")
    other.create(segments=2)
    with pytest.raises(Conflict, match="is not the one that was archived"):
        write_report(vault.archive, output=tmp_path / "a.html", stream=other.uri())


def test_charts_are_written_as_svg_and_are_the_same_each_time(vault: Vault, tmp_path: Path) -> None:
    written = [write_report(vault.archive, svg=tmp_path / name).charts for name in ("one", "two")]
    names = [Path(file).relative_to(tmp_path / "one") for file in written[0]]
    assert [str(name) for name in names] == [f"{NAME}/{chart}.svg" for chart in ("heat-map", "generations", "segments")]
    for one, two in zip(*written, strict=True):
        assert Path(one).read_text().startswith("<svg")
        assert Path(one).read_bytes() == Path(two).read_bytes()


def test_errors_are_one_line(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    file = tmp_path / "a.html"
    with pytest.raises(Usage, match="nothing to write"):
        write_report(vault.archive)
    with pytest.raises(Usage, match=r"^stream applies to one archive"):
        write_report(vault.root, output=file, stream=vault.uri())
    assert re.fullmatch(
        r"streamvault: the file cannot be written .*\n",
        ran("report", vault.archive, "-o", "/dev/null/a.html", code=1).err,
    )
    assert ran("report", f"{vault.root}/none", "-o", str(file), code=5).err.count("\n") == 1
    for module in ("page", "charts"):
        monkeypatch.delitem(sys.modules, f"streamvault.inspect.{module}", raising=False)
    monkeypatch.delattr("streamvault.inspect.page", raising=False)
    monkeypatch.setitem(sys.modules, "altair", None)
    assert "pip install 'streamvault[report]'" in ran("report", vault.archive, "-o", str(file), code=2).err
    assert not file.exists()


def test_a_page_is_replaced_whole(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")

    def full(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:100].encode(encoding))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(Failed, match="No space left"):
            write_report(vault.archive, output=file)
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".page")] == []
    write_report(vault.archive, output=file)
    assert file.read_text().startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".page")] == []


PATIENT = 60.0
STREAM_CHECKS = ("controller", "stream", "segment stores")
ROOT_CHECKS = ("root", "writes", "create-only", "listing order", "clock")
MACHINE_CHECKS = ("Python", "Spark", "Java")


set_up = a_vault(segments=2)


@pytest.fixture
def hung() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def results(report: SetupReport) -> dict[str, str]:
    return {one.name: one.verdict for one in report.setup}


def told(report: SetupReport, name: str) -> str:
    (text,) = (f"{one.found}. {one.todo}" for one in report.setup if one.name == name)
    return text


def keys(root: str) -> list[str]:
    return [entry.key for entry in objects_of(root).list("")]


def s3_root(server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket}/backups"


def test_a_sound_set_up_passes_and_nothing_is_left(
    set_up: Vault, moto_s3: S3Server, bucket_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_s3.make_bucket(bucket_name)
    root = s3_root(moto_s3, bucket_name, monkeypatch)
    report = check_setup(set_up.uri(), root, time_limit=PATIENT)
    assert report.passed, report
    assert results(report) == dict.fromkeys((*STREAM_CHECKS, *ROOT_CHECKS, *MACHINE_CHECKS), "ok") | {
        "controller": "not checked"
    }
    assert keys(root) == []
    assert report.warnings == ()


def test_a_folder_is_left_as_it_was(set_up: Vault, tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    report = check_setup(set_up.uri(), str(folder), time_limit=PATIENT)
    assert (report.passed, results(report)["clock"]) == (True, "not checked")
    assert list(folder.iterdir()) == []


def test_without_a_root_the_object_store_is_left_out(set_up: Vault) -> None:
    report = check_setup(set_up.uri(), time_limit=PATIENT)
    assert report.passed
    assert {results(report)[name] for name in ROOT_CHECKS} == {"not checked"}


@pytest.mark.parametrize(
    ("master", "verdict"), [("", "not checked"), ("inline", "not checked"), ("local[2]", "failed")]
)
def test_java_is_missed_only_where_spark_was_asked_for(
    set_up: Vault, master: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java() -> Path:
        raise NoJava("no Java runtime", todo="Install one.")

    monkeypatch.setattr(doctor, "java_home", no_java)
    monkeypatch.setenv("STREAMVAULT_MASTER", master)
    report = check_setup(set_up.uri(), time_limit=PATIENT)
    assert results(report)["Java"] == verdict
    assert report.passed == (verdict != "failed")
    assert "no Java runtime" in told(report, "Java")


def test_lines_and_exit_code(set_up: Vault, ran: Ran) -> None:
    lines = ran("doctor", set_up.uri(), a_root(), "--time-limit", "60s").out.splitlines()
    assert len(lines) == len((*STREAM_CHECKS, *ROOT_CHECKS, *MACHINE_CHECKS))
    assert lines[1] == "ok           stream          scope/stream exists and is readable"
    missing = set_up.uri().replace("/scope/stream", "/scope/other")
    shown = json.loads(ran("doctor", missing, "--json", "--time-limit", "60s", code=1).out)
    assert not shown["passed"]
    assert [one["verdict"] for one in shown["setup"]][:3] == ["not checked", "failed", "not checked"]
    assert shown["setup"][1]["todo"] == "Check the scope and the name."


def test_a_hung_controller_fails_in_time(hung: int) -> None:
    report = check_setup(f"pravega://127.0.0.1:{hung}/scope/stream", a_root(), time_limit=0.5)
    assert results(report)["controller"] == "failed"
    assert results(report)["stream"] == results(report)["segment stores"] == "not checked"
    assert "no answer within" in told(report, "controller")
    assert report.total_seconds < 10  # it waits for 30 s elsewhere


def test_a_hung_object_store_fails_in_time(set_up: Vault, hung: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server(name="hung", endpoint=f"http://127.0.0.1:{hung}", access_key="a", secret_key="b")
    root = s3_root(server, "bucket", monkeypatch)
    report = check_setup(set_up.uri(), root, time_limit=0.5)
    assert results(report)["root"] == "failed"
    assert {results(report)[name] for name in ROOT_CHECKS[1:]} == {"not checked"}
    assert report.total_seconds < 10


def test_a_wrong_host_name_and_a_closed_port_are_told_apart() -> None:
    report = check_setup("pravega://no-such-host.invalid:9090/scope/stream", time_limit=PATIENT)
    assert "there is no host with this name: no-such-host.invalid:9090" in told(report, "controller")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        report = check_setup(f"pravega://127.0.0.1:{closed.getsockname()[1]}/scope/stream", time_limit=PATIENT)
    assert "cannot connect (Connection refused)" in told(report, "controller")


def test_another_port_than_the_controllers_is_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        report = check_setup(f"pravega://127.0.0.1:{other.server_port}/scope/stream", time_limit=5)
        other.shutdown()
    assert results(report)["controller"] == "ok"
    assert "does not answer" in told(report, "stream")
    assert "the controller's gRPC port" in told(report, "stream")


def test_a_bucket_that_is_missing(
    set_up: Vault, moto_s3: S3Server, bucket_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check_setup(set_up.uri(), s3_root(moto_s3, bucket_name, monkeypatch), time_limit=PATIENT)
    assert "no such bucket" in told(report, "root")
    assert results(report)["writes"] == "not checked"


def test_a_server_that_overwrites(set_up: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        self._backend.put(self._base + key, data, mode="overwrite")

    monkeypatch.setattr(ObstoreStore, "put", overwrite)
    report = check_setup(set_up.uri(), a_root(), time_limit=PATIENT)
    assert [name for name, result in results(report).items() if result == "failed"] == ["create-only"]
    assert report.exit_code == 1


def test_a_server_that_lists_in_another_order(set_up: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ObstoreStore.list

    def in_another_order(self: ObstoreStore, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(listed(self, prefix, after), key=lambda entry: entry.key.lower(), reverse=True))

    monkeypatch.setattr(ObstoreStore, "list", in_another_order)
    report = check_setup(set_up.uri(), a_root(), time_limit=PATIENT)
    assert [name for name, result in results(report).items() if result == "failed"] == ["listing order"]


@pytest.mark.parametrize(("hours", "text"), [(-1, "clock is ahead of"), (1, "clock is behind"), (0, "")])
def test_a_clock_that_is_wrong(set_up: Vault, hours: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def modified(_self: ObstoreStore, _key: str) -> datetime:
        return now_utc().replace(microsecond=0) + timedelta(hours=hours)

    monkeypatch.setattr(ObstoreStore, "modified", modified)
    report = check_setup(set_up.uri(), a_root(), time_limit=PATIENT)
    assert results(report)["clock"] == ("failed" if text else "ok")
    assert text in told(report, "clock")


def test_deletions_that_are_denied_are_told(set_up: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_self: FolderStore, _keys: list[str]) -> None:
        raise AccessDenied("no permission to delete")

    monkeypatch.setattr(FolderStore, "delete", denied)
    (tmp_path / "vault").mkdir()
    report = check_setup(set_up.uri(), str(tmp_path / "vault"), time_limit=PATIENT)
    assert "may not be deleted" in told(report, "writes")
    (warning,) = report.warnings
    assert "/vault/scope/stream/_work/probe-" in warning


def test_a_check_that_never_ends_fails_in_time(set_up: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    put, waiting = ObstoreStore.put, doctor._Chain.results
    begun, released = threading.Event(), threading.Event()

    def endless(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        begun.set()
        assert released.wait(60)
        put(self, key, data)

    def once_begun(self: doctor._Chain, _ends: float, limit: float) -> Iterator[SetupCheck]:
        assert begun.wait(60)
        return waiting(self, time.monotonic(), limit)

    monkeypatch.setattr(ObstoreStore, "put", endless)
    monkeypatch.setattr(doctor._Chain, "results", once_begun)
    monkeypatch.setattr(doctor, "GRACE_SECONDS", 0.0)
    report = check_setup(set_up.uri(), a_root(), time_limit=PATIENT)
    released.set()
    assert report.total_seconds < 10
    assert results(report)["writes"] == "failed"
    assert {results(report)[name] for name in ROOT_CHECKS[2:]} == {"not checked"}
    (warning,) = report.warnings
    assert "the server has not answered yet: empty objects may remain below memory://" in warning


def test_an_interrupt_leaves_no_probe_object(set_up: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    put, has_ended = ObstoreStore.put, doctor._Chain.has_ended
    begun, stopping = threading.Event(), threading.Event()
    written: list[str] = []

    def slow(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        put(self, key, data)
        written.append(key)
        if len(written) == 3:
            begun.set()
            assert stopping.wait(60)

    def interrupted(*_: object) -> Iterator[None]:
        assert begun.wait(60)
        raise KeyboardInterrupt

    def ends(self: doctor._Chain, seconds: float) -> bool:
        stopping.set()
        return has_ended(self, seconds)

    monkeypatch.setattr(ObstoreStore, "put", slow)
    monkeypatch.setattr(doctor._Chain, "results", interrupted)
    monkeypatch.setattr(doctor._Chain, "has_ended", ends)
    monkeypatch.setattr(doctor, "GRACE_SECONDS", 60.0)
    root = a_root()
    with pytest.raises(KeyboardInterrupt):
        check_setup(set_up.uri(), root, time_limit=PATIENT)
    assert len(written) == 3
    assert keys(root) == []


def test_the_supported_versions_of_spark_are_those_that_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (oldest, too_new) = ("{}.{}".format(*one) for one in doctor.SPARK)
    assert f"pyspark>={oldest},<{too_new}" in project["dependencies"]
    for found in (f"{oldest}.0", "4.3.0"):
        monkeypatch.setattr(doctor, "version", lambda _, found=found: found)
        assert doctor._spark() == f"pyspark {found}"
    for found in ("3.5.9", f"{too_new}.0.dev1"):
        monkeypatch.setattr(doctor, "version", lambda _, found=found: found)
        with pytest.raises(Failed, match=f"pyspark {found} is not supported"):
            doctor._spark()
