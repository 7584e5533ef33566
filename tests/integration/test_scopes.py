"""Whole scopes of Pravega, archived on MinIO and copied to another cluster."""

from __future__ import annotations

import json

import grpc
import pytest

from streamvault.cli import main
from streamvault.scopes.calls import StreamMembers
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.own import TARGET_LEASE
from testkit.streams import append_events, digest_of
from tests.integration.conftest import Place

pytestmark = [pytest.mark.pravega, pytest.mark.minio]

SEGMENT = SegmentId(0, 0)


def make_table(endpoint: str, scope: str, name: str) -> None:
    """Make a key-value table with one partition and keys of 8 bytes."""
    request = b"".join(bytes([field, len(text), *text.encode()]) for field, text in ((0x0A, scope), (0x12, name)))
    with grpc.insecure_channel(endpoint) as channel:
        service = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/createKeyValueTable"
        assert channel.unary_unary(service)(request + b"\x18\x01\x20\x08\x28\x08", timeout=60) == b""  # SUCCESS


def test_a_scope_of_twenty_streams(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One fails, one is deleted after it was listed, one is a lease, and there is a key-value table."""
    scope, store = place.source.scope, place.store
    names = [f"s{number:02}" for number in range(20)]
    store.create_scope(scope)
    for number, name in enumerate(names):
        store.create_stream(StreamName(scope, name), StreamConfiguration())
        append_events(store, StreamName(scope, name), SEGMENT, [name.encode() * 10] * (number + 1))
    make_table(place.server.uri.partition("://")[2], scope, "stock")
    inline = ("--master", "inline", "--json")
    assert main(["export", place.uri_of(StreamName(scope, "s03")), place.root, "--content", "bytes", *inline]) == 0
    append_events(store, StreamName(scope, "s03"), SEGMENT, [b"more"])
    look = StreamMembers.look

    def looked(members: StreamMembers) -> object:
        found = look(members)
        if store.exists(StreamName(scope, "s11")):
            store.delete(StreamName(scope, "s11"))
        return found

    monkeypatch.setattr(StreamMembers, "look", looked)
    lease = Lease.take(store, StreamName(scope, f"{TARGET_LEASE}x"), "work", held=LeaseHeld("held by a test"))
    capfd.readouterr()
    code = main(["export", f"{place.server.uri}/{scope}/", place.root, "--content", "events", *inline])
    out, err = capfd.readouterr()
    report = json.loads(out)
    lease.release(remove=True)
    assert code == 2, err
    ended = {each["stream"].rpartition("/")[2]: each["status"] for each in report["outcomes"]}
    assert ended == {**dict.fromkeys(names, "done"), "s03": "failed", "s11": "gone"}
    assert [each["reason"] for each in report["omitted"]] == ["an internal stream of Streamvault (lease)"]
    assert report["key_value_tables"] == [f"{place.server.uri}/{scope}/stock"]
    assert all(f"{name}: " in err for name in names)
    kept = [name for name in names if ended[name] == "done"]
    assert main(["import", f"{place.root}/{scope}/s1*", f"{place.server.uri}/{scope}back/", *inline]) == 0
    for name in (name for name in kept if name.startswith("s1")):
        assert digest_of(store, StreamName(f"{scope}back", name)) == digest_of(store, StreamName(scope, name))
