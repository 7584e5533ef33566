"""Stream URIs: parsing, invalid ones, and that logins are never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamstore.errors import InvalidName
from streamstore.model import StreamName
from streamstore.uri import StoreAddress, parse_stream


@pytest.mark.parametrize(
    ("uri", "scheme", "location"),
    [
        ("pravega://127.0.0.1:9090/scope/stream", "pravega", "127.0.0.1:9090"),
        ("pravega://controller.example.org:1/scope/stream", "pravega", "controller.example.org:1"),
        ("pravega://[::1]:9090/scope/stream", "pravega", "[::1]:9090"),
        ("pravega+tls://host:65535/scope/stream", "pravega+tls", "host:65535"),
        ("local:///data/scope/stream", "local", "/data"),
        ("local:///deep/er folder/ü%20#?/scope/stream", "local", "/deep/er folder/ü%20#?"),
    ],
)
def test_uri_names_a_store_and_a_stream(uri: str, scheme: str, location: str) -> None:
    address, stream = parse_stream(uri)
    assert (address.scheme, address.location, stream) == (scheme, location, StreamName("scope", "stream"))
    assert f"{address.uri}/{stream}" == uri
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "",
            "Write pravega://HOST:PORT/SCOPE/STREAM or pravega+tls://HOST:PORT/SCOPE/STREAM or local:///FOLDER/SCOPE/STREAM.",
        ),
        ("scope/stream", "not a stream's URI: 'scope/stream'"),
        ("kafka://host:1/scope/stream", "not a stream's URI: 'kafka://host:1/scope/stream'"),
        ("pravega:/host:1/scope/stream", "not a stream's URI"),
        ("pravega://host/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://:9090/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:port/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://a/b:9090/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:0/scope/stream", "(the port is out of range)"),
        ("pravega://host:65536/scope/stream", "(the port is out of range)"),
        ("pravega://host:9090/scope", "Write pravega://HOST:PORT/SCOPE/STREAM."),
        ("pravega://host:9090", "(SCOPE/STREAM is missing)"),
        ("pravega://host:9090/scope/stream/", "(SCOPE/STREAM is missing)"),
        ("pravega+tls://host:9090//stream", "(SCOPE/STREAM is missing)"),
        (
            "local://data/scope/stream",
            "(the folder is not absolute): 'local://data/scope/stream'. Write local:///FOLDER/",
        ),
        ("local:///scope/stream", "(the folder is missing)"),
        ("local:///../scope/stream", "'..' part"),
        ("local:///data/../x/scope/stream", "'..' part"),
        ("local:///data//scope/stream", "an empty"),
        ("local:///da\nta/scope/stream", "a control character"),
        ("local:///data/scope/str_eam", "invalid stream name: 'str_eam'"),
        ("local:///data/../stream", "invalid scope name: '..'"),
    ],
)
def test_invalid_uri_is_refused_in_one_line_with_the_right_form(uri: str, message: str) -> None:
    with pytest.raises(InvalidName) as caught:
        parse_stream(uri)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_login_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidName, match="PRAVEGA_PASSWORD") as caught:
        parse_stream("pravega://user:pa/ss:word@host:9090/scope/stream")
    assert "word" not in str(caught.value).replace("PRAVEGA_PASSWORD", "")
    assert "user:" not in str(caught.value)


def test_pickled_address_keeps_the_login_and_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_USERNAME", "somebody")
    monkeypatch.setenv("PRAVEGA_PASSWORD", "hidden-word")
    address, _ = parse_stream("pravega://host:9090/scope/stream")
    monkeypatch.delenv("PRAVEGA_PASSWORD")
    there: StoreAddress = pickle.loads(pickle.dumps(address))
    assert there.settings.password == "hidden-word"
    for text in (repr(there), str(there), there.uri):
        assert "hidden-word" not in text
        assert "somebody" not in text


def test_address_opens_its_store(tmp_path: Path) -> None:
    address, stream = parse_stream(f"local://{tmp_path}/store/scope/stream")
    with address.open() as store:
        assert store.uri == address.uri
        assert not store.exists(stream)
    assert not (tmp_path / "store").exists()  # checking creates nothing
