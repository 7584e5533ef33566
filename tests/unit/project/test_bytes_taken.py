"""Whoever takes the bytes of a source gets them compared: no other module reads an archive's objects or a stream.

An archive's bytes are compared with their digests, a stream's by who continues with them (`streamvault.sources`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]

UNCOMPARED = {
    "streamvault/manifests/damage.py": "compares them; gives what is left of a damaged range a digest of its own",
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/serving/blocks.py": "compares each block before it is handed out",
}
"""The modules that read ranges themselves, besides the layouts, and why they may."""

SINGLE_EVENTS = {
    "streamvault/manifests/history.py": "where the event at a cut begins",
    "streamvault/manifests/verbs/show.py": "one event, of a range that is compared before, unless --unverified",
}
"""The modules that read one event of a range, besides the layouts, and why they may."""

OF_STREAMS = {
    "streamvault/concat/copy_events.py": "the end of a target; a source's events, identified before and after",
    "streamvault/demo/tour.py": "the demo's own stream",
    "streamvault/importer/fill.py": "what a target has, to compare it with its source",
    "streamvault/importer/run.py": "what a target has of a source that is gone, to compare it with what was recorded",
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/replication/copy.py": "the last bytes of a finished copy, and of its source",
    "streamvault/serving/embedded.py": "what a client of a test asks for, of a stream that the test has made",
    "streamvault/serving/live.py": "what a client asks for, of a stream that is compared with its archive",
    "streamvault/replication/replica.py": "where the last event of a replica ends",
}
"""The modules that read segments themselves, besides those of `streamstore` and `sources`, and why they may."""

WALKING = {
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/spark/pravega_reader.py": "Spark's partitions of a stream",
}
"""The modules that look for events in a segment, besides those of `streamstore` and `sources`, and why they may."""


def modules_that(does: Callable[[ast.Call, str], bool], *apart: str) -> set[str]:
    """Return the modules in which a call is what ``does`` says, given the call and its name, apart from some packages.

    Args:
        does: whether a call is one.
        apart: the packages that are left out.
    """
    return {module for module, call, name in _calls() if Path(module).parts[1] not in apart and does(call, name)}


@cache
def _calls() -> list[tuple[str, ast.Call, str]]:
    """Return the calls of the package: the module, the call, and the name of what is called."""
    found = []
    for file in sorted((ROOT / "streamvault").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found.append((str(file.relative_to(ROOT)), node, name))
    return found


def test_ranges_are_read_where_they_are_compared() -> None:
    # `sources.reader` has a function of that name, which reads a stream
    readers = modules_that(lambda call, name: name == "read_range" and isinstance(call.func, ast.Attribute), "layouts")
    assert readers == set(UNCOMPARED)


def test_one_event_of_an_archive_is_read_by_few() -> None:
    assert modules_that(lambda _, name: name in {"read_event", "find_event"}, "layouts") == set(SINGLE_EVENTS)


def test_segments_are_read_by_the_sources() -> None:
    def is_read(call: ast.Call, name: str) -> bool:
        return name in {"read", "read_bytes"} and len(call.args) + len(call.keywords) == 4

    assert modules_that(is_read, "streamstore", "sources") == set(OF_STREAMS)


def test_events_of_a_segment_are_found_by_the_sources() -> None:
    walks = {"find_start", "EventWalk"}
    assert modules_that(lambda _, name: name in walks, "streamstore", "sources") == set(WALKING)
