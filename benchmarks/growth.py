"""Requests to the object store by the number of an archive's generations, counted: no servers, no times."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks.results import Results, table
from streamvault import (
    check_archive,
    compact_archive,
    export_stream,
    follow_stream,
    get_event,
    import_stream,
    list_archives,
    read_archive,
    rotate_stream,
    show_status,
    write_table,
)
from streamvault.objectstore.retrying import CountedStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from testkit.small_archives import RANGE_SIZE, Vault, a_root, contents, objects_of

HELP = "requests by the number of an archive's generations; needs no server"

HOW: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline"}
HANDOFF: dict[str, Any] = {"format": "parquet", "master": "inline"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--generations", default="50,200,1000", metavar="N,…", help="sizes (50,200,1000)")
    parser.add_argument("--events", default="20000,80000", metavar="N,…", help="events of a range (20000,80000)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table."""
    for title, figures, given, few in (
        ("generations", _by_generations, arguments.generations, [3, 12]),
        ("events of a range", _by_events, arguments.events, [30, 120]),
    ):
        sizes = few if arguments.quick else [int(text) for text in given.split(",")]
        found: dict[str, list[int]] = {}
        for size in sizes:
            with TemporaryDirectory() as folder:
                for name, requests in figures(Path(folder), size).items():
                    found.setdefault(name, []).append(requests)
        rows = [(name, *(f"{requests:,}" for requests in some)) for name, some in found.items()]
        results.add(title, table((f"requests, by {title}", *(f"{size:,}" for size in sizes)), rows), found)


def _by_events(folder: Path, events: int) -> dict[str, int]:
    """Count the requests for one event of a range in the layout `events`."""
    vault = Vault(folder)
    vault.create()
    vault.add(*(b"%06d" % number * 10 for number in range(events)))
    export_stream(vault.uri(), vault.root, layout="events", master="inline")
    pointers = [str(pointer) for pointer, _ in vault.events()]
    return {
        f"`get{option}` of the {name} event": _counted(
            partial(get_event, vault.archive, pointers[at], unverified=bool(option))
        )
        for option in ("", " --unverified")
        for name, at in (("first", 0), ("last", -1))
    }


def _by_generations(folder: Path, generations: int) -> dict[str, int]:
    vault = Vault(folder)
    vault.create()
    for number in range(generations):
        vault.add(b"%06d" % number * 30)
        export_stream(vault.uri(), vault.root, **HOW)
    events = [str(pointer) for pointer, _ in vault.events()]
    objects, archive = contents(vault.root), vault.archive

    def copied() -> Vault:
        root = a_root()
        for key, data in objects.items():
            objects_of(root).put(key, data)
        return Vault(folder, root)

    table_of, each_of, merged, rotated, other = (copied() for _ in range(5))
    steps: dict[str, Callable[[], object]] = {
        "`export` with nothing new": lambda: export_stream(vault.uri(), vault.root, **HOW),
        "`ls`": lambda: list_archives(vault.root),
        "`status`": lambda: show_status(vault.root),
        "`check`": lambda: check_archive(archive),
        "`cat --limit 1`": lambda: read_archive(archive, limit=1).read_all(),
        "`get` of the first event": lambda: get_event(archive, events[0]),
        "`get` of the last event": lambda: get_event(archive, events[-1]),
        "`import`": lambda: import_stream(archive, f"{vault.uri()}-restored", master="inline"),
        "first `handoff`": lambda: write_table(table_of.archive, **HANDOFF),
        "`handoff` with nothing new": lambda: write_table(table_of.archive, **HANDOFF),
        "first `handoff`, a file for each generation": lambda: write_table(each_of.archive, target_size=64, **HANDOFF),
        "`compact`": lambda: compact_archive(merged.archive, master="inline"),
        "first `rotate`, which reads all back": lambda: rotate_stream(vault.uri(), rotated.root, **HOW),
        "`rotate` with nothing new": lambda: rotate_stream(vault.uri(), rotated.root, **HOW),
        "`follow --rotate`, one round with nothing new": lambda: follow_stream(
            vault.uri(), rotated.root, rotate=True, every=1, lasting=0.001, **HOW
        ),
        "first `rotate --truncate-source`": lambda: rotate_stream(vault.uri(), other.root, truncate_source=True, **HOW),
    }
    return {title: _counted(step) for title, step in steps.items()}


def _counted(step: Callable[[], object]) -> int:
    counted: list[CountedStore] = []
    really = RootAddress.open

    def opened(address: RootAddress, **options: Any) -> ObjectStore:
        counted.append(CountedStore(really(address, **options)))
        return counted[-1].store

    with patch.object(RootAddress, "open", opened):
        step()
    return sum(one.requests for one in counted)
