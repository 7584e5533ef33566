"""Copies between two real Pravegas, one of them with TLS and a login."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import export_stream, translate
from streamvault.cli import main
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.routing import SegmentRouter
from testkit.keyed_stream import KeyedStream, by_key
from testkit.servers.pravega import PravegaServer
from testkit.streams import KeyRange, append_events, digest_of, events_of, make_stream, shape_of
from tests.integration.conftest import Site
from tests.integration.test_numbers import roll, shape_without_numbers

pytestmark = pytest.mark.pravega


def copy(source: str, target: str, *options: str, capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    capfd.readouterr()
    assert main(["copy", source, target, "--json", "--master", "inline", *options]) == 0
    report: dict[str, object] = json.loads(capfd.readouterr().out)
    return report


def test_stream_is_copied_to_another_cluster(
    here: Site,
    there: Site,
    scope_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=400)
    append_events(here.store, name, max(here.store.describe(name).tail.offsets), [b"", b"last"])
    source, target = here.uri(name), there.uri(name)
    copied = copy(source, target, "--read-back", capfd=capfd)
    assert copied["moved_bytes"] == copied["bytes"]
    ours, theirs = shape_of(here.store, name), shape_of(there.store, name)
    assert theirs.pop("configuration") == replace(
        ours.pop("configuration"),  # type: ignore[type-var]
        scaling=Scaling(min_segments=len(here.store.describe(name).tail.offsets)),
        tags=("made-for-a-test", f"streamvault-copy-of:{name}", "ünï"),
    )
    assert ours == theirs
    assert digest_of(here.store, name) == digest_of(there.store, name)
    again = copy(source, target, capfd=capfd)
    assert (again["unchanged"], again["behind_bytes"]) == (True, 0)


def test_copy_by_events_has_other_segments(
    here: Site, there: Site, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each event is where a client writes one with its key, and each key's events are in order."""
    name = StreamName(scope_name, "keyed")
    source = KeyedStream(here.store, stream=name)
    for _ in range(3):
        source.write(200)
        source.scale()
    source.write(200)
    options = ("--method", "events", "--segments", "3", "--key", "/key")
    report = copy(here.uri(name), there.uri(name), *options, capfd=capfd)
    assert (report["segments"], report["bytes"]) == (3, report["moved_bytes"])
    assert by_key(there.store, name) == by_key(here.store, name)
    router = SegmentRouter(there.store.describe(name).epochs[0].segments)
    for pointer, payload in events_of(there.store, name):
        assert router.segments[router.index_of(json.loads(payload)["key"])] == pointer.segment
    assert copy(here.uri(name), there.uri(name), *options, capfd=capfd)["unchanged"]
    assert [one.stream for one in there.store.list_streams(scope_name)] == ["keyed"]
    assert len(list(there.store.list_streams(scope_name, own=True))) == 2, "and the record of what it has"


def test_copy_beside_its_source_has_mapped_numbers(
    here: Site, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its history has a rolled transaction, so the numbers cannot be kept."""
    name, other = StreamName(scope_name, "rolled"), StreamName(scope_name, "copy")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    roll(here.store, name, [KeyRange(0.0, 0.25), KeyRange(0.25, 0.75), KeyRange(0.75, 1.0)])
    source, target = here.uri(name), here.uri(other)
    assert main(["copy", source, target, "--master", "inline"]) == 1
    assert "--numbers map" in capfd.readouterr().err
    assert not here.store.exists(other)
    copy(source, target, "--numbers", "map", capfd=capfd)
    ours, theirs = (shape_without_numbers(here.store, one) for one in (name, other))
    assert ours.pop("configuration") != theirs.pop("configuration")
    assert ours == theirs
    events = list(events_of(here.store, name))
    found = {str(pointer): payload for pointer, payload in events_of(here.store, other)}
    new = translate(source, target, [str(pointer) for pointer, _ in events]).positions
    assert [found[str(position.new)] for position in new] == [payload for _, payload in events]


def test_copy_is_archived_like_its_source(
    here: Site,
    scope_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name, other = StreamName(scope_name, "source"), StreamName(scope_name, "copy")
    make_stream(here.store, name, events=100)
    copy(here.uri(name), here.uri(other), "--offsets", "shift", capfd=capfd)
    one, two = (
        export_stream(here.uri(stream), f"file://{tmp_path}/vault", master="inline") for stream in (name, other)
    )
    assert (one.events, one.bytes) == (two.events, two.bytes)
    assert set(here.store.describe(other).head.offsets.values()) == {0}


@pytest.mark.usefixtures("login")
def test_error_names_the_cluster_that_refused(
    pravega_secure: PravegaServer,
    here: Site,
    scope_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = StreamName(scope_name, "orders")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, StreamConfiguration())
    monkeypatch.setenv("PRAVEGA_TARGET_PASSWORD", "wrong")
    capfd.readouterr()
    assert main(["copy", here.uri(name), f"{pravega_secure.uri}/{name}", "--master", "inline"]) == 1
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1, error
    assert pravega_secure.uri in error
    assert here.server.uri not in error
