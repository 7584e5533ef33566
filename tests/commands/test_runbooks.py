"""Each runbook, followed command by command after its accident, brings everything back, and the schedule runs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streamvault.common.errors import Damaged, Failed
from streamvault.exporter import run as exporting
from streamvault.layouts.keys import decision_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import FinishedSpan
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.streams import append_events, events_of, make_stream
from tests.archives import new_decision
from tests.pages import DOCS, Page, command_lines

AGAIN = "Resume the schedule"


@dataclass
class Site:
    """Two clusters, in folders or real, and a root for archives.

    Attributes:
        here, there, vault: their URIs.
        scope: what the pages call ``shop``.
    """

    here: str
    there: str
    vault: str
    capfd: pytest.CaptureFixture[str]
    scope: str = "shop"

    @property
    def orders(self) -> StreamName:
        return StreamName(self.scope, "orders")

    def page(self, name: str) -> Page:
        places = {"pravega://HERE:9090": self.here, "pravega://THERE:9090": self.there, "s3://vault": self.vault}
        return Page(f"runbooks/{name}.md", places | {"/shop/": f"/{self.scope}/"}, self.capfd)

    def schedule(self, code: int = 0) -> dict[str, Any]:
        """Run what the timer runs, as the index of the runbooks says."""
        page = self.page("index")
        (line,) = command_lines((DOCS / page.file).read_text())
        return page.command(line, code)

    def store(self, where: str = "here") -> StreamStore:
        return parse_stream(f"{getattr(self, where)}/{self.orders}")[0].open()

    def make(self) -> Site:
        """A stream that a timer archives: two generations."""
        with self.store() as store:
            make_stream(store, self.orders, events=60, largest=2000)
        self.schedule()
        self.add(b"one more")
        self.schedule()
        return self

    def add(self, *payloads: bytes, name: StreamName | None = None, where: str = "here") -> None:
        name = name or self.orders
        with self.store(where) as store:
            for segment in sorted(store.describe(name).tail.offsets):
                append_events(store, name, segment, payloads)

    def payloads(self, name: StreamName | None = None, where: str = "here") -> list[bytes]:
        with self.store(where) as store:
            return sorted(payload for _, payload in events_of(store, name or self.orders))

    def delete(self) -> None:
        with self.store() as store:
            store.delete(self.orders)

    def goes_on(self, page: Page, words: Sequence[str], where: str = "here") -> None:
        """The schedule, as it is now, archives what comes."""

        def newest() -> int:
            report = page.command(words)
            done = report["outcomes"][0]["result"] if "outcomes" in report else report
            return int(done["generation"])

        before = newest()
        self.add(b"the next one", where=where)
        assert newest() == before + 1


@pytest.fixture
def site(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    """Folders; tests/integration has servers instead."""
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline[2]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vault" / "backups").mkdir(parents=True)
    (tmp_path / "vault" / "old-cluster").mkdir()
    (tmp_path / "there").mkdir()
    here, there = (f"local://{tmp_path}/{where}" for where in ("here", "there"))
    return Site(here, there, f"file://{tmp_path}/vault", capfd).make()


def last_line(page: Page, section: str = AGAIN) -> list[str]:
    """The rotation that a section ends with."""
    return [line for line in page.left[section] if line[0] == "rotate"][-1]


@pytest.mark.parametrize("taken", [False, True])
def test_stream_deleted(site: Site, *, taken: bool) -> None:
    page, before = site.page("stream-deleted"), site.payloads()
    site.delete()
    if taken:
        with site.store() as store:
            store.create_stream(site.orders, StreamConfiguration(scaling=Scaling(min_segments=3)))
        site.add(b"too early")
    site.schedule(code=4 if taken else 5)
    page.run("What exists")
    page.run("Keep it")
    append = page.left["Restore"].pop()
    assert append[0] == "append"
    if taken:
        page.run("If the name is in use")
        site.delete()
    page.run("Restore")
    if taken:
        with site.store() as store:
            restored = store.describe(site.orders)
            page.command(append)
            appended = store.describe(site.orders)
        assert appended.configuration == restored.configuration
        assert sorted(appended.epochs[-1].segments.values()) == sorted(restored.epochs[-1].segments.values())
    assert site.payloads() == sorted([*before, *[b"too early"] * (3 if taken else 0)])
    shown = site.page("stream-deleted").command(["show", "s3://vault/backups/shop/orders"])
    Path("cut.json").write_text(json.dumps(shown["to"]))
    (translate,) = page.left["Readers and writers"]
    page.run("Readers and writers")
    (event,) = page.command(["cat", "s3://vault/backups/shop/orders", "--limit", "1"])["events"]
    Path("cut.json").write_text(f"{event['pointer']}\n")
    (told,) = page.command(translate)["positions"]
    assert told["old"] == event["pointer"]
    schedule = last_line(page)
    page.run(AGAIN)
    site.goes_on(page, schedule)
    assert list(page.left) == ([] if taken else ["If the name is in use"])


@pytest.mark.parametrize("way", ["With a standby", "Without a standby"])
def test_cluster_lost(site: Site, way: str) -> None:
    page, before = site.page("cluster-lost"), site.payloads()
    if way == "With a standby":
        page.command(["replicate", "pravega://HERE:9090/shop/", "pravega://THERE:9090/shop/"])
    site.add(b"lost")
    if site.here.startswith("local:"):
        shutil.rmtree(site.here.removeprefix("local://"))
    page.run(way)
    assert site.payloads(where="there") == before
    schedule = last_line(page)
    page.run(AGAIN)
    site.goes_on(page, schedule, where="there")
    assert len(page.left) == 1


def test_readers_read_from_the_archive(site: Site) -> None:
    page, before = site.page("readers-from-archive"), site.payloads()
    page.places = {**page.places, "0.0.0.0:9090": "127.0.0.1:0", "archive.example.org": "127.0.0.1"}
    if site.here.startswith("local:"):
        shutil.rmtree(site.here.removeprefix("local://"))
    if site.vault.startswith("file:"):
        Path(site.vault.removeprefix("file://"), "readers").mkdir()
    (serve,) = page.left.pop("Serve the archives")
    command = [sys.executable, "-m", "streamvault", *map(page.placed, serve), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            served = replace(site, here=json.loads(run.stdout.readline())["uri"])
            assert served.payloads() == before
            page.run("Rebuild the cluster")
            assert served.payloads() == before == site.payloads(where="there")
            with served.store() as old, site.store("there") as new:
                was, now = old.describe(site.orders), new.describe(site.orders)
                assert (now.head.offsets, now.tail.offsets) == (was.head.offsets, was.tail.offsets)
            run.send_signal(signal.SIGTERM)
            assert run.wait(30) == 0
        finally:
            run.kill()
    schedule = last_line(page)
    page.run(AGAIN)
    site.goes_on(page, schedule, where="there")
    assert list(page.left) == []


def damage(site: Site) -> Callable[[], None]:
    """Lose an object of the archive; return what brings it back."""
    store = RootAddress.parse(f"{site.vault}/backups").open()
    key = next(entry.key for entry in store.list(f"{site.orders}/") if "/_" not in entry.key)
    data = bytes(store.get(key))
    store.delete([key])
    return lambda: store.put(key, data)


@pytest.mark.parametrize("way", ["The objects exist elsewhere", "The stream still has the events", "No copy exists"])
def test_archive_damaged(site: Site, way: str) -> None:
    page, before = site.page("archive-damaged"), site.payloads()
    bring_back = damage(site)
    (found,) = page.run("How bad it is", 3, 0, 0)[:1]
    assert found["damage"]
    schedule = last_line(page, way)
    if way == "The objects exist elsewhere":
        bring_back()
        page.run(way)
    elif way == "The stream still has the events":
        page.run(way)
    else:
        with site.store() as store:
            store.truncate(store.describe(site.orders).tail)
        page.run(way, 3, 0, 0, 0)
        rescued = [payload for payload in site.payloads(StreamName(site.scope, "rescued")) if payload.strip(b"\0")]
        assert 0 < len(rescued) < len(before)
        assert set(rescued) <= set(before)
    site.goes_on(page, schedule)
    assert len(page.left) == 3


def test_decision_that_nobody_made(site: Site) -> None:
    page = site.page("archive-damaged")
    archive = Archive.open(f"{site.vault}/backups/{site.orders}")
    for number in (1, 7):
        archive.store.put(archive.prefix + decision_key(number), new_decision(number, site.orders).encode())
    with pytest.raises(Damaged, match=r"decision 7 .* does not follow decision 1"):
        archive.decide(lambda _: None)
    archive.store.delete([archive.prefix + decision_key(7)])
    page.run("A decision that nobody made")


def test_run_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    page = site.page("run-hangs")
    site.add(b"three", b"four")
    real, left = exporting.leave_row, list[FinishedSpan]()

    def leave(*args: Any, **kwargs: Any) -> FinishedSpan:
        if left:
            raise Failed("it hangs")
        left.append(real(*args, **kwargs))
        return left[-1]

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "leave_row", leave)
        site.schedule(code=1)
    (status, _) = page.run("Is it making progress?")
    (one,) = status["statuses"]
    assert one["unfinished_generation"] == 3
    assert 0 < one["spans_done"] < one["spans_planned"]
    (rehearsed,) = page.run("Is a server the cause?")
    assert rehearsed["generation"] == 3
    schedule = last_line(page)
    after = page.run(AGAIN)
    assert after[1]["statuses"][0]["unfinished_generation"] == 0
    site.goes_on(page, schedule)
    assert list(page.left) == []


@pytest.mark.parametrize("whole", [False, True])
def test_old_cluster_back(site: Site, *, whole: bool) -> None:
    page = site.page("old-cluster-back")
    replicate = next(iter(page.left["Keep writers away"]))
    page.command(replicate)
    both = site.payloads()
    site.add(b"never replicated")
    promote = next(line for line in site.page("cluster-lost").left["With a standby"] if "--dry-run" not in line)
    promoted = page.command(promote if whole else ["promote", "pravega://THERE:9090/shop/orders"])
    site.add(b"newer", where="there")
    Path("promoted.json").write_text(json.dumps(promoted))
    page.run("Keep writers away", 6)
    page.run("Keep the old events")
    page.run("Copy the missing events")
    there = site.payloads(where="there")
    missing = sorted(set(site.payloads()) - set(both))
    assert missing == [b"never replicated"]
    assert set(both) | {b"never replicated", b"newer"} == set(there)
    page.run("The next standby")
    assert site.payloads(StreamName(site.scope, "orders-2")) == there
    schedule = last_line(page)
    page.run(AGAIN)
    site.goes_on(page, schedule, where="there")
    assert list(page.left) == []


def test_what_was_never_replicated_of_a_whole_scope_is_brought_over(site: Site) -> None:
    """Each stream begins at its own cut, which the report of the scope's promotion has."""
    page, clicks = site.page("old-cluster-back"), StreamName(site.scope, "clicks")
    with site.store() as store:
        make_stream(store, clicks, events=20, largest=200)
    here, there = "pravega://HERE:9090/shop/", "pravega://THERE:9090/shop/"
    page.command(["replicate", here, there])
    for name in (site.orders, clicks):
        site.add(name.stream.encode(), name=name)
    Path("promoted.json").write_text(json.dumps(page.command(["promote", there])))
    copied = page.command(["copy", here, "pravega://THERE:9090/shop-late/", "--from", "promoted.json"])
    assert [each["status"] for each in copied["outcomes"]] == ["done", "done"]
    for name in (site.orders, clicks):
        assert set(site.payloads(StreamName("shop-late", name.stream), "there")) == {name.stream.encode()}
