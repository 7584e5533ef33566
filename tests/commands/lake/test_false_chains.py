"""Layout events: where several objects begin at one offset, the digest decides, and nothing false is passed on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streamvault import (
    append_streams,
    check_archive,
    convert_archive,
    export_stream,
    get_event,
    import_stream,
    read_archive,
    write_table,
)
from streamvault.common.errors import Damaged
from streamvault.layouts.chain import MAX_CHAINS, Chains
from streamvault.layouts.keys import event_key
from streamvault.spark.archive_source import ArchiveDataSource
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from testkit.small_archives import NAME, Vault, a_root, a_vault, contents, objects_of, replace_object
from tests.spark_reads import read

RESTORED = StreamName("scope", "restored")
SEGMENT = SegmentId(0, 0)
PAYLOADS = [b"%04d" % number * 10 for number in range(40)]
LENGTH = 48
FIRST = 21
"""The first false object, as objects have it: shorter than an event."""


vault = a_vault(*PAYLOADS, exports=[("events", "")])


def false_keys(number: int) -> list[str]:
    """Keys of two objects that are together as long as an event."""
    return [event_key(SEGMENT, number * LENGTH + low, high - low) for low, high in ((0, FIRST), (FIRST, LENGTH))]


def fake(vault: Vault, *events: int) -> None:
    """Put two objects that are together as long as an event in its place."""
    for key in itertools.chain.from_iterable(map(false_keys, events)):
        objects_of(vault.root).put(f"{NAME}/{key}", b"x" * (int(key[-10:]) - 8))


def cat(archive: str, **options: Any) -> list[bytes]:
    return list(read_archive(archive, columns=["payload"], **options).read_all()["payload"].to_pylist())


def in_stream(vault: Vault, stream: StreamName) -> list[bytes]:
    return vault.payloads(stream)


def imported(vault: Vault) -> list[bytes]:
    import_stream(vault.archive, vault.uri(RESTORED), master="inline[1]")
    return in_stream(vault, RESTORED)


def appended(vault: Vault) -> list[bytes]:
    vault.create_stream(RESTORED, StreamConfiguration(scaling=Scaling(min_segments=1)))
    append_streams([vault.archive], vault.uri(RESTORED), master="inline[1]")
    return in_stream(vault, RESTORED)


def handed_off(vault: Vault) -> list[bytes]:
    write_table(vault.archive, format="parquet", master="inline[1]")
    import_stream(vault.archive, vault.uri(RESTORED), layout="table", master="inline[1]")
    return in_stream(vault, RESTORED)


def converted(vault: Vault) -> list[bytes]:
    other = a_root()
    convert_archive(vault.archive, other, layout="chunks", master="inline[1]")
    return cat(f"{other}/{NAME}")


def gotten(vault: Vault, **options: Any) -> list[bytes]:
    return [get_event(vault.archive, str(pointer), **options) for pointer, _ in vault.events()]


READERS: dict[str, Callable[[Vault], list[bytes]]] = {
    "cat": lambda vault: cat(vault.archive),
    "cat-unverified": lambda vault: cat(vault.archive, unverified=True),
    "get": gotten,
    "get-unverified": partial(gotten, unverified=True),
    "spark": lambda vault: [payload for _, payload in read(ArchiveDataSource({"path": vault.archive}))[1]],
    "import": imported,
    "append": appended,
    "handoff": handed_off,
    "convert": converted,
}


@pytest.mark.parametrize("reader", READERS)
def test_digest_decides_between_chains(vault: Vault, reader: str) -> None:
    fake(vault, 0, 7, 39)
    assert READERS[reader](vault) == PAYLOADS


@pytest.mark.parametrize("read_data", [False, True])
def test_only_what_is_off_the_right_chain_is_a_stray(vault: Vault, read_data: bool) -> None:
    fake(vault, 0, 7, 39)
    report = check_archive(vault.archive, read_data=read_data, repair=True, master="inline[1]")
    assert (report.ok, report.strays) == (True, 6)
    assert set(report.stray_keys) == {f"{NAME}/{key}" for number in (0, 7, 39) for key in false_keys(number)}
    assert cat(vault.archive) == PAYLOADS


def gone(vault: Vault) -> None:
    """The true object is lost, and a false chain is there."""
    fake(vault, 7)
    replace_object(vault.root, f"{NAME}/{event_key(SEGMENT, 7 * LENGTH, LENGTH)}", None)


def changed(vault: Vault) -> None:
    """The true object is changed, and a false chain is there."""
    fake(vault, 7)
    replace_object(vault.root, f"{NAME}/{event_key(SEGMENT, 7 * LENGTH, LENGTH)}", b"y" * (LENGTH - 8))


def many(vault: Vault) -> None:
    """More chains than are compared, and the right one is the last of them."""
    fake(vault, *range(6))


BAD = {"gone": gone, "changed": changed, "many": many}


@pytest.mark.parametrize("reader", [name for name in READERS if "unverified" not in name])
@pytest.mark.parametrize("bad", BAD)
def test_nothing_is_passed_on_if_no_chain_is_right(vault: Vault, bad: str, reader: str) -> None:
    BAD[bad](vault)
    with pytest.raises(Damaged):
        READERS[reader](vault)
    if vault.exists(RESTORED):
        assert vault.events(RESTORED) == []
    report = check_archive(vault.archive, read_data=True, master="inline[1]")
    assert not report.ok
    if bad != "gone":  # then the listing has one chain
        assert not check_archive(vault.archive, master="inline[1]").ok


def test_chains_beyond_the_maximum_are_not_tried(vault: Vault) -> None:
    many(vault)
    (finding,) = check_archive(vault.archive, master="inline[1]").damage
    assert f"more than {MAX_CHAINS} chains" in finding.what
    assert (finding.start, finding.end) == (0, len(PAYLOADS) * LENGTH)


def test_repair_before_the_digest_is_known_deletes_nothing_behind_a_fork(vault: Vault) -> None:
    """A rotation's sweep has no digests."""
    fake(vault, 7)
    before = contents(vault.root)
    export_stream(vault.uri(), vault.root, layout="events", master="inline[1]")
    assert contents(vault.root) == before


def test_chains_are_found_in_linear_time() -> None:
    """Each of many offsets has two objects that lead nowhere, and two that lead on."""
    dead = [(at, at + step) for at in range(0, 100_000, 10) for step in (3, 5, 10, 20)]
    found = iter(Chains(dead, 0, 100_000))
    first = next(found)
    assert (first[0], first[-1], len(first)) == (0, 100_000, 10_001)
    assert next(found) != first
    assert list(Chains([(0, 5), (0, 6), (5, 9)], 0, 10)) == []
    assert [list(one) for one in Chains([(0, 5), (0, 6), (5, 9), (6, 9), (9, 10)], 0, 10)] == [
        [0, 5, 9, 10],
        [0, 6, 9, 10],
    ]
