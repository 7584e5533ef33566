"""A stream archived as it grows: no event missing or doubled, few generations."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault import delete_archive, follow_stream, import_stream
from streamvault.cli import main
from streamvault.common import waiting
from streamvault.common.errors import Damaged, Failed, Problem, Usage
from streamvault.common.progress import Progress
from streamvault.exporter import archived_events
from streamvault.exporter.compact import FACTOR
from streamvault.exporter.follow import LONGEST_REST
from streamvault.manifests.verbs.costs import Requests
from streamvault.objectstore import retrying
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AccessDenied, ObjectStoreUnavailable, ServerBusy
from streamvault.runner.opening import open_runner
from streamvault.streamstore.errors import NoSuchStream, StreamStoreUnavailable
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from testkit.clock import Clock
from testkit.small_archives import Vault, a_vault, archive_of, contents, is_sound
from tests.counting import counted
from tests.told import Ran

RANGE_SIZE = 8 * 1024


class Notes(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


vault = a_vault(events=60, largest=2000)


def follow(vault: Vault, **options: Any) -> Any:
    given: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline[2]", "every": 0.01}
    return follow_stream(vault.uri(), vault.root, **{**given, **options})


def is_the_stream(vault: Vault) -> None:
    assert is_sound(vault.root)
    target = StreamName("scope", "restored")
    import_stream(vault.archive, vault.uri(target), master="inline[2]")
    assert vault.digest(target) == vault.digest()
    assert vault.shape(target) == vault.shape()


def written(vault: Vault, rounds: int, have: Callable[[int], bool]) -> threading.Thread:
    """A thread that writes more whenever the archive has the previous events, and seals the stream at the end."""

    def write() -> None:
        for number in range(rounds):
            vault.add(b"round %d" % number * 9, b"")
            assert have(number)
        vault.seal()

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.parametrize("rotate", [False, True])
def test_follow_ends_when_the_stream_is_sealed(vault: Vault, rotate: bool) -> None:
    turn, rounds = threading.Semaphore(0), 3 * FACTOR

    class Turns(Notes):
        def note(self, text: str) -> None:
            super().note(text)
            turn.release()

    notes = Turns()
    writer = written(vault, rounds, lambda _: turn.acquire(timeout=60))
    report = follow(vault, rotate=rotate, progress=notes)
    writer.join(60)
    assert report.ended == "sealed"
    assert report.made == len(notes.lines) >= rounds
    assert notes.lines[0].startswith("generation 1: ")
    assert report.generation == report.made
    history = archive_of(vault.root).history()
    assert (report.events, report.bytes) == (history.events, history.bytes)
    assert report.merges >= report.made // FACTOR
    assert report.generations_in_force == len(history.generations) < 2 * FACTOR + 2
    assert report.moved_bytes < 3 * report.bytes
    assert history.tail == vault.described.tail or history.newest.sealed
    is_the_stream(vault)


def test_follow_ends_when_the_stream_is_idle(vault: Vault) -> None:
    report = follow(vault, idle=0.05)
    assert (report.ended, report.made) == ("idle", 1)
    assert report.rounds >= 2
    assert [one.generation for one in report.newest] == [1]
    assert follow(vault, idle=0.01).made == 0


def test_follow_ends_when_its_time_is_over(vault: Vault) -> None:
    report = follow(vault, lasting=0.05, idle=3600.0)
    assert (report.ended, report.made) == ("time", 1)


def test_follow_truncates_and_expires_while_it_runs(vault: Vault) -> None:
    for number in range(3):
        vault.add(b"%d" % number)
        report = follow(vault, idle=0.01, keep=2, truncate_source=True)
    assert report.expired_count == 1
    assert report.cut is not None
    assert vault.described.head.to_json() == report.cut
    assert archive_of(vault.root).generations() == [2, 3]


class Waits(Clock):
    """A clock on which pauses take no time, and with something that happens after so many of them."""

    def __init__(self, happens: dict[int, Callable[[], object]]) -> None:
        super().__init__()
        self._happens = happens

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._happens.get(len(self.slept), lambda: None)()


EVERY = 10.0


def follow_for(vault: Vault, monkeypatch: pytest.MonkeyPatch, rounds: int, **happens: Any) -> tuple[Any, Requests]:
    """Follow for so many rounds, in which a given thing happens; return the report and the requests."""
    clock = Waits({int(name.removeprefix("after_")): what for name, what in happens.items()})
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", clock.monotonic)
        patched.setattr(time, "sleep", clock.sleep)
        with counted(monkeypatch) as requests:
            report = follow(vault, master="inline", rotate=True, every=EVERY, lasting=(rounds - 1) * EVERY)
    assert report.rounds == rounds
    return report, requests[0]


def test_idle_rounds_hardly_ask_the_store(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    follow_for(vault, monkeypatch, 3)
    few, many = (follow_for(vault, monkeypatch, rounds)[1].total for rounds in (10, 370))
    assert many - few <= 360
    longest = LONGEST_REST / EVERY
    assert many - few >= 360 // longest, "what others have done to the archive is seen"


@pytest.mark.parametrize("after", [1, 2, 3, 30, 300])
def test_what_comes_after_a_rest_is_archived_in_the_next_round(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    more = {f"after_{after}": lambda: vault.add(b"more")}
    report, _ = follow_for(vault, monkeypatch, after + 1, **more)
    assert [one.generation for one in report.newest] == [1, 2]
    is_the_stream(vault)


def test_deleted_archive_is_noticed_while_nothing_comes(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"after_50": lambda: delete_archive(vault.archive, yes=True)}
    with pytest.raises(Problem, match="deleted"):
        follow_for(vault, monkeypatch, 50 + 2 * int(LONGEST_REST / EVERY), **gone)


@pytest.mark.parametrize(
    "options",
    [
        {"idle": 0.0},
        {"lasting": -1.0},
        {"every": 0.0},
        {"retry_for": -1.0},
        {"keep": 3, "keep_for": 60.0},
        {"keep": 0},
        {"truncate_source": True, "storage_class": "GLACIER"},
        {"layout": "pages"},
    ],
)
def test_follow_refuses_invalid_options(vault: Vault, options: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        follow(vault, **options)
    assert archive_of(vault.root).generations() == []


def test_start_of_the_runner_counts_for_no_generation(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened once; the time is not subtracted from a later round."""
    with open_runner("inline[2]") as runner:
        runner.start_seconds = 1000.0
        monkeypatch.setattr("streamvault.runner.opening.open_runner", lambda *_: nullcontext(runner))
        adding = iter([b"first", b"second"])

        class Adding(Notes):
            def note(self, text: str) -> None:
                super().note(text)
                if (more := next(adding, None)) is not None:
                    vault.add(more)

        report = follow(vault, idle=0.5, progress=Adding())
    assert report.made == 3
    assert all(one.seconds >= 0 for one in report.newest)


def test_commands_follow_and_print_what_they_did(vault: Vault, ran: Ran) -> None:
    where = [vault.uri(), vault.root, "--master", "inline"]
    told = ran("follow", *where, "--idle", "1s", "--every", "1s", "--json")
    report = json.loads(told.out)
    assert (report["ended"], report["made"], report["newest"][0]["generation"]) == ("idle", 1, 1)
    assert "generation 1: " in told.err
    assert "the time limit was reached" in ran("follow", *where, "--rotate", "--for", "1s", "--every", "1s").out


class Away:
    """A store's method that fails a number of times: at every `at`-th call, or from that one on."""

    def __init__(
        self, real: Callable[..., Any], times: float, error: Problem, *, at: int = 1, from_then_on: bool = True
    ) -> None:
        self._real, self._times, self._error, self._at, self._stays = real, times, error, at, from_then_on
        self._calls = 0
        self.failed = 0

    def __get__(self, store: object, _: type) -> Callable[..., Any]:
        return partial(self, store)

    def __call__(self, *arguments: Any) -> Any:
        self._calls += 1
        if self._calls >= self._at and self.failed < self._times:
            self.failed += 1
            self._calls = self._at if self._stays else 0
            raise self._error
        return self._real(*arguments)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Away]:
    """Makes a store's method fail; pauses between retries are short."""
    monkeypatch.setattr(waiting, "MAX_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(retrying, "FIRST_CONTACT", 0.0)

    def make(store: type, method: str, times: float, error: Problem, **when: Any) -> Away:
        made = Away(getattr(store, method), times, error, **when)
        monkeypatch.setattr(store, method, made)
        return made

    return make


UNREACHABLE = ObjectStoreUnavailable("nobody answers", where="there")


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize(
    ("store", "method", "error"),
    [
        (ObstoreStore, "put", UNREACHABLE),
        (ObstoreStore, "get", ServerBusy("the server is busy")),
        (ObstoreStore, "list", UNREACHABLE),
        (LocalStore, "read", StreamStoreUnavailable("nobody answers")),
    ],
    ids=["put", "get", "list", "read"],
)
def test_outage_is_waited_for_and_no_generation_counted_twice(
    vault: Vault, away: Callable[..., Away], *, rotate: bool, store: type, method: str, error: Problem
) -> None:
    """Wherever in a round that happens, each generation is counted and reported once."""
    notes = Notes()

    class Adding(Notes):
        def note(self, text: str) -> None:
            notes.note(text)
            if text.startswith("generation ") and len(generations(notes)) < 9:
                vault.add(b"more")

    failing = away(store, method, 6, error, at=5, from_then_on=False)
    report = follow(vault, rotate=rotate, idle=0.3, progress=Adding())
    assert failing.failed == 6
    assert 0 < report.retries <= 6
    assert (report.ended, report.made, report.generation) == ("idle", 9, 9)
    assert generations(notes) == [f"generation {number}" for number in range(1, 10)]
    history = archive_of(vault.root).history()
    assert (report.events, report.bytes) == (history.events, history.bytes)
    assert report.merges >= 1
    told = [line for line in notes.lines if line.startswith("retrying in ")]
    assert told
    assert all(str(error) in line for line in told)
    assert len([line for line in notes.lines if line.startswith("recovered after")]) == len(told)


def generations(notes: Notes) -> list[str]:
    return [line.partition(":")[0] for line in notes.lines if line.startswith("generation ")]


def test_generation_counts_though_its_work_files_stay(
    vault: Vault, away: Callable[..., Away], monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(_: object, first: ObjectStoreUnavailable, __: object) -> None:
        raise first

    monkeypatch.setattr(retrying.Retries, "again", at_once)
    failing = away(ObstoreStore, "delete", 1, UNREACHABLE, at=2)  # the first call probes a new archive's server
    report = follow(vault, idle=0.01)
    assert failing.failed == 1
    assert (report.made, report.generation) == (1, 1)
    assert report.events > 0
    assert not [key for key in contents(vault.root) if "/_work/" in key], "the next round removes them"


def test_outage_is_reported_once_a_minute(vault: Vault, away: Callable[..., Away]) -> None:
    notes = Notes()
    away(LocalStore, "describe", 30, StreamStoreUnavailable("nobody answers"), at=2)
    follow(vault, idle=0.01, progress=notes)
    (line,) = [line for line in notes.lines if "nobody answers" in line]
    assert "for at most 10 min 00 s" in line or "for at most 9 min" in line


def test_follow_fails_when_the_server_stays_away(vault: Vault, away: Callable[..., Away]) -> None:
    follow(vault, idle=0.01)
    failing = away(ObstoreStore, "list", math.inf, UNREACHABLE, at=3)
    began = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match="nobody answers"):
        follow(vault, retry_for=0.5)
    assert failing.failed > 2
    assert 0.5 <= time.monotonic() - began < 30
    failing.failed = 0
    with pytest.raises(ObjectStoreUnavailable):
        follow(vault, lasting=0.3)


@pytest.mark.parametrize(
    ("error", "at", "options"),
    [
        (AccessDenied("the credentials have expired"), 2, {}),
        (NoSuchStream("no such stream"), 2, {}),
        (Damaged("the archive is damaged"), 2, {}),
        (StreamStoreUnavailable("nobody has ever answered"), 1, {}),
        (StreamStoreUnavailable("nobody answers"), 2, {"retry_for": 0.0}),
    ],
    ids=["denied", "deleted", "damaged", "never there", "no retries"],
)
def test_lasting_error_fails_at_once(
    vault: Vault, away: Callable[..., Away], error: Problem, at: int, options: dict[str, float]
) -> None:
    failing = away(LocalStore, "describe", 1, error, at=at)
    notes = Notes()
    with pytest.raises(type(error)):
        follow(vault, idle=1.0, progress=notes, **options)
    assert failing.failed == 1
    assert notes.lines == []


def test_interrupt_ends_the_wait_for_a_server(
    vault: Vault, away: Callable[..., Away], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    away(LocalStore, "describe", math.inf, StreamStoreUnavailable("nobody answers"), at=2)
    monkeypatch.setattr(waiting, "wait_random_exponential", lambda **_: lambda _: 100.0)
    interrupt = threading.Timer(2.0, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    interrupt.start()
    began = time.monotonic()
    try:
        code = main(["follow", vault.uri(), vault.root, "--master", "inline"])
    finally:
        interrupt.cancel()
    assert code == 130
    assert time.monotonic() - began < 20
    told = capfd.readouterr().err.splitlines()
    assert told[0].startswith("retrying in 1 min 40 s, for ")
    assert told[-1] == "streamvault: interrupted; run the same command again to resume"


def test_follow_goes_on_if_generations_cannot_be_merged(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lifecycle rule has moved chunks to Glacier: they are not merged, but later ones are."""
    real = archived_events.rewrite_range

    def cold(task: Any) -> Any:
        if task.to.span.first == 1:
            raise Failed("the object is in an archive class")
        return real(task)

    monkeypatch.setattr(archived_events, "rewrite_range", cold)
    for number in range(FACTOR):
        vault.add(b"%d" % number)
        vault.export("chunks")
    told: list[str] = []

    class Warned(Notes):
        def warn(self, text: str) -> None:
            told.append(text)

    turns = iter(range(FACTOR + 2))

    def more(*_: object) -> None:
        if next(turns, None) is not None:
            vault.add(b"more")

    monkeypatch.setattr("streamvault.common.waiting.time", SimpleNamespace(sleep=more, monotonic=time.monotonic))
    report = follow(vault, idle=0.5, progress=Warned())
    assert report.ended == "idle"
    assert [text for text in told if "archive class" in text] == list(report.warnings)
    assert len(report.warnings) == 1
    assert report.merges >= 1
    assert archive_of(vault.root).listing().spans[:FACTOR] == tuple((n, n) for n in range(1, FACTOR + 1))
    is_the_stream(vault)
