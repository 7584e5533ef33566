"""Stream URIs: parsing, invalid ones, and that logins are never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import StoreAddress, is_same_store, is_stream, parse_scope, parse_stream


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


def test_host_and_port_have_one_spelling() -> None:
    address, _ = parse_stream("pravega://Controller.Example.ORG:09090/Scope/stream")
    assert address.uri == "pravega://controller.example.org:9090"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("pravega://HOST.invalid:9090", "pravega://host.invalid:09090", True),
        ("pravega://host.invalid:9090", "pravega+tls://host.invalid:9090", True),
        ("pravega://localhost:9090", "pravega://127.0.0.1:9090", True),
        ("pravega://[0:0:0:0:0:0:0:1]:9090", "pravega://[::1]:9090", True),
        ("pravega://host.invalid:9090", "pravega://host.invalid:9091", False),
        ("pravega://one.invalid:9090", "pravega://two.invalid:9090", False),
        ("local:///data", "local:///data", True),
        ("local:///data", "local:///other", False),
        ("local:///data", "pravega://127.0.0.1:9090", False),
    ],
)
def test_same_store_is_known_by_other_names(one: str, other: str, *, same: bool) -> None:
    first, second = (parse_stream(f"{uri}/scope/stream")[0] for uri in (one, other))
    assert is_same_store(first, second) == is_same_store(second, first) == same


def test_link_to_a_folder_is_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "streams")
    assert is_same_store(*(parse_stream(f"local://{tmp_path}/{name}/a/b")[0] for name in ("streams", "link")))


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


@pytest.mark.parametrize(
    ("uri", "why"),
    [("pravega://host:1/scope", "/ is missing at its end"), ("pravega://host/scope/", "HOST:PORT is missing")],
)
def test_scope_that_is_none_says_why(uri: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        parse_scope(uri)


def test_scheme_may_be_upper_case() -> None:
    assert parse_stream("PRAVEGA://Host:1/Scope/stream") == parse_stream("pravega://host:1/Scope/stream")
    assert parse_scope("Local:///Data/scope/") == parse_scope("local:///Data/scope/")
    assert is_stream("LOCAL:///x/scope/stream")
