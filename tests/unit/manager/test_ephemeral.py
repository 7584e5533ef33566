"""Ephemeral streams: theirs is a block of a program, and nothing else is ever deleted with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import copy_stream, ephemeral_stream, export_stream, import_stream
from streamvault.errors import Conflict, StreamExists, Usage
from streamvault.manager.ephemeral import EphemeralTag, ephemeral_lease, remove_stream
from streamvault.streamstore.errors import StreamChanged
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Retention, RetentionKind, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import EPHEMERAL, OWN, SWEPT, is_listed, tag_of, users_tags
from testkit.streams import append_events

NAME = StreamName("scope", "staging")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "streams")


@pytest.fixture
def uri(store: LocalStore) -> str:
    return f"{store.uri}/{NAME}"


def left(store: LocalStore) -> list[StreamName]:
    return list(store.list_streams(NAME.scope, own=True))


def test_stream_is_there_in_its_block_only(store: LocalStore, uri: str) -> None:
    with ephemeral_stream(uri, segments=3) as stream:
        assert stream == uri
        described = store.describe(NAME)
        assert len(described.tail.offsets) == 3
        assert left(store) == sorted([NAME, ephemeral_lease(NAME)])
        assert list(store.list_streams(NAME.scope)) == [], "a whole scope is archived without it"
        assert EphemeralTag.of(described.configuration) is not None
    assert left(store) == []


def test_stream_is_deleted_on_an_exception(store: LocalStore, uri: str) -> None:
    with pytest.raises(ZeroDivisionError), ephemeral_stream(uri):
        raise ZeroDivisionError
    assert left(store) == []


def test_verbs_take_it_and_what_is_made_of_it_stays(store: LocalStore, uri: str, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    root, copied, back = f"file://{tmp_path}/vault", replace(NAME, stream="copy"), replace(NAME, stream="back")
    with ephemeral_stream(uri):
        append_events(store, NAME, next(iter(store.describe(NAME).tail.offsets)), [b"one", b"two"])
        copy_stream(uri, f"{store.uri}/{copied}", master="inline")
        export_stream(uri, root, master="inline")
        import_stream(f"{root}/{NAME}", f"{store.uri}/{back}", master="inline")
    assert left(store) == [back, copied]
    for name in (back, copied):
        configuration = store.describe(name).configuration
        assert EphemeralTag.of(configuration) is None
        assert is_listed(configuration)


@pytest.mark.parametrize("sealed", [False, True])
def test_its_user_may_configure_and_seal_it(store: LocalStore, uri: str, sealed: bool) -> None:
    with ephemeral_stream(uri):
        was = store.describe(NAME).configuration
        kept = Retention(RetentionKind.SIZE, 1000)
        store.update_stream(NAME, replace(was, retention=kept, tags=(*was.tags, "mine")), was=was)
        if sealed:
            store.seal(NAME)
    assert left(store) == []


def test_stream_whose_tag_was_removed_stays(store: LocalStore, uri: str) -> None:
    with pytest.raises(Conflict, match="the tag of the ephemeral stream was removed"), ephemeral_stream(uri):
        store.update_stream(NAME, StreamConfiguration())
    assert left(store) == [NAME]


def test_stream_that_was_created_again_stays(store: LocalStore, uri: str) -> None:
    def again() -> None:
        configuration = store.describe(NAME).configuration
        store.delete(NAME)
        store.create_stream(NAME, configuration)

    with pytest.raises(Conflict, match="deleted while it was in use"), ephemeral_stream(uri):
        again()
    assert left(store) == [NAME]


def test_stream_that_is_created_again_during_its_deletion_stays(
    store: LocalStore, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = LocalStore.update_stream

    def update(self: LocalStore, name: StreamName, configuration: StreamConfiguration, **was: object) -> None:
        really(self, name, configuration, **was)  # type: ignore[arg-type]
        self.delete(name)
        self.create_stream(name, StreamConfiguration(tags=("users",)))
        monkeypatch.undo()

    with pytest.raises(Conflict), ephemeral_stream(uri):
        monkeypatch.setattr(LocalStore, "update_stream", update)
    assert store.describe(NAME).configuration.tags == ("users",)
    assert not store.describe(NAME).sealed


def test_tag_that_is_removed_during_the_deletion_keeps_the_stream(
    store: LocalStore, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = LocalStore.update_stream

    def update(self: LocalStore, name: StreamName, configuration: StreamConfiguration, **was: object) -> None:
        monkeypatch.undo()
        self.update_stream(name, StreamConfiguration(tags=("users",)))
        really(self, name, configuration, **was)  # type: ignore[arg-type]

    with pytest.raises(Conflict, match="tag of the ephemeral stream was removed"), ephemeral_stream(uri):
        monkeypatch.setattr(LocalStore, "update_stream", update)
    assert store.describe(NAME).configuration.tags == ("users",)


def test_name_that_is_taken(store: LocalStore, uri: str) -> None:
    store.create_stream_and_scope(NAME, StreamConfiguration())
    with pytest.raises(StreamExists), ephemeral_stream(uri):
        pass
    assert left(store) == [NAME]


def test_two_of_one_name_at_once(store: LocalStore, uri: str) -> None:
    with ephemeral_stream(uri):
        with pytest.raises(StreamExists), ephemeral_stream(uri):
            pass
        assert left(store) == sorted([NAME, ephemeral_lease(NAME)])


@pytest.mark.parametrize("options", [{"segments": 0}, {"expires_after": 11.0}, {"expires_after": 601.0}])
def test_bad_options(store: LocalStore, uri: str, options: dict[str, float]) -> None:
    with pytest.raises(Usage), ephemeral_stream(uri, **options):  # type: ignore[arg-type]
        pass
    assert list(store.list_scopes()) == []


@pytest.mark.parametrize("text", ["", "owner", "owner:", "owner:x", ":60", "owner:1", "owner:9999", "owner:nan"])
def test_tag_that_is_not_ours(text: str) -> None:
    assert EphemeralTag.of(StreamConfiguration(tags=(EPHEMERAL + text,))) is None


def test_its_tags_are_never_a_users() -> None:
    tags = (OWN, SWEPT, str(EphemeralTag("owner", 60.0)), "mine")
    assert users_tags(StreamConfiguration(tags=tags)) == ("mine",)
    assert tag_of(StreamConfiguration(tags=tags), EPHEMERAL) == "owner:60"


def test_stream_that_is_made_again_right_before_its_removal_stays(store: LocalStore) -> None:
    """It is as the old one was, sealed too; only its first epoch is another."""
    store.create_stream_and_scope(NAME, StreamConfiguration())
    seen = store.describe(NAME)

    def check(described: StreamDescription) -> None:
        if described.sealed:
            store.delete(NAME)
            store.create_stream(NAME, described.configuration)
            store.seal(NAME)

    with pytest.raises(StreamChanged):
        remove_stream(store, seen, check)
    assert store.describe(NAME).epochs[0] != seen.epochs[0]
