"""The stream manager: all verbs, one store, one runner, nothing left when it is closed; what there is to archive."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import streamvault
from streamvault import StreamManager, ephemeral_stream, list_streams, replicate_stream, request_restore
from streamvault.cli import main
from streamvault.common.at_once import AT_ONCE, each_of
from streamvault.errors import Conflict, InvalidName, StreamExists, StreamStoreError, Usage
from streamvault.manager.manager import NOT_METHODS
from streamvault.runner import opening
from streamvault.runner.inline import InlineRunner
from streamvault.runner.opening import KeptRunner, open_runner
from streamvault.runner.runner import InvalidMaster, Runner
from streamvault.streamstore import uri as addresses
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.uri import open_stream
from testkit.leftovers import QUEUE, STAGING
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, make_stream


@pytest.fixture
def manager(vault: Vault) -> Iterator[StreamManager]:
    with StreamManager(f"local://{vault.folder}/streams", master="inline[2]") as manager:
        yield manager


def left(vault: Vault) -> list[StreamName]:
    with vault.store as store:
        return list(store.list_streams(NAME.scope, own=True))


def test_every_public_function_is_a_method(manager: StreamManager) -> None:
    public = {name for name in dir(streamvault) if not name.startswith("_")} - {"StreamManager"}
    assert public <= set(dir(manager))
    for name in public - NOT_METHODS:
        assert inspect.signature(getattr(manager, name)) == inspect.signature(getattr(streamvault, name))
        assert getattr(manager, name).__doc__ == getattr(streamvault, name).__doc__
    for name in ("StreamManager", "no_such_verb", "__version__"):
        with pytest.raises(AttributeError):
            getattr(manager, name)


def test_names_are_relative_to_its_uri(manager: StreamManager, vault: Vault) -> None:
    manager.copy_stream("scope/stream", "scope/copy")
    manager.export_stream(stream="scope/copy", root=vault.root)
    manager.import_stream(f"{vault.root}/scope/copy", "scope/back")
    manager.copy_stream(f"{manager.uri}/scope/back", vault.uri(replace(NAME, stream="third")))
    manager.request_restore(f"{vault.root}/scope/copy", "scope/later", queue="scope/queue")
    listed = {one.stream.removeprefix(f"{manager.uri}/scope/") for one in manager.list_streams("scope/")}
    assert {"stream", "copy", "back", "third", "queue"} <= listed
    assert {one.stream for one in manager.list_streams("")} == {one.stream for one in manager.list_streams("scope/")}
    manager.append_streams(["scope/copy", vault.uri()], "scope/back")
    assert manager.sweep_scope("scope/", older_than=0.0).scope == f"{manager.uri}/scope/"


def test_manager_of_a_scope(vault: Vault) -> None:
    with StreamManager(f"local://{vault.folder}/streams/scope/", master="inline") as manager:
        manager.copy_stream("stream", "copy")
        assert [one.stream.rpartition("/")[2] for one in manager.list_streams("")] == ["copy", "stream"]
    assert left(vault) == [replace(NAME, stream="copy"), NAME]


def test_verbs_share_one_runner(manager: StreamManager, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Counted(InlineRunner):
        def __init__(self, *given: Any) -> None:
            opened.append(given)
            super().__init__(*given)

    monkeypatch.setattr(opening, "InlineRunner", Counted)
    manager.copy_stream("scope/stream", "scope/one")
    manager.copy_stream("scope/stream", "scope/two")
    assert opened == [(2,)]
    manager.copy_stream("scope/stream", "scope/three", master="inline[3]")
    assert opened == [(2,), (3,)]
    streamvault.copy_stream(vault.uri(), vault.uri(replace(NAME, stream="four")), master="inline[2]")
    assert opened == [(2,), (3,), (2,)]


def test_start_of_spark_counts_for_the_verb_that_waited_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Runner):
        def run(self, function: Callable[[Any], Any], specs: Sequence[Any], *_: Any) -> Iterator[tuple[int, Any]]:
            self.start_seconds = 7.0
            yield from enumerate(map(function, specs))

    monkeypatch.setattr(opening, "InlineRunner", lambda _: Slow())
    with ExitStack() as stack:
        kept = KeptRunner("inline[4]", stack)
        seconds = []
        for _ in range(2):
            with kept.used(), open_runner("inline[4]") as runner:
                assert list(runner.run(abs, [-1])) == [(0, 1)]
                seconds.append(runner.start_seconds)
        assert seconds == [7.0, 0.0]


def test_verbs_share_one_store(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = [], []
    real, close = LocalStore.__init__, LocalStore.close

    def init(self: LocalStore, *given: Any) -> None:
        made.append(self)
        real(self, *given)

    monkeypatch.setattr(LocalStore, "__init__", init)
    monkeypatch.setattr(LocalStore, "close", lambda self: closed.append(close(self)))
    monkeypatch.setitem(addresses._SCHEMES, "local", replace(addresses._SCHEMES["local"], shared=True))
    first = StreamManager(f"local://{vault.folder}/streams", master="inline")
    second = StreamManager(f"local://{vault.folder}/streams", master="inline")
    list(first.list_streams(""))
    list(second.list_streams(""))
    assert (len(made), len(closed)) == (1, 0)
    first.close()
    list(second.list_streams(""))
    assert (len(made), len(closed)) == (1, 0), "the second one still uses it"
    second.close()
    assert len(closed) == 1


def printed(program: str) -> str:
    """What a program prints in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(streamvault.__file__).parents[1],
    )
    assert not ended.stderr
    return ended.stdout


class TestClosing:
    def test_ends_ephemeral_streams(self, manager: StreamManager, vault: Vault) -> None:
        block = manager.ephemeral_stream("scope/staging", segments=2)
        assert block.__enter__() == vault.uri(STAGING)
        assert STAGING in left(vault)
        manager.close()
        assert left(vault) == [NAME]
        block.__exit__(None, None, None)

    def test_on_an_exception(self, vault: Vault) -> None:
        manager = StreamManager(f"local://{vault.folder}/streams", master="inline")
        block = manager.ephemeral_stream("scope/staging")
        block.__enter__()
        with pytest.raises(ZeroDivisionError), manager:
            raise ZeroDivisionError
        assert left(vault) == [NAME]

    def test_at_exit(self, vault: Vault) -> None:
        program = f"""
        from streamvault import StreamManager
        manager = StreamManager("local://{vault.folder}/streams", master="inline")
        block = manager.ephemeral_stream("scope/staging")
        block.__enter__()
        print(len(list(manager.list_streams("scope/"))))
        """
        assert printed(program) == "3\n"
        assert left(vault) == [NAME]

    @pytest.mark.parametrize("end", ["sys.exit()", "1 / 0", "manager.close()"])
    def test_not_by_a_process_that_was_forked(self, vault: Vault, end: str) -> None:
        program = f"""
        import os, sys
        from streamvault import StreamManager, ephemeral_stream
        sys.excepthook = lambda *_: None
        with StreamManager("local://{vault.folder}/streams", master="inline") as manager:
            with manager.ephemeral_stream("scope/staging"), ephemeral_stream("{vault.uri(QUEUE)}"):
                if not (child := os.fork()):
                    {end}
                    sys.exit()
                os.waitpid(child, 0)
                print(len(list(manager.list_streams("scope/"))))
        """
        assert printed(program) == "5\n"
        assert left(vault) == [NAME]

    def test_failure_of_one_stream_leaves_no_other(self, vault: Vault) -> None:
        manager = StreamManager(f"local://{vault.folder}/streams", master="inline")
        other = replace(NAME, stream="other")
        blocks = [manager.ephemeral_stream(str(name)) for name in (STAGING, other)]
        for block in blocks:
            block.__enter__()
        with vault.store as store:
            store.delete(other)
        with pytest.raises(Conflict, match="was deleted while it was in use"):
            manager.close()
        assert left(vault) == [NAME]

    def test_block_that_ends_is_forgotten(self, manager: StreamManager, vault: Vault) -> None:
        with manager.ephemeral_stream("scope/staging"):
            with pytest.raises(StreamExists), manager.ephemeral_stream("scope/staging"):
                pass
            assert STAGING in left(vault)
        assert left(vault) == [NAME]
        assert not manager._blocks

    def test_twice_and_then_nothing_works(self, manager: StreamManager) -> None:
        manager.close()
        manager.close()
        with pytest.raises(Usage, match="the stream manager is closed"):
            manager.list_streams("")
        with pytest.raises(Usage, match="the stream manager is closed"), manager.ephemeral_stream("scope/a"):
            pass

    def test_threads_may_use_it(self, manager: StreamManager, vault: Vault) -> None:
        threads = [
            threading.Thread(target=manager.copy_stream, args=("scope/stream", f"scope/copy{number}"))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(left(vault)) == 4


@pytest.mark.parametrize(
    ("uri", "master", "error"), [("s3://bucket", "inline", InvalidName), ("local:///a", "threads", InvalidMaster)]
)
def test_bad_arguments(uri: str, master: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        StreamManager(uri, master=master)


ORDERS, OTHER = StreamName("shop", "orders"), StreamName("other", "one")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "streams")
    make_stream(store, ORDERS, events=100, largest=3000)
    store.create_stream_and_scope(OTHER, StreamConfiguration())
    return store


def test_figures_are_those_of_what_an_export_would_read(store: LocalStore) -> None:
    described = store.describe(ORDERS)
    found = {one.stream: one for one in list_streams(f"{store.uri}/shop/")}
    assert found.keys() == {f"{store.uri}/{ORDERS}"}
    one = found[f"{store.uri}/{ORDERS}"]
    live = segments_between(described, described.head, described.tail)
    infos = store.segment_info(ORDERS, list(live))
    starts = {segment: start for segment, (start, _) in live.items()}
    assert one.bytes == sum(info.write_offset - starts[info.segment] for info in infos) > 0
    assert (one.role, one.own, one.segments, one.epochs, one.sealed) == (
        "stream",
        False,
        len(described.tail.offsets),
        len(described.epochs),
        described.sealed,
    )


def test_a_store_has_all_its_scopes_in_order(store: LocalStore) -> None:
    assert [one.stream for one in list_streams(store.uri)] == [f"{store.uri}/{OTHER}", f"{store.uri}/{ORDERS}"]


def test_internal_streams_are_marked(store: LocalStore, tmp_path: Path) -> None:
    replicate_stream(f"{store.uri}/{ORDERS}", f"{store.uri}/other/replica", master="inline")
    (tmp_path / "vault").mkdir()
    request_restore(f"file://{tmp_path}/vault/shop/none", f"{store.uri}/shop/back", queue=f"{store.uri}/other/queue")
    with ephemeral_stream(f"{store.uri}/other/while"):
        kinds = {one.stream.rpartition("/")[2]: (one.role, one.own) for one in list_streams(f"{store.uri}/other/")}
    ledger, lease = (next(name for name in kinds if name.startswith(p)) for p in ("streamvault-c", "streamvault-e"))
    assert kinds == {
        "one": ("stream", False),
        "replica": ("replica", True),
        "queue": ("queue", True),
        "while": ("ephemeral", False),
        ledger: ("ledger", True),
        lease: ("lease", True),
    }


def test_a_stream_that_vanishes_is_left_out(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.describe

    def describe(self: LocalStore, name: StreamName) -> Any:
        if name == OTHER:
            raise NoSuchStream("no such stream", where=str(name))
        return really(self, name)

    monkeypatch.setattr(LocalStore, "describe", describe)
    assert [one.stream for one in list_streams(store.uri)] == [f"{store.uri}/{ORDERS}"]


def test_a_stream_that_is_truncated_meanwhile_is_looked_at_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, asked = LocalStore.segment_info, []

    def segment_info(self: LocalStore, name: StreamName, segments: Any) -> Any:
        asked.append(name)
        if len(asked) == 1:
            raise NoSuchSegment("no such segment")
        return really(self, name, segments)

    monkeypatch.setattr(LocalStore, "segment_info", segment_info)
    (one,) = list_streams(f"{store.uri}/shop/")
    assert (one.problem, len(asked)) == ("", 2)


def test_a_stream_that_cannot_be_read_is_listed_with_the_reason(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def describe(*_: Any) -> Any:
        raise StreamStoreError("the record is damaged")

    monkeypatch.setattr(LocalStore, "describe", describe)
    (one,) = list_streams(f"{store.uri}/shop/")
    assert one.problem == "the record is damaged"
    assert main(["streams", f"{store.uri}/shop/"]) == 0
    printed = capfd.readouterr()
    assert "cannot be read" in printed.out
    assert "the record is damaged" in printed.err


def test_command(store: LocalStore, capfd: pytest.CaptureFixture[str]) -> None:
    with open_stream(f"{store.uri}/{OTHER}") as stream:
        append_events(store, OTHER, next(iter(stream.describe().tail.offsets)), [b"x" * 92])
        store.seal(OTHER)
    assert main(["streams", store.uri]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert lines[0] == ["STREAM", "SEGMENTS", "BYTES", "REMARKS"]
    assert lines[2] == [f"{store.uri}/{OTHER}", "1", "100", "B", "sealed"]
    assert lines[3][0] == f"{store.uri}/{ORDERS}"
    assert main(["streams", f"{store.uri}/other/", "--json"]) == 0
    assert [one["bytes"] for one in json.loads(capfd.readouterr().out)["streams"]] == [100]
    store.create_scope("empty")
    assert main(["streams", f"{store.uri}/empty/"]) == 0
    assert capfd.readouterr().out == f"no streams in {store.uri}/empty/\n"


def test_scope_that_does_not_exist(store: LocalStore) -> None:
    with pytest.raises(NoSuchScope):
        list(list_streams(f"{store.uri}/none/"))


@pytest.mark.parametrize(
    "uri", ["s3://bucket/x/", "shop/", "pravega://host/", "pravega://host:9090/shop", "local://shop/", "local:///a/_x/"]
)
def test_what_is_no_scope_is_rejected_at_once(uri: str) -> None:
    with pytest.raises(InvalidName):
        list_streams(uri)


def test_few_are_begun_before_they_are_asked_for() -> None:
    begun, lock = [], threading.Lock()

    def function(number: int) -> int:
        with lock:
            begun.append(number)
        return number

    numbers = iter(range(1000))
    results = each_of(function, numbers)
    assert next(results) == 0
    assert next(numbers) == 2 * AT_ONCE
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 2 * AT_ONCE
    assert list(each_of(function, range(100))) == list(range(100))
