"""Checks of a set-up: what is wrong is told apart, in time, and nothing is left behind."""

from __future__ import annotations

import json
import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streamvault import check_setup
from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.common.units import now_utc
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AccessDenied, ObjectInfo
from streamvault.report import doctor
from streamvault.report.reports import SetupCheck, SetupReport
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault, a_root, objects_of

PATIENT = 60.0
STREAM_CHECKS = ("controller", "stream", "segment stores")
ROOT_CHECKS = ("root", "writes", "create-only", "listing order", "clock")
MACHINE_CHECKS = ("Python", "Spark", "Java")


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create(segments=2)
    return vault


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
    vault: Vault, moto_s3: S3Server, bucket_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_s3.make_bucket(bucket_name)
    root = s3_root(moto_s3, bucket_name, monkeypatch)
    report = check_setup(vault.uri(), root, time_limit=PATIENT)
    assert report.passed, report
    assert results(report) == dict.fromkeys((*STREAM_CHECKS, *ROOT_CHECKS, *MACHINE_CHECKS), "ok") | {
        "controller": "not checked"
    }
    assert keys(root) == []
    assert report.warnings == ()


def test_a_folder_is_left_as_it_was(vault: Vault, tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    folder.mkdir()
    report = check_setup(vault.uri(), str(folder), time_limit=PATIENT)
    assert (report.passed, results(report)["clock"]) == (True, "not checked")
    assert list(folder.iterdir()) == []


def test_without_a_root_the_object_store_is_left_out(vault: Vault) -> None:
    report = check_setup(vault.uri(), time_limit=PATIENT)
    assert report.passed
    assert {results(report)[name] for name in ROOT_CHECKS} == {"not checked"}


def test_lines_and_exit_code(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", vault.uri(), a_root(), "--time-limit", "60s"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len((*STREAM_CHECKS, *ROOT_CHECKS, *MACHINE_CHECKS))
    assert lines[1] == "ok           stream          scope/stream exists and is readable"
    missing = vault.uri().replace("/scope/stream", "/scope/other")
    assert main(["doctor", missing, "--json", "--time-limit", "60s"]) == 1
    shown = json.loads(capfd.readouterr().out)
    assert not shown["passed"]
    assert [one["verdict"] for one in shown["setup"]][:3] == ["not checked", "failed", "not checked"]
    assert shown["setup"][1]["todo"] == "Check the scope and the name."


def test_a_hung_controller_fails_in_time(hung: int) -> None:
    report = check_setup(f"pravega://127.0.0.1:{hung}/scope/stream", a_root(), time_limit=0.5)
    assert results(report)["controller"] == "failed"
    assert results(report)["stream"] == results(report)["segment stores"] == "not checked"
    assert "no answer within" in told(report, "controller")
    assert report.total_seconds < 10  # it waits for 30 s elsewhere


def test_a_hung_object_store_fails_in_time(vault: Vault, hung: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server(name="hung", endpoint=f"http://127.0.0.1:{hung}", access_key="a", secret_key="b")
    root = s3_root(server, "bucket", monkeypatch)
    report = check_setup(vault.uri(), root, time_limit=0.5)
    assert results(report)["root"] == "failed"
    assert {results(report)[name] for name in ROOT_CHECKS[1:]} == {"not checked"}
    assert report.total_seconds < 10


def test_a_wrong_host_name_and_a_closed_port_are_told_apart() -> None:
    report = check_setup("pravega://no-such-host.invalid:9090/scope/stream", time_limit=PATIENT)
    assert "there is no host of this name: no-such-host.invalid:9090" in told(report, "controller")
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
    vault: Vault, moto_s3: S3Server, bucket_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check_setup(vault.uri(), s3_root(moto_s3, bucket_name, monkeypatch), time_limit=PATIENT)
    assert "no such bucket" in told(report, "root")
    assert results(report)["writes"] == "not checked"


def test_a_server_that_overwrites(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        self._backend.put(self._base + key, data, mode="overwrite")

    monkeypatch.setattr(ObstoreStore, "put", overwrite)
    report = check_setup(vault.uri(), a_root(), time_limit=PATIENT)
    assert [name for name, result in results(report).items() if result == "failed"] == ["create-only"]
    assert report.exit_code == 1


def test_a_server_that_lists_in_another_order(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ObstoreStore.list

    def in_another_order(self: ObstoreStore, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(listed(self, prefix, after), key=lambda entry: entry.key.lower(), reverse=True))

    monkeypatch.setattr(ObstoreStore, "list", in_another_order)
    report = check_setup(vault.uri(), a_root(), time_limit=PATIENT)
    assert [name for name, result in results(report).items() if result == "failed"] == ["listing order"]


@pytest.mark.parametrize(("hours", "text"), [(-1, "clock is ahead of"), (1, "clock is behind"), (0, "")])
def test_a_clock_that_is_wrong(vault: Vault, hours: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def modified(_self: ObstoreStore, _key: str) -> datetime:
        return now_utc().replace(microsecond=0) + timedelta(hours=hours)

    monkeypatch.setattr(ObstoreStore, "modified", modified)
    report = check_setup(vault.uri(), a_root(), time_limit=PATIENT)
    assert results(report)["clock"] == ("failed" if text else "ok")
    assert text in told(report, "clock")


def test_deletions_that_are_denied_are_told(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_self: FolderStore, _keys: list[str]) -> None:
        raise AccessDenied("no permission to delete")

    monkeypatch.setattr(FolderStore, "delete", denied)
    (tmp_path / "vault").mkdir()
    report = check_setup(vault.uri(), str(tmp_path / "vault"), time_limit=PATIENT)
    assert "may not be deleted" in told(report, "writes")
    (warning,) = report.warnings
    assert "/vault/scope/stream/_work/probe-" in warning


def test_a_check_that_never_ends_fails_in_time(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
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
    report = check_setup(vault.uri(), a_root(), time_limit=PATIENT)
    released.set()
    assert report.total_seconds < 10
    assert results(report)["writes"] == "failed"
    assert {results(report)[name] for name in ROOT_CHECKS[2:]} == {"not checked"}
    (warning,) = report.warnings
    assert "the server has not answered yet: empty objects may remain below memory://" in warning


def test_an_interrupt_leaves_no_probe_object(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
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
        check_setup(vault.uri(), root, time_limit=PATIENT)
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
