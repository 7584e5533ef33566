"""Reading one event by its pointer, and every error of a pointer or an archive."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from streamvault import get_event
from streamvault.cli import main
from streamvault.common.errors import Problem
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.streamstore.model import EventPointer, StreamCut
from testkit.small_archives import KINDS, NAME, Vault, contents, data_keys, replace_object


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def vault(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vault:
    """Three generations: the second has another layout, and events were truncated before the third."""
    vault = Vault(tmp_path_factory.mktemp("vault"))
    vault.make()
    vault.export(*request.param)
    vault.add(b"of the second generation", b"")
    vault.export(*KINDS[(KINDS.index(request.param) + 1) % len(KINDS)])
    vault.add(b"gone before it is archived" * 10)
    with vault.store as store:
        store.truncate(StreamCut(NAME, store.describe(NAME).tail.offsets))
    vault.add(b"of the third generation")
    vault.export(*request.param, same_stream=True)
    return vault


def refusal(vault: Vault, pointer: object, code: int) -> str:
    with pytest.raises(Problem) as caught:
        get_event(vault.archive, str(pointer))
    assert caught.value.exit_code == code, str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_get_returns_every_event(kind: tuple[LayoutName, Compression], tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=150)
    vault.export(*kind)
    events = vault.events()
    assert len(events) > 80
    for pointer, payload in events:
        assert get_event(vault.archive, str(pointer)) == payload


def test_get_returns_events_of_every_generation(vault: Vault) -> None:
    live = vault.events()
    assert {payload for _, payload in live} == {b"of the third generation"}
    for pointer, payload in live:
        assert get_event(vault.archive, str(pointer)) == payload
        gone = 8 + 260
        second = EventPointer(NAME, pointer.segment, pointer.offset - gone - 8 - 32, 32)
        assert get_event(vault.archive, str(second)) == b"of the second generation"
        assert get_event(vault.archive, str(EventPointer(NAME, pointer.segment, pointer.offset - gone - 8, 8))) == b""


def test_event_in_a_gap_is_refused_with_the_reason(vault: Vault) -> None:
    for pointer, _ in vault.events():
        gone = EventPointer(NAME, pointer.segment, pointer.offset - 268, 268)
        said = refusal(vault, gone, 1)
        assert "no archived range holds this event" in said
        assert "truncated at the source before this generation began" in said


def test_pointer_to_no_event_is_refused(vault: Vault) -> None:
    pointer, _ = vault.events()[0]
    for offset, length in ((pointer.offset + 1, 20), (pointer.offset, 30), (pointer.offset, 32)):
        event = EventPointer(NAME, pointer.segment, offset, length)
        assert str(event) in refusal(vault, event, 1)


def test_pointer_beyond_the_archive_is_refused(vault: Vault) -> None:
    pointer, payload = vault.events()[-1]
    after = EventPointer(NAME, pointer.segment, pointer.offset + 8 + len(payload), 9)
    assert "the event is outside the archive" in refusal(vault, after, 1)
    assert "the event is outside the archive" in refusal(vault, f"{NAME}/9.#epoch.9:0-8", 1)
    # it begins in the archive and would end beyond it
    assert refusal(vault, EventPointer(NAME, pointer.segment, pointer.offset, 5000), 1)


@pytest.mark.parametrize(
    ("pointer", "said"),
    [
        *((text, "") for text in ("", "scope/stream", f"{NAME}/0.#epoch.0:0-7", f"{NAME}/0.#epoch.0:-1-9", "x:0-9")),
        (f"{NAME}/0:0-9", ""),
        ("scope/other/0.#epoch.0:0-9", "the pointer is of another stream"),
    ],
)
def test_invalid_pointer_is_wrong_usage(vault: Vault, pointer: str, said: str) -> None:
    assert said in refusal(vault, pointer, 2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_damaged_event_is_refused(kind: tuple[LayoutName, Compression], tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=100)
    vault.export(*kind)
    pointer, payload = next(found for found in vault.events() if len(found[1]) > 100)
    width = 10 if kind[0] == "events" else 19
    low = f"{pointer.segment.epoch:010d}.{pointer.segment.number:010d}/{pointer.offset:019d}-{'9' * width}"
    key = max(key for key in data_keys(vault.root) if key.partition(f"/{kind[0]}/")[2] <= low)
    whole = contents(vault.root)[key]
    replace_object(vault.root, key, whole[: len(whole) // 2] if kind[0] == "events" else whole[:5])
    refusal(vault, pointer, 3)
    replace_object(vault.root, key, None)
    refusal(vault, pointer, 3)
    if kind[1]:
        replace_object(vault.root, key, whole[:-1] + bytes([whole[-1] ^ 1]))  # a checksum
        refusal(vault, pointer, 3)
    replace_object(vault.root, key, whole)
    assert get_event(vault.archive, str(pointer)) == payload


def test_command_writes_the_payload_and_nothing_else(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=30)
    vault.export("chunks", "zstd")
    pointer, payload = max(vault.events(), key=lambda found: len(found[1]))
    capfdbinary.readouterr()
    assert main(["get", vault.archive, str(pointer)]) == 0
    assert capfdbinary.readouterr() == (payload, b"")
    assert main(["get", vault.archive, str(pointer), "--json"]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert json.loads(out) == {"pointer": str(pointer), "payload": base64.b64encode(payload).decode()}
    assert main(["get", vault.archive, f"{NAME}/0.#epoch.0:1-8"]) == 1
    out, err = capfdbinary.readouterr()
    assert (out, err.count(b"\n")) == (b"", 1)
