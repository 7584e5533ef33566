"""Stream URIs; opening the stores they name, and sharing them among the tasks of one process.

``pravega://HOST:PORT/SCOPE/STREAM``, ``pravega+tls://HOST:PORT/SCOPE/STREAM``, ``local:///FOLDER/SCOPE/STREAM``. A URI
contains no login; it is read from the environment when the URI is parsed, and is sent with the address.

Reopening a cluster for every task costs a channel to the controller, plus a connection and a lookup per segment. So a
store stays open for a while after its last use.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from streamvault.streamstore.errors import InvalidName, NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore

KEEP_SECONDS = 10.0
"""How long an unused store stays open."""

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+):(?P<port>[0-9]{1,5})\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_A_ROOT = re.compile(r"/|(s3|file)://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is and how to open it; small, for sending to other processes.

    Attributes:
        scheme: ``local``, ``pravega`` or ``pravega+tls``.
        location: ``HOST:PORT``, or the folder's absolute path.
        settings: argument of the implementation; may contain a login, so it is hidden from the repr.
    """

    scheme: str
    location: str
    settings: Any = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        """The store's URI without a stream."""
        return f"{self.scheme}://{self.location}"

    def __str__(self) -> str:
        return self.uri

    def open(self) -> StreamStore:
        """Open the store; close it after use. Within `sharing_stores`, it is shared."""
        return _share(self, self._open) if _SCHEMES[self.scheme].shared and _sharing else self._open()

    def _open(self) -> StreamStore:
        scheme = _SCHEMES[self.scheme]
        store: StreamStore = getattr(import_module(scheme.module), scheme.store)(self.settings)
        return store

    def reach(self, seconds: float) -> str:
        """Connect to the server and return how it answers, as text; empty for a folder. Sends no login.

        Raises:
            StreamStoreError: it cannot be reached.
        """
        return _SCHEMES[self.scheme].reach(self.settings, seconds)

    def limited(self, seconds: float) -> StoreAddress:
        """Return the address for a store whose server may be silent for so long, and that retries no longer."""
        return replace(self, settings=_SCHEMES[self.scheme].limit(self.settings, seconds))

    def lend(self) -> AbstractContextManager[StreamStore]:
        """Open the store for one of many tasks; a shareable store stays open for the next one in this process."""
        return lend(self, self._open) if _SCHEMES[self.scheme].shared else self.open()


@dataclass(frozen=True, slots=True)
class _Scheme:
    """The implementation of a URI scheme.

    Attributes:
        form: how such a URI is written.
        check: says what is wrong with a location; empty if nothing is.
        plain: returns the usual spelling of a location.
        settings: makes of the store's URI what the implementation is opened with.
        module, store: where the implementation is; imported when a store is opened.
        shared: whether an open store locks out no other user, so that it may stay open.
        reach: see `StoreAddress.reach`; takes the settings.
        limit: returns the settings with another time limit.
    """

    form: str
    check: Callable[[str], str]
    plain: Callable[[str], str]
    settings: Callable[[str, bool], Any]
    module: str
    store: str
    shared: bool
    reach: Callable[[Any, float], str] = lambda _settings, _seconds: ""
    limit: Callable[[Any, float], Any] = lambda settings, _seconds: settings

    def address(self, name: str, location: str, *, target: bool = False) -> StoreAddress:
        """Return the address of a store whose location was checked; arguments as for `parse_stream`."""
        location = self.plain(location)
        return StoreAddress(name, location, self.settings(f"{name}://{location}", target))


def is_stream(uri: str) -> bool:
    """Return whether a text has the scheme of a stream URI; it may still be invalid."""
    return _parted(uri)[0] in _SCHEMES


def parse_stream(uri: str, *, target: bool = False) -> tuple[StoreAddress, StreamName]:
    """Parse a stream URI into store and stream, without connecting.

    Args:
        uri: the URI.
        target: whether it is the second stream of a command, whose cluster may have a login of its own.

    Raises:
        InvalidName: the URI is invalid; the message gives the reason and the right form.
    """
    name, location, stream = _parse(uri)
    return _SCHEMES[name].address(name, location, target=target), stream


def plain_stream_uri(uri: str) -> str:
    """Return a stream's URI in its usual spelling, as reports have it. Looks up no login.

    Raises:
        InvalidName: as for `parse_stream`.
    """
    name, location, stream = _parse(uri)
    return f"{name}://{_SCHEMES[name].plain(location)}/{stream}"


def parse_scope(uri: str) -> tuple[StoreAddress, str]:
    """Parse the URI of a store, or of a scope, into store and scope, without connecting.

    Args:
        uri: ``pravega://HOST:PORT`` or ``local:///FOLDER``; followed by ``/SCOPE/``, of a scope.

    Returns:
        The store's address, and the scope; empty if the URI is that of a store.

    Raises:
        InvalidName: the URI is invalid.
    """
    name, _, rest = _parted(uri)
    scheme = _SCHEMES.get(name)
    forms = dict.fromkeys(each.form.removesuffix("STREAM") for each in _SCHEMES.values())
    todo = f"Write {' or '.join(forms)} for a scope, and the same without SCOPE/ for all of them."
    if scheme is None:
        raise InvalidName("not a scope's URI", where=_shown(uri), todo=_hint(str(uri)) + todo)
    location, scope = rest, ""
    if rest.endswith("/"):
        location, _, scope = rest.removesuffix("/").rpartition("/")
        if not location and not rest.startswith("/"):  # a slash after HOST:PORT
            location, scope = scope, ""
    if wrong := scheme.check(location):
        if not (scope or scheme.check(location.rpartition("/")[0])):
            wrong = "/ is missing at its end"
        raise InvalidName(f"not a scope's URI ({wrong})", where=_shown(uri), todo=todo)
    if scope:
        StreamName(scope, "stream")  # checks the scope's name
    return scheme.address(name, location), scope


def is_same_store(one: StoreAddress, other: StoreAddress) -> bool:
    """Return whether two addresses lead to the same store, also by different names."""
    if "local" in (one.scheme, other.scheme):
        return one.scheme == other.scheme and os.path.realpath(one.location) == os.path.realpath(other.location)
    (host, _, port), (other_host, _, other_port) = (each.location.rpartition(":") for each in (one, other))
    return port == other_port and (host == other_host or not _addresses(host).isdisjoint(_addresses(other_host)))


def _parse(uri: str) -> tuple[str, str, StreamName]:
    """Split a stream's URI into scheme, the store's location, and the stream; errors as for `parse_stream`."""
    name, separator, rest = _parted(uri)
    if not separator or name not in _SCHEMES:
        forms = dict.fromkeys(scheme.form for scheme in _SCHEMES.values())
        todo = f"{_hint(str(uri))}Write {' or '.join(forms)}."
        raise InvalidName("not a stream's URI", where=_shown(uri), todo=todo)
    scheme = _SCHEMES[name]
    location, *stream = rest.rsplit("/", 2)
    wrong = scheme.check(location) if len(stream) == 2 and all(stream) else "SCOPE/STREAM is missing"
    if wrong:
        raise InvalidName(f"not a stream's URI ({wrong})", where=_shown(uri), todo=f"Write {scheme.form}.")
    return name, location, StreamName(*stream)


def _hint(uri: str) -> str:
    """Return what a text seems to be that is not a stream's URI, as a sentence."""
    if _A_ROOT.match(uri):
        return "It is a place for archives: are the arguments in the wrong order? "
    if _HOST_AND_PORT.match(uri.partition("/")[0]):
        return "The URI of a Pravega cluster begins with pravega://. "
    return ""


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        return set()


def _parted(uri: str) -> tuple[str, str, str]:
    """Split a URI into scheme, which is read in any case, separator and rest."""
    scheme, separator, rest = str(uri).partition("://")
    return scheme.lower(), separator, rest


def _shown(uri: str) -> str:
    """A URI for a message, without what may be a password."""
    scheme, separator, rest = str(uri).partition("://")
    return repr(f"{scheme}{separator}…@{rest.rpartition('@')[2]}" if "@" in rest else uri)


def _check_host(location: str) -> str:
    match = _HOST_AND_PORT.match(location)
    if "@" in location:
        return "it must not contain credentials; set PRAVEGA_USERNAME and PRAVEGA_PASSWORD"
    if not match:
        return "HOST:PORT is missing or malformed"
    return "" if 0 < int(match["port"]) < 65536 else "the port is out of range"


def _plain_host(location: str) -> str:
    host, _, port = location.rpartition(":")
    return f"{host.lower()}:{int(port)}"


def _check_folder(location: str) -> str:
    if not location.startswith("/"):
        return "the folder is missing" if not location else "the folder is not absolute"
    if any(part in {"", ".", ".."} for part in location.split("/")[1:]) or _CONTROL.search(location):
        return "the folder has an empty, '.' or '..' part, or a control character"
    return ""


def _pravega_settings(uri: str, target: bool) -> Any:
    return import_module("streamvault.streamstore.pravega.connection").PravegaSettings.from_environment(
        uri, target=target
    )


def _reach_pravega(settings: Any, seconds: float) -> str:
    answer: str = import_module("streamvault.streamstore.pravega.connection").reach(settings, seconds)
    return answer


_PRAVEGA = _Scheme(
    form="pravega://HOST:PORT/SCOPE/STREAM",
    check=_check_host,
    plain=_plain_host,
    settings=_pravega_settings,
    module="streamvault.streamstore.pravega.store",
    store="PravegaStore",
    shared=True,
    reach=_reach_pravega,
    limit=lambda settings, seconds: replace(settings, timeout=seconds),
)

_SCHEMES = {
    "pravega": _PRAVEGA,
    "pravega+tls": replace(_PRAVEGA, form="pravega+tls://HOST:PORT/SCOPE/STREAM"),
    "local": _Scheme(
        form="local:///FOLDER/SCOPE/STREAM",
        check=_check_folder,
        plain=str,
        settings=lambda uri, _target: uri.removeprefix("local://"),
        module="streamvault.streamstore.local",
        store="LocalStore",
        shared=False,
    ),
}

STORES = tuple(dict.fromkeys(scheme.module for scheme in _SCHEMES.values()))
"""Modules of the implementations."""


@dataclass(slots=True)
class _Kept:
    """An open store, its number of users, and the timer that closes it when unused."""

    store: StreamStore
    users: int = 0
    closing: threading.Timer | None = None


_Place = tuple[int, Hashable]
"""The process, as connections do not survive a fork, and the key of a store."""

_lock = threading.Lock()
_kept: dict[_Place, _Kept] = {}
_sharing = 0
"""Blocks of `sharing_stores` that run; while there are any, stores without users stay open."""


@contextmanager
def sharing_stores() -> Iterator[None]:
    """Open each cluster's store only once in this process while the block runs.

    Blocks that run at the same time share their stores, and so does whatever else opens one meanwhile. A store is
    closed when the last block has ended and its last user has closed it. Stores that lock out others are not shared.
    """
    global _sharing  # noqa: PLW0603
    with _lock:
        _sharing += 1
    try:
        yield
    finally:
        with _lock:
            _sharing -= 1
            here = [(place, kept) for place, kept in _kept.items() if place[0] == os.getpid() and not _sharing]
            unused = [_kept.pop(place).store for place, kept in here if not (kept.users or kept.closing)]
        for store in unused:
            store.close()


def _share(address: StoreAddress, open_it: Callable[[], StreamStore]) -> StreamStore:
    """Return a store that others may use, too, until each of them has closed it."""
    place, kept = _take(address, open_it)
    lent, uses = copy(kept.store), [kept]

    def close() -> None:
        with suppress(IndexError):  # closed before
            _give_back(place, uses.pop(), keep_seconds=0)

    vars(lent)["close"] = close
    return lent


@contextmanager
def lend(key: Hashable, open_it: Callable[[], StreamStore]) -> Iterator[StreamStore]:
    """Lend a store that stays open for the next user of the same key in this process; do not close it."""
    place, kept = _take(key, open_it)
    try:
        yield kept.store
    finally:
        _give_back(place, kept, keep_seconds=KEEP_SECONDS)


def _take(key: Hashable, open_it: Callable[[], StreamStore]) -> tuple[_Place, _Kept]:
    place = (os.getpid(), key)
    with _lock:
        kept = _kept.get(place)
        if kept is None:
            kept = _kept[place] = _Kept(open_it())
        if kept.closing is not None:
            kept.closing.cancel()
            kept.closing = None
        kept.users += 1
    return place, kept


def _give_back(place: _Place, kept: _Kept, *, keep_seconds: float) -> None:
    with _lock:
        kept.users -= 1
        if kept.users or _sharing:
            return
        if keep_seconds:
            kept.closing = threading.Timer(keep_seconds, _close, (place, kept))
            kept.closing.daemon = True
            kept.closing.start()
            return
        del _kept[place]
    kept.store.close()


def _close(place: _Place, kept: _Kept) -> None:
    with _lock:
        # it may have been lent again while the timer fired
        if kept.users or _kept.get(place) is not kept or kept.closing is not threading.current_thread():
            return
        del _kept[place]
    kept.store.close()


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream, which need not exist, in an open store.

    Attributes:
        store: the store.
        address: opens the same store in a task.
        name: the stream.
    """

    store: StreamStore
    address: StoreAddress
    name: StreamName

    @property
    def uri(self) -> str:
        """The stream's URI."""
        return f"{self.address.uri}/{self.name}"

    def exists(self) -> bool:
        """Return whether the stream exists."""
        return self.store.exists(self.name)

    def describe(self) -> StreamDescription:
        """Describe the stream.

        Raises:
            NoSuchScope, NoSuchStream: it does not exist.
        """
        return self.store.describe(self.name)

    def find(self) -> StreamDescription | None:
        """Describe the stream; None if it does not exist."""
        try:
            return self.store.describe(self.name)
        except (NoSuchScope, NoSuchStream):
            return None


@contextmanager
def open_stream(uri: str, *, target: bool = False) -> Iterator[OpenStream]:
    """Open the store of a stream's URI; arguments and errors are those of `parse_stream`."""
    address, name = parse_stream(uri, target=target)
    with address.open() as store:
        yield OpenStream(store, address, name)
