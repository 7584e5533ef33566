"""Whatever happens to an archive, it contains the stream: the same bytes, the same cuts."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamvault import check_archive, compact_archive, export_stream, hold_archive, release_archive, rotate_stream
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.verbs.hold import NoSuchHold
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import StreamCut
from testkit.small_archives import NAME, Vault, a_root, archive_of, clear, segments_of

RANGE_SIZE = 2048
CHUNKS: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline[2]"}

Step = tuple[str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("export"), st.integers(1, 40)),
        st.tuples(st.just("expire"), st.integers(1, 6)),
        st.tuples(st.just("hold"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("compact"), st.sampled_from([2000, 8000, 1_000_000])),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    min_size=4,
    max_size=10,
)


def take(vault: Vault, step: Step) -> None:
    what, size = step
    archive = archive_of(vault.root)
    if what == "export":
        vault.add(*(b"%d" % index * (index % 7) for index in range(size)))
        export_stream(vault.uri(), vault.root, **CHUNKS)
    elif what == "expire":
        rotate_stream(vault.uri(), vault.root, keep=size, **CHUNKS)
    elif what == "hold":
        listing = archive.listing()
        originals = range(listing.dropped + 1, listing.newest + 1)
        hold_archive(vault.archive, "a", generation=originals[size % len(originals)])
    elif what == "release":
        with suppress(NoSuchHold):
            release_archive(vault.archive, "a")
    elif what == "compact":
        compact_archive(vault.archive, target=size, master="inline[2]")
    else:
        clear(vault)


def is_the_stream(vault: Vault, cuts: dict[int, StreamCut]) -> None:
    archive = archive_of(vault.root)
    history, listing = archive.history(), archive.listing()
    assert history.tail == cuts[history.generation]
    assert history.head == cuts[listing.dropped]
    for number in range(listing.dropped + 1, listing.newest + 1):
        assert archive.history(number).tail == cuts[number]
    held: dict[str, bytes] = {}
    for (_, segment), data in sorted(segments_of(vault.root).items()):
        held[segment] = held.get(segment, b"") + data
    with vault.store as store:
        for segment, (start, end) in segments_between(history.description, history.head, history.tail).items():
            until = store.segment_info(NAME, [segment])[0].write_offset if end is None else end
            assert held.get(str(segment), b"") == b"".join(map(bytes, store.read(NAME, segment, start, until)))


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_archive_equals_the_stream_after_any_steps(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder), a_root())
        vault.make(events=30, largest=400)
        cuts: dict[int, StreamCut] = {}
        for step in [("export", 5), ("export", 9), *steps, ("clear", 0)]:
            take(vault, step)
            manifest = archive_of(vault.root).manifest()
            if not cuts:
                cuts[0] = manifest.from_
            cuts[manifest.generation] = manifest.to
            is_the_stream(vault, cuts)
            report = check_archive(vault.archive)
            assert report.ok, (step, report.findings)
        report = check_archive(vault.archive, read_data=True, master="inline[2]")
        assert report.ok, report.findings
        # none of the replaced objects is left
        assert archive_of(vault.root).listing().replaced == ()
        deleted, _ = delete_replaced(archive_of(vault.root))
        assert deleted.objects == 0
