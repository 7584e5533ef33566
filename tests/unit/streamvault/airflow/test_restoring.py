"""The parameters of a restore are checked, and its result is described."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault import import_stream, rotate_stream
from streamvault.airflow.helpers import check_restore, describe_restore
from testkit.small_archives import NAME, Vault

ASKED = {"archive": "file:///vault/a/b", "target": "local:///data/a/b", "at": None, "generation": None}


def test_restore_is_described_in_one_line() -> None:
    assert check_restore(ASKED) == {"archive": "file:///vault/a/b", "target": "local:///data/a/b"}
    report = {"stream": "S", "archive": "A", "events": 1000, "bytes": 7, "segments": 2, "generation": 3, "warnings": []}
    assert describe_restore(report, read_back=True) == (
        "S: 1,000 events (7 bytes) in 2 segments from A, up to generation 3; "
        "all restored data was read back from the stream and matches the archive's digests"
    )
    assert "appended by an earlier attempt" in describe_restore(report, read_back=False)


def test_description_says_that_the_beginning_has_expired(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20)
    vault.export()
    for number in range(2):
        vault.add(b"more %d" % number)
        rotate_stream(vault.uri(), vault.root, keep=1, master="inline")
    back = import_stream(vault.archive, vault.uri(replace(NAME, stream="back")), master="inline")
    assert back.events < len(vault.events())
    said = describe_restore(back.to_json(), read_back=True).splitlines()[1:]
    assert said[0] == (
        "Note: the beginning is missing: generations 1 to 2 have expired, so the archive begins with generation 3"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "2026-01-01T00:00:00Z", "generation": 1}, "at and generation are mutually exclusive"),
        ({"at": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"archive": "file:///vault"}, "not an archive URI"),
        ({"target": "local://a/b"}, "not a stream's URI"),
    ],
)
def test_invalid_restore_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        check_restore({**ASKED, **wrong})
