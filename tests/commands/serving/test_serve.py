"""Archives that are served, read by our own Pravega client: what it reads, what it is refused, and damage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from streamvault import check_archive
from streamvault.common.errors import Absent, Damaged, Problem, Usage
from streamvault.exporter.rotate import rotate_stream
from streamvault.manifests import index
from streamvault.objectstore.store import InArchiveClass
from streamvault.serving import archived, segments
from streamvault.serving.access import Access
from streamvault.serving.archived import ServedArchive
from streamvault.serving.reports import ServeArguments, ServeReport
from streamvault.serving.serve import check_advertised, serve_archives
from streamvault.serving.server import Certificate
from streamvault.streamstore.errors import AccessDenied, RequestFailed, SegmentTruncated, StreamExists
from streamvault.streamstore.model import KeyRange, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.wire import encode
from streamvault.streamstore.store import ReaderGroup
from streamvault.streamstore.uri import parse_stream
from testkit.pravega_script import wait_for
from testkit.servers.certificates import make_certificates
from testkit.small_archives import (
    NAME,
    Vault,
    a_vault,
    archive_of,
    contents,
    data_keys,
    forge,
    merge,
    objects_of,
    replace_object,
)
from testkit.streams import digest_of, shape_of
from tests.serving import serving

LAYOUTS: list[tuple[Any, Any]] = [("events", ""), ("chunks", ""), ("chunks", "zstd")]
NAMES = ["events", "chunks", "zstd"]
SEGMENT, SEGMENT_WRITER = SegmentId(0, 0), UUID(int=5)

scaled = a_vault(events=600)
small = a_vault(b"one", b"two", exports=[("chunks", "")], between=[b"three"])
three = a_vault(b"one", exports=[("events", ""), ("chunks", ""), ("chunks", "zstd")], between=[b"two", b"three"])


@pytest.mark.parametrize(("layout", "compress"), LAYOUTS, ids=NAMES)
def test_an_archive_reads_as_the_stream(scaled: Vault, layout: Any, compress: Any) -> None:
    scaled.export(layout, compress)
    with serving(scaled.archive) as served:
        assert shape_of(served.store, NAME) == scaled.shape()
        assert digest_of(served.store, NAME) == scaled.digest()
        assert list(served.store.list_streams(NAME.scope)) == [NAME]
        assert served.store.exists(NAME)
        assert not served.store.exists(StreamName(NAME.scope, "other"))


@pytest.mark.parametrize(("layout", "compress"), LAYOUTS, ids=NAMES)
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damage_is_not_handed_out_and_the_error_says_what_to_do(
    scaled: Vault, layout: Any, compress: Any, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    scaled.export(layout, compress)
    key = max(data_keys(scaled.root), key=lambda one: objects_of(scaled.root).size(one))
    data = bytearray(objects_of(scaled.root).get(key))
    data[len(data) // 2] ^= 1
    replace_object(scaled.root, key, bytes(data) if damage == "changed" else None)
    row = next(
        row
        for layout_rows in archive_of(scaled.root).load(1).rows.values()
        for row in layout_rows
        if f"/{row.segment.epoch:010d}.{row.segment.number:010d}/" in key
        and row.start <= int(key.rpartition("/")[2].partition("-")[0]) < row.end
    )
    got: list[memoryview] = []
    with serving(scaled.archive) as served:
        for _ in range(2):
            with pytest.raises(RequestFailed, match="streamvault check"):
                got.extend(served.store.read(NAME, row.segment, row.start, row.end))
    assert not got
    assert "Run 'streamvault check" in caplog.text


@pytest.mark.parametrize(("layout", "learned"), [("events", 1), ("chunks", 0)])
def test_a_range_without_checksums_of_blocks_is_read_whole_once(tmp_path: Path, layout: Any, learned: int) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"one", b"", b"two")
    vault.export(layout)
    with serving(vault.archive) as served:
        whole = vault.bytes_of()[str(SEGMENT)][1]
        for at in range(len(whole)):
            assert served.store.read_bytes(NAME, SEGMENT, at, at + 1) == whole[at : at + 1]
        assert b"".join(served.store.read(NAME, SEGMENT, 3, 20)) == whole[3:20]
        assert served.archive.learned == learned


def test_bytes_forged_with_their_checksums_are_found_if_ranges_are_compared_whole(small: Vault) -> None:
    (key,) = data_keys(small.root)
    forge(small.root, key, 8)
    with serving(small.archive) as served:  # a CRC finds no forgery
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) != b"one"
        assert served.archive.learned == 0
    with serving(small.archive, whole=True) as served, pytest.raises(RequestFailed, match="streamvault check"):
        served.store.read_bytes(NAME, SEGMENT, 11, 12)


@pytest.mark.parametrize("noted", [True, False])
def test_checksums_that_a_check_has_noted_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, noted: bool
) -> None:
    monkeypatch.setattr(index, "MAX_WITH_BLOCKS", 0)  # as an earlier release has written it
    small = Vault(tmp_path)
    small.create()
    small.add(b"one")
    small.export("chunks")
    assert check_archive(small.archive, read_data=True, master="inline").ok
    (key,) = [key for key in contents(small.root) if key.endswith(".blocks.json")]
    if not noted:
        replace_object(small.root, key, b"{}")
    with serving(small.archive) as served:
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
        assert served.archive.learned == (0 if noted else 1)
    assert (key in caplog.text) is not noted


def test_a_reader_waits_for_what_s3_must_restore_first(
    small: Vault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_warm, compared = threading.Event(), archived.compared_block

    def block(known: Any, number: int, chain: Any) -> memoryview:
        if not is_warm.is_set():
            raise InArchiveClass.of("GLACIER", "s3://vault/key")
        return compared(known, number, chain)

    monkeypatch.setattr(archived, "compared_block", block)
    monkeypatch.setattr(segments, "COLD_SECONDS", 0.01)
    with serving(small.archive) as served:
        connection = served.connect()
        for number in range(5):  # more than are fetched at once
            connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", 0, 100, "", number)))
        assert wait_for(lambda: f"Run 'streamvault warm {small.archive}'" in caplog.text)
        connection.send(encode(wire.GetStreamSegmentInfo(8, f"{NAME}/{SEGMENT}", "")))
        assert isinstance(connection.receive(), wire.StreamSegmentInfo)
        is_warm.set()
        answers = [connection.receive() for _ in range(5)]
    assert all(isinstance(one, wire.SegmentRead) and one.data[8:11] == b"one" for one in answers)
    assert caplog.text.count("GLACIER") == 1


def test_a_waiting_reader_gets_what_a_new_generation_adds(small: Vault) -> None:
    with serving(small.archive) as served:
        end = served.store.describe(NAME).tail.offsets[SEGMENT]
        connection = served.connect()
        connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end, 100, "", 7)))
        assert served.ask(wire.GetStreamSegmentInfo(8, f"{NAME}/{SEGMENT}", ""))
        small.export("chunks")
        answer = connection.receive()
        assert isinstance(answer, wire.SegmentRead)
        assert (answer.offset, answer.request_id, answer.data[8:]) == (end, 7, b"three")
        with small.store as store:
            store.seal(NAME)
        small.export("chunks")
        connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end + len(answer.data), 100, "", 9)))
        at_end = connection.receive()
        assert isinstance(at_end, wire.SegmentRead)
        assert (at_end.end_of_segment, at_end.data) == (True, b"")
        assert served.store.describe(NAME).sealed


def test_archives_that_do_not_answer_delay_no_other(small: Vault) -> None:
    answers, stuck = threading.Event(), Mock(spec=ServedArchive)
    stuck.refresh.side_effect = lambda: not answers.wait(60)
    others = {StreamName("stuck", str(number)): stuck for number in range(2 * segments.THREADS)}
    with serving(small.archive, beside=others) as served:
        try:
            end = served.store.describe(NAME).tail.offsets[SEGMENT]
            connection = served.connect()
            connection.send(encode(wire.ReadSegment(f"{NAME}/{SEGMENT}", end, 100, "", 7)))
            assert served.ask(wire.GetStreamSegmentInfo(8, f"{NAME}/{SEGMENT}", ""))
            assert wait_for(lambda: stuck.refresh.call_count == len(others))
            small.export("chunks")
            answer = connection.receive()
            assert isinstance(answer, wire.SegmentRead)
            assert answer.data[8:] == b"three"
        finally:
            answers.set()


def test_generations_are_merged_and_expire_while_they_are_read(three: Vault) -> None:
    with serving(three.archive) as served:
        expected = three.digest()
        merge(three, 2, 3)
        assert digest_of(served.store, NAME) == expected
        rotate_stream(three.uri(), three.root, keep=1, layout="chunks", master="inline", progress=None)
        start = archive_of(three.root).history().head.offsets[SEGMENT]
        assert start
        while served.store.describe(NAME).head.offsets[SEGMENT] != start:  # until the server looks again
            pass
        with pytest.raises(SegmentTruncated) as caught:
            served.store.read_bytes(NAME, SEGMENT, 0, start)
        assert caught.value.start_offset == start


@pytest.mark.parametrize(("layout", "compress"), LAYOUTS, ids=NAMES)
@pytest.mark.parametrize("longer", [True, False], ids=["longer", "as long"])
def test_readers_get_nothing_of_an_archive_that_replaces_the_served_one(
    tmp_path: Path, layout: Any, compress: Any, *, longer: bool
) -> None:
    """The other one has a range of the same place."""
    old, new = (Vault(tmp_path / name) for name in ("old", "new"))
    for vault, payload in ((old, b"old"), (new, b"new")):
        vault.create()
        vault.add(payload * 10)
        vault.export(layout, compress)
    if longer:
        new.add(b"newer")
        new.export(layout, compress)
    with serving(old.archive) as served:
        assert served.store.read_bytes(NAME, SEGMENT, 8, 11) == b"old"
        for key in contents(old.root):
            replace_object(old.root, key, None)
        for key, data in contents(new.root).items():
            replace_object(old.root, key, data)
        assert not longer or wait_for(lambda: "another archive has replaced" in served.archive.problem)
        assert digest_of(served.store, NAME) == old.digest()  # it is in memory
        served.archive._cache._held.clear()
        with pytest.raises(RequestFailed, match="another archive has replaced"):
            served.store.read_bytes(NAME, SEGMENT, 8, 11)
    with serving(old.archive) as served:
        assert digest_of(served.store, NAME) == new.digest()


def test_a_segment_whose_end_the_stream_had_lost_does_not_just_end(small: Vault) -> None:
    with small.store as store:
        store.scale(NAME, [SEGMENT], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
        store.truncate(store.describe(NAME).tail)
    small.export("chunks", same_stream=True)
    end = archive_of(small.root).history().generations[0].manifest.segments[0].end
    with serving(small.archive) as served:
        assert served.store.read_bytes(NAME, SEGMENT, 0, end)
        answer = served.ask(wire.ReadSegment(f"{NAME}/{SEGMENT}", end, 100, "", 7))
        assert "no longer had the end of 0.#epoch.0" in str(answer)


def test_the_stream_is_served_as_it_was_at_a_generation(three: Vault) -> None:
    with serving(three.archive, generation=2) as served:
        end = served.store.describe(NAME).tail.offsets[SEGMENT]
        read = b"".join(served.store.read(NAME, SEGMENT, 0, end))
        assert (b"two" in read, b"three" in read) == (True, False)


def test_writes_are_refused_and_nothing_says_that_the_stream_is_sealed(small: Vault) -> None:
    with serving(small.archive) as served:
        store, described = served.store, served.store.describe(NAME)
        with closing(store.appender(NAME, SEGMENT)) as appender:
            appender.append(b"\0" * 8)
            with pytest.raises(RequestFailed, match="which is read-only") as caught:
                appender.flush()
        assert "sealed" not in str(caught.value)
        for change in (
            lambda: store.seal(NAME),
            lambda: store.truncate(described.tail),
            lambda: store.scale(NAME, [SEGMENT], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]),
            lambda: store.transactions().begin(NAME, 10),
        ):
            with pytest.raises(AccessDenied, match=r"\(this is an archive, which is read-only\)"):
                change()
        with pytest.raises(RequestFailed, match="does not support TruncateSegment"):
            store.truncate_segment(NAME, SEGMENT, 1)
        with pytest.raises(StreamExists):
            store.create_stream(NAME, StreamConfiguration())
        assert store.describe(NAME) == described


def test_a_writer_of_events_is_told_that_there_are_no_successors(small: Vault) -> None:
    writer = wire.SetupAppend(1, SEGMENT_WRITER, f"{NAME}/{SEGMENT}", "")
    with serving(small.archive) as served:
        connection = served.connect()
        connection.send(encode(writer))
        assert isinstance(connection.receive(), wire.AppendSetup)
        connection.send(encode(wire.AppendBlock(SEGMENT_WRITER, b"\0" * 12)))
        connection.send(encode(wire.AppendBlockEnd(SEGMENT_WRITER, 12, b"", 1, 1, 2)))
        answer = connection.receive()
        assert isinstance(answer, wire.NoSuchSegment)
        assert (answer.request_id, answer.trace) == (2, "this is an archive, which is read-only")


def test_reader_groups_are_created_and_have_a_position(small: Vault) -> None:
    with serving(small.archive) as served:
        groups = served.store.reader_groups()
        group = ReaderGroup(scope=NAME.scope, name="app", starts={NAME: None}, id=SEGMENT_WRITER)
        made = groups.create(group, served.store.describe(NAME).head)
        assert groups.find(NAME.scope, "app") == made
        position = groups.position(made, NAME)
        assert position is not None
        assert position.offsets == {SEGMENT: 0}
        assert groups.find(NAME.scope, "other") is None


def test_a_login_is_asked_for_and_tokens_are_renewed(
    small: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tls").mkdir()
    files = make_certificates(tmp_path / "tls")
    monkeypatch.setenv("PRAVEGA_CA_FILE", str(files.authority))
    access = Access("reader:secret")
    certificate = Certificate(files.certificate, files.key)
    monkeypatch.setenv("PRAVEGA_USERNAME", "reader")
    monkeypatch.setenv("PRAVEGA_PASSWORD", "secret")
    with serving(small.archive, access=access, certificate=certificate) as served:
        assert served.uri.startswith("pravega+tls://")
        begun = served.store.read_bytes(NAME, SEGMENT, 0, 11)
        access._secret = b"another"  # as if the token had expired
        assert served.store.read_bytes(NAME, SEGMENT, 0, 11) == begun
        monkeypatch.setenv("PRAVEGA_PASSWORD", "wrong")
        address, _ = parse_stream(f"{served.uri}/{NAME}")
        with address.open() as store, pytest.raises(AccessDenied, match="rejected the login of reader"):
            store.describe(NAME)


def test_the_command_serves_a_scope_until_it_is_interrupted(tmp_path: Path) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    (tmp_path / "vault").mkdir()
    vault.create()
    vault.add(b"one")
    vault.export("chunks")
    pattern = f"{tmp_path}/vault/{NAME.scope}/{NAME.stream[:2]}*"
    command = [sys.executable, "-m", "streamvault", "serve", pattern, "--listen", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as run:
        assert run.stdout is not None
        begun = json.loads(run.stdout.readline())
        assert begun["served"] == [str(NAME)]
        address, _ = parse_stream(f"{begun['uri']}/{NAME}")
        with address.open() as store:
            assert store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"
        run.send_signal(signal.SIGTERM)
        ended = json.loads(run.stdout.readline())
        assert run.wait(20) == 0
    assert (ended["sent_bytes"], ended["ranges_read"]) == (3, 0)


def test_the_function_returns_what_was_served_after_its_time(small: Vault) -> None:
    begun: list[ServeReport] = []

    def ready(report: ServeReport) -> None:
        begun.append(report)
        address, _ = parse_stream(f"{report.uri}/{NAME}")
        with address.open() as store:
            assert store.read_bytes(NAME, SEGMENT, 8, 11) == b"one"

    ended = serve_archives([small.archive], listen="0", lasting=0.01, verify="sha256", ready=ready)
    assert ended.ranges_read == 1
    assert begun[0].uri == ended.uri
    assert ended.served == (str(NAME),)


@pytest.mark.timeout(60)
def test_a_signal_that_another_thread_receives_stops_the_server(small: Vault) -> None:
    def interrupt() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def ready(_: ServeReport) -> None:
        threading.Timer(0.1, interrupt).start()  # when the main thread waits

    assert serve_archives([small.archive], listen="0", ready=ready).served == (str(NAME),)


@pytest.mark.parametrize(
    ("sources", "options", "kind", "text"),
    [
        (["{archive}", "{archive}"], {"listen": "host"}, Usage, "not PORT or HOST:PORT"),
        (["{root}/nothing/"], {"listen": "0"}, Absent, "no archives match"),
        (["{root}/{scope}/none"], {"listen": "0"}, Absent, "no archive"),
        (["{archive}"], {"listen": "0", "tls_cert": Path("cert.pem")}, Usage, "a certificate needs its key"),
        (["{archive}"], {"listen": "0", "login": Path("/none")}, Usage, "login cannot be read"),
        (
            ["{archive}"],
            {"listen": "0", "tls_cert": Path("/none"), "tls_key": Path("/none")},
            Usage,
            "cannot be used",
        ),
        (
            ["{archive}"],
            {"listen": "203.0.113.7:9090"},
            Problem,
            r"there \((cannot assign requested address|the port is in use)",
        ),
        (["{archive}"], {"listen": "0", "advertise": "archive.example.org:9090"}, Usage, "not a host"),
        (["{archive}"], {"listen": "0", "advertise": "tcp://archive.example.org"}, Usage, "not a host"),
    ],
)
def test_bad_input_is_one_line(
    small: Vault, sources: list[str], options: dict[str, Any], kind: type[Problem], text: str
) -> None:
    named = [one.format(archive=small.archive, root=small.root, scope=NAME.scope) for one in sources]
    with pytest.raises(kind, match=text):
        serve_archives.with_options(named, ServeArguments(**options))


@pytest.mark.parametrize("text", ["", "name", ":password", "name:password\nother:password"])
def test_a_login_is_one_line_with_a_user(small: Vault, tmp_path: Path, text: str) -> None:
    login = tmp_path / "login"
    login.write_text(text)
    with pytest.raises(Usage, match="not one line USER:PASSWORD"):
        serve_archives([small.archive], listen="0", login=login)


@pytest.mark.parametrize(("advertise", "warns"), [("", True), ("archive.example.org", False), ("::1", False)])
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_is_of_every_machine_needs_another_for_readers(
    caplog: pytest.LogCaptureFixture, host: str, advertise: str, *, warns: bool
) -> None:
    check_advertised(advertise, host)
    assert ("give --advertise HOST" in caplog.text) is warns


def test_a_damaged_archive_of_a_scope_does_not_stop_the_others(small: Vault, caplog: pytest.LogCaptureFixture) -> None:
    other = StreamName(NAME.scope, "damaged")
    for key, data in contents(small.root).items():
        name = key.replace(f"/{NAME.stream}/", f"/{other.stream}/")
        replace_object(small.root, name, data)  # its manifest is of another stream

    def serve(*sources: str) -> ServeReport:
        return serve_archives(list(sources), listen="0", lasting=0.01)

    scope = f"{small.root}/{NAME.scope}"
    assert serve(f"{scope}/").served == (str(NAME),)
    assert "not served: " in caplog.text
    assert str(other) in caplog.text
    for named in (f"{scope}/dam*", f"{scope}/damaged"):
        with pytest.raises(Damaged):
            serve(named)
    with pytest.raises(Damaged):
        serve(f"{scope}/damaged", f"{scope}/")
