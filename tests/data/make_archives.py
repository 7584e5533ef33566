"""Makes `archives.tar.gz`: one archive of each kind, with its stream, as the release that runs this writes them.

    python -m tests.data.make_archives FOLDER

`tests/integration/test_earlier_archives.py` reads, restores and continues them with the code of today. A release that
changes what it writes adds a file of its own; none is ever replaced. FOLDER must not exist; its path goes into the
archives, as the address that the streams were given with.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from streamvault import compact_archive, convert_archive, export_stream, import_stream, rotate_stream, write_table
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import append_events, digest_of, make_stream, payloads

EVENTS = 60

Write = Callable[[str, str, Callable[[], None]], None]
"""Archives a stream below a root; what it calls in between appends more events to the stream."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    root = f"file://{folder}/vault"
    made = {kind: _make(kind, write, folder, root) for kind, write in KINDS.items()}
    (folder / "expected.json").write_text(json.dumps(made, indent=2) + "\n")
    with tarfile.open(Path(__file__).parent / "archives.tar.gz", "w:gz", compresslevel=9) as archive:
        for part in ("expected.json", "streams", "vault"):
            archive.add(folder / part, part)


def _make(
    kind: str, write: Callable[[str, str, Callable[[], None]], None], folder: Path, root: str
) -> dict[str, object]:
    name = StreamName("demo", kind)
    uri = f"local://{folder}/streams/{name}"
    with parse_stream(uri)[0].open() as store:
        make_stream(store, name, events=EVENTS, largest=4096)
        count = 0

        def more() -> None:
            nonlocal count
            count += 1
            for segment in store.describe(name).tail.offsets:
                append_events(store, name, segment, payloads(5, count + segment.value % 997))

        write(uri, root, more)
        unchanged = export_stream(uri, root, master="inline")
        assert unchanged.unchanged, unchanged
        restored = import_stream(f"{root}/{name}", f"local://{folder}/restored/{name}", master="inline")
    with parse_stream(f"local://{folder}/restored/{name}")[0].open() as store:
        events, digest = digest_of(store, name)
    assert events == restored.events
    return {"events": events, "digest": digest, "generation": unchanged.generation}


def _events(uri: str, root: str, more: Callable[[], None]) -> None:
    export_stream(uri, root, master="inline")
    more()
    export_stream(uri, root, master="inline")


def _chunks(uri: str, root: str, more: Callable[[], None]) -> None:
    export_stream(uri, root, layout="chunks", range_size=2048, master="inline")
    more()
    export_stream(uri, root, layout="chunks", compress="zstd", range_size=2048, master="inline")


def _compacted(uri: str, root: str, more: Callable[[], None]) -> None:
    for _ in range(3):
        export_stream(uri, root, layout="chunks", range_size=2048, master="inline")
        more()
    export_stream(uri, root, layout="chunks", range_size=2048, master="inline")
    compact_archive(f"{root}/demo/compacted", master="inline")


def _converted(uri: str, root: str, more: Callable[[], None]) -> None:
    origin = f"{root}-origin"
    export_stream(uri, origin, master="inline")
    convert_archive(f"{origin}/demo/converted", root, layout="chunks", compress="zstd", master="inline")
    more()
    export_stream(uri, root, master="inline")


def _rotated(uri: str, root: str, more: Callable[[], None]) -> None:
    for _ in range(3):
        rotate_stream(uri, root, keep=2, truncate_source=True, master="inline")
        more()
    rotate_stream(uri, root, keep=2, hold="audit", master="inline")


def _tabled(uri: str, root: str, more: Callable[[], None]) -> None:
    _events(uri, root, more)
    write_table(f"{root}/demo/tabled", format="parquet", master="inline")


KINDS = {
    "events": _events,
    "chunks": _chunks,
    "compacted": _compacted,
    "converted": _converted,
    "rotated": _rotated,
    "tabled": _tabled,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
