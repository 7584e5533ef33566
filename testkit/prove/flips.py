"""Flipped bits and cuts in a table's Parquet files: each is rejected or harmless, and none ends this process.

`python -m testkit.prove.flips COUNT [SEED]` prints how many were tried.
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import streamvault.lake.task
from streamvault import write_table
from streamvault.common.errors import Damaged
from streamvault.layouts import isolated, table
from streamvault.layouts.keys import table_data
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from testkit.lakes import table_keys
from testkit.small_archives import NAME, Vault, objects_of, replace_object

FILES = 4


@dataclass
class Flipped:
    """The results.

    Attributes:
        count: files that were damaged and read.
        rejected: of these, how many were called damaged.
        crashes: how often the decoding process ended.
        broken: errors that are not `Damaged`.
    """

    count: int = 0
    rejected: int = 0
    crashes: int = 0
    broken: list[str] = field(default_factory=list)


def flip(count: int, seed: int) -> Flipped:
    """Damage files of a table so often, one at a time, by a bit, a few bytes or a cut, and read their ranges."""
    found, rng = Flipped(), random.Random(seed)
    started = 0
    take = isolated.subprocess.Popen

    def counted(*arguments: object, **options: object) -> object:
        nonlocal started
        started += 1
        return take(*arguments, **options)  # type: ignore[call-overload]

    with tempfile.TemporaryDirectory() as folder, patch.object(streamvault.lake.task, "ROW_GROUP_BYTES", 1500):
        vault = Vault(Path(folder))
        vault.make()
        vault.export("chunks")
        write_table(vault.archive, target_size=4096, decode="none", master="inline")
        archive = Archive(RootAddress.parse(vault.root).resolve(), NAME).table_archive("stream")
        history = archive.history()
        rows = [row for segment in history.segments() for _, row in history.ranges(segment)]
        prefix = table_data(archive.prefix)
        store = objects_of(vault.root)
        originals = {key: store.get(key) for key in table_keys(vault.root)[:FILES]}
        held = [row for row in rows if any(f"{row.segment.number:010}-{row.start:019}" in key for key in originals)]
        assert prefix
        with patch.object(isolated.subprocess, "Popen", counted):
            while found.count < count:
                key = rng.choice(sorted(originals))
                replace_object(vault.root, key, _damaged(rng, originals[key]))
                row = next((one for one in held if f"{one.segment.number:010}-{one.start:019}" in key), held[0])
                found.count += 1
                try:
                    for _ in table.TableReader(1).read_range(archive.place, row, row.start, row.end):
                        pass
                except Damaged:
                    found.rejected += 1
                except Exception as error:  # noqa: BLE001  (that is what is looked for)
                    found.broken.append(f"{key}: {error!r}")
                replace_object(vault.root, key, originals[key])
    found.crashes = max(started - 1, 0)
    return found


def _damaged(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    kind = rng.randrange(8)
    if kind == 0:
        return whole[: rng.randrange(len(whole))]
    # half of them among the metadata at the end, which decoders rely on
    size = int.from_bytes(whole[-8:-4], "little") + 8
    low = len(whole) - size if kind % 2 else 0
    for _ in range(1 if kind < 6 else rng.randrange(2, 8)):
        data[rng.randrange(low, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


if __name__ == "__main__":
    result = flip(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    sys.stdout.write(
        f"{result.count} files, {result.rejected} rejected, {result.crashes} crashes of the decoding process, "
        f"{len(result.broken)} other errors\n" + "".join(f"{line}\n" for line in result.broken[:20])
    )
    sys.exit(bool(result.broken))
