"""Where the routing keys of events are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamvault.common.errors import Usage
from streamvault.concat.copy_events import EventKey
from streamvault.streamstore.model import EventPointer

POINTER = EventPointer.parse("scope/stream/0.#epoch.0:8-20")


def reversed_text(payload: bytes) -> object:
    """A user's function."""
    return payload.decode()[::-1]


def ends_the_process(_: bytes) -> object:
    raise SystemExit(0)


def huge(_: bytes) -> object:
    return 10**5000


@pytest.mark.parametrize(
    ("key", "payload", "found"),
    [
        ("/id", b'{"id": "a"}', "a"),
        ("/id", b'{"id": 17}', "17"),
        ("/a/1/b", b'{"a": [0, {"b": "deep"}]}', "deep"),
        ("/a~1b/c~0d", b'{"a/b": {"c~d": "x"}}', "x"),
        ("/", b'{"": "empty"}', "empty"),
        ("tests.unit.concat.test_event_keys:reversed_text", b"abc", "cba"),
    ],
)
def test_key_is_found(key: str, payload: bytes, found: str) -> None:
    assert EventKey(key).of(payload, lambda: POINTER) == found


def test_function_may_be_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys_of_a_user.py").write_text("def first(payload):\n    return payload[:1].decode()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert EventKey("keys_of_a_user:first").of(b"xyz", lambda: POINTER) == "x"


@pytest.mark.parametrize(
    ("key", "payload", "said"),
    [
        ("/id", b"not JSON", "no routing key is found in an event"),
        ("/id", b'{"other": 1}', "KeyError: 'id'"),
        ("/a/7", b'{"a": [1]}', "IndexError"),
        ("/a/b", b'{"a": 1}', "TypeError"),
        ("/a", b'{"a": null}', "neither text nor an integer"),
        ("/a", b'{"a": true}', "neither text nor an integer"),
        ("/a", b'{"a": 1.5}', "neither text nor an integer"),
        ("/a", b'{"a": ' + b"[" * 100_000, "RecursionError"),
        ("tests.unit.concat.test_event_keys:reversed_text", b"\xff", "UnicodeDecodeError"),
        ("tests.unit.concat.test_event_keys:ends_the_process", b"", "SystemExit: 0"),
        ("tests.unit.concat.test_event_keys:huge", b"", "ValueError: Exceeds the limit"),
    ],
)
def test_event_without_a_key_is_named(key: str, payload: bytes, said: str) -> None:
    with pytest.raises(Usage, match=said) as caught:
        EventKey(key).of(payload, lambda: POINTER)
    assert str(POINTER) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("id", "neither a JSON pointer nor MODULE:FUNCTION"),
        (":f", "neither"),
        ("no.such.module:f", "is not found"),
        ("json:no_such_function", "is not found"),
        ("json:__name__", "not a function"),
        ("..:f", "is not found"),
    ],
)
def test_key_that_cannot_be_used_is_refused(key: str, said: str) -> None:
    with pytest.raises(Usage, match=said):
        EventKey(key)


@pytest.mark.parametrize("content", ["def first(:", "raise KeyError('x')", "raise SystemExit(0)"])
def test_module_that_cannot_be_imported_is_refused(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_keys_of_a_user.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    with pytest.raises(Usage, match="the function of --key is not found"):
        EventKey("broken_keys_of_a_user:first")
