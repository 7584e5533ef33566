"""Copies by events of streams of the embedded store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamvault import copy_stream
from streamvault.cli import main
from streamvault.concat.copy_events import BatchLog
from streamvault.importer.target import TargetTaken
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Retention, RetentionKind, SegmentId, StreamConfiguration
from streamvault.streamstore.own import users_tags
from testkit.keyed_stream import SOURCE, TARGET, KeyedStream, by_key
from testkit.streams import append_events
from tests.told import Ran, assert_ends


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    source = KeyedStream(store)
    for _ in range(4):
        source.write()
        source.scale()
    source.write()
    return store


def uris(store: LocalStore) -> tuple[str, str]:
    return f"{store.uri}/{SOURCE}", f"{store.uri}/{TARGET}"


def test_copy_with_other_segments(store: LocalStore, ran: Ran) -> None:
    command = ["copy", *uris(store), "--method", "events", "--segments", "5", "--key", "/key"]
    assert "would copy" in ran(*command, "--dry-run").out
    assert not store.exists(TARGET)
    report = json.loads(ran(*command, "--json").out)
    assert (report["segments"], report["epochs"], report["unchanged"]) == (5, 1, False)
    assert report["bytes"] == report["moved_bytes"] > 10_000
    assert report["tail"] == store.describe(SOURCE).tail.to_json()
    assert by_key(store, TARGET) == by_key(store, SOURCE)
    assert "already copied" in ran(*command).out
    assert main([*command[:-2], "--key", "/n"]) == 4  # a copy with other options


def test_repeated_copy_says_what_both_have(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source grows, the copy is truncated to nothing, written to, or its record is gone."""
    made = copy_stream(*uris(store), method="events", segments=1)
    tail = store.describe(SOURCE).tail
    again = copy_stream(*uris(store), method="events", segments=1)
    assert (again.unchanged, again.bytes, again.behind_bytes) == (True, made.bytes, 0)
    append_events(store, SOURCE, max(tail.offsets), [b"grown"] * 10)
    again = copy_stream(*uris(store), method="events", segments=1, dry_run=True)
    assert (again.bytes, again.behind_bytes, again.tail) == (made.bytes, 130, tail.to_json())
    store.truncate(store.describe(TARGET).tail)
    again = copy_stream(*uris(store), method="events", segments=1)
    assert (again.unchanged, again.bytes, again.behind_bytes, again.tail) == (True, 0, 130, tail.to_json())
    with monkeypatch.context() as patched:
        patched.setattr(BatchLog, "newest", lambda *_: None)
        again = copy_stream(*uris(store), method="events", segments=1)
        assert (again.tail, len(again.warnings)) == ({}, 1)
    append_events(store, TARGET, SegmentId(0, 0), [b"mine"])
    with pytest.raises(TargetTaken, match="has been written to since"):
        copy_stream(*uris(store), method="events", segments=1)


def test_copy_has_the_sources_policies(store: LocalStore) -> None:
    described = store.describe(SOURCE)
    retention = Retention(RetentionKind.SIZE, 10**9)
    policies = StreamConfiguration(described.configuration.scaling, retention, ("a-users", "another"))
    store.update_stream(SOURCE, policies)
    copy_stream(*uris(store), method="events", segments=1)
    copied = store.describe(TARGET).configuration
    assert (copied.retention, copied.scaling.min_segments) == (retention, 1)
    assert users_tags(copied) == ("a-users", "another")


def test_duplicates_are_kept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    KeyedStream(store, segments=1)
    with store.appender(SOURCE, SegmentId(0, 0)) as appender:
        for _ in range(5):
            appender.append(frame(b'{"key": "a", "n": 0}') * 3)
    copy_stream(*uris(store), method="events", segments=2, key="/key")
    assert by_key(store, TARGET) == {"a": [0] * 15}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--segments", "2"], 2, r"--segments and --key require --method events\. Add --method events\."),
        (["--key", "/a"], 2, "--segments and --key require --method events"),
        (["--method", "events", "--read-back"], 2, "--read-back cannot be used with --method events"),
        (["--method", "events", "--numbers", "map"], 2, "--numbers cannot be used"),
        (["--method", "events", "--offsets", "shift"], 2, "--offsets cannot be used"),
        (["--method", "events", "--from", '{"scope/source/0.#epoch.0": 0}'], 2, "--from cannot be used"),
        (["--method", "events", "--window", "32MiB"], 2, "--window cannot be used"),
        (["--method", "events", "--segments", "0"], 2, "--segments must be at least 1"),
        (["--method", "events", "--segments", "7"], 2, r"lie in several of 7 segments.* Give --key, or --segments 2\."),
        (["--method", "events", "--key", "key"], 2, "neither a JSON pointer nor MODULE:FUNCTION"),
        (
            ["--method", "events", "--key", "/nothing"],
            2,
            r"no routing key is found in an event \(KeyError: 'nothing'\)",
        ),
    ],
)
def test_what_cannot_be_copied_is_refused(
    store: LocalStore, capfd: pytest.CaptureFixture[str], options: list[str], code: int, said: str
) -> None:
    assert_ends(["copy", *uris(store), *options], code, f".*{said}.*", capfd)
