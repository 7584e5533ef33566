"""The calls that a verb makes for the streams of a scope: its streams, and the arguments and options of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from streamvault.common.errors import Problem, Usage
from streamvault.common.options import Options, PublicVerb, ScopeKind
from streamvault.layouts.keys import MANIFESTS, TABLES, WORK
from streamvault.manager.manager import role_of
from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from streamvault.replication.replica import replica_tag
from streamvault.scopes.reports import OmittedStream
from streamvault.scopes.uri import ScopePattern, has_scope, is_scope
from streamvault.streamstore.errors import AccessDenied, NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import REPLICA_OF, tag_of
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import is_stream, parse_stream

INTERNAL = "an internal stream of Streamvault"
NOT_A_REPLICA = "it is not a replica"
NO_GENERATION = "it has no finished generation"
DELETED = "the archive was deleted"

_ANY = "x"
"""A name of a stream, for parsing the URI of its scope."""


@dataclass
class ScopeListing:
    """What a scope has at one moment.

    Attributes:
        names: the names for which the verb is to run, sorted.
        omitted: the others that match, and why the verb does not run for them.
        key_value_tables: URIs of the scope's key-value tables.
    """

    names: list[str] = field(default_factory=list)
    omitted: list[OmittedStream] = field(default_factory=list)
    key_value_tables: tuple[str, ...] = ()


class ScopeMembers(ABC):
    """The members of a scope that match a pattern.

    Attributes:
        pattern: the scope and the pattern.
    """

    def __init__(self, pattern: ScopePattern) -> None:
        self.pattern = pattern

    @abstractmethod
    def look(self) -> ScopeListing:
        """List the members.

        Raises:
            NoSuchScope: there is no such scope.
            Problem: it cannot be listed.
        """

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether a member is still there."""

    def check_any(self, listing: ScopeListing) -> None:
        """Check that there is something to do.

        Raises:
            Usage: nothing matches.
        """
        if not listing.names:
            more = f" ({len(listing.omitted)} left out: {listing.omitted[0].reason})" if listing.omitted else ""
            raise Usage(f"nothing matches{more}", where=str(self.pattern), todo=self._hint())

    def _hint(self) -> str:
        root = self.pattern.scope.rpartition("/")[0]
        return f"`streamvault ls {root}` lists what is there; a pattern must be quoted."


class StreamMembers(ScopeMembers):
    """The streams of a scope, see `ScopeMembers`.

    Args:
        pattern: the scope and the pattern.
        kind: what the verb takes.
        target: where a move puts the streams.
    """

    def __init__(self, pattern: ScopePattern, kind: ScopeKind, target: ScopePattern | None = None) -> None:
        super().__init__(pattern)
        self._address, name = parse_stream(pattern.member(_ANY), target=kind == "replica")
        self._scope = name.scope
        self._kind = kind
        self._target = target if kind == "movable" else None

    def look(self) -> ScopeListing:
        """See `ScopeMembers.look`."""
        found = ScopeListing()
        with self._address.open() as store:
            users = {name.stream for name in store.list_streams(self._scope)}
            every = [name for name in store.list_streams(self._scope, own=True) if self.pattern.matches(name.stream)]
            for name in every:
                reason = self._reason(store, name, is_users=name.stream in users)
                if reason:
                    found.omitted.append(OmittedStream(stream=self.pattern.member(name.stream), reason=reason))
                else:
                    found.names.append(name.stream)
            with suppress(AccessDenied):  # a login may have rights on streams only
                found.key_value_tables = tuple(
                    f"{self._address.uri}/{self._scope}/{table}" for table in store.list_key_value_tables(self._scope)
                )
        if self._target is not None:
            found.names = sorted([*found.names, *self._moved(self._target, found.names)])
        return found

    def has(self, name: str) -> bool:
        """See `ScopeMembers.has`."""
        with self._address.open() as store:
            return store.exists(StreamName(self._scope, name))

    def _hint(self) -> str:
        return f"`streamvault streams {self.pattern.scope}/` lists what is there; a pattern must be quoted."

    def _reason(self, store: StreamStore, name: StreamName, *, is_users: bool) -> str:
        """Return why a stream is left out; empty if it is not."""
        if is_users and self._kind != "replica":
            return ""
        try:
            described = store.describe(name)
        except NoSuchStream:
            return "it was deleted meanwhile"
        role = role_of(described)
        if self._kind == "movable" and role == "tombstone":  # what was moved before is reported as such
            return ""
        if self._kind == "replica" and (role == "replica" or tag_of(described.configuration, REPLICA_OF)):
            return ""
        return NOT_A_REPLICA if is_users else f"{INTERNAL} ({role})"

    def _moved(self, target: ScopePattern, names: Sequence[str]) -> Iterator[str]:
        """Yield the names of streams that have moved and left no old name; a killed move of them is finished."""
        address, name = parse_stream(target.member(_ANY), target=True)
        with address.open() as store, suppress(NoSuchScope):
            for each in store.list_streams(name.scope):
                if each.stream in names or not self.pattern.matches(each.stream):
                    continue
                with suppress(NoSuchStream):
                    source = tag_of(store.describe(each).configuration, REPLICA_OF)
                    if source == replica_tag(f"{self._address.uri}/{self._scope}/{each.stream}"):
                        yield each.stream


class ArchiveMembers(ScopeMembers):
    """The archives of a scope below a root, see `ScopeMembers`."""

    def __init__(self, pattern: ScopePattern) -> None:
        super().__init__(pattern)
        address = RootAddress.parse(pattern.member(_ANY))
        root, scope, _ = address.split()
        self._folder = root.below(scope).resolve()

    def look(self) -> ScopeListing:
        """See `ScopeMembers.look`."""
        found = ScopeListing()
        for name in self._folder.open().folders(""):
            if not self.pattern.matches(name) or not StreamName.is_valid(name):
                continue
            folders = self._parts(name)
            if MANIFESTS in folders and not self._is_deleted(name):
                found.names.append(name)
            elif folders & {MANIFESTS, WORK, TABLES}:
                reason = DELETED if MANIFESTS in folders else NO_GENERATION
                found.omitted.append(OmittedStream(stream=self.pattern.member(name), reason=reason))
        return found

    def has(self, name: str) -> bool:
        """See `ScopeMembers.has`."""
        return MANIFESTS in self._parts(name) and not self._is_deleted(name)

    def _is_deleted(self, name: str) -> bool:
        """Whether an archive's deletion is decided; of one that cannot be read, the verb says what it is."""
        try:
            return Archive.open(self.pattern.member(name)).listing().decision.is_deleted
        except Problem:
            return False

    def _hint(self) -> str:
        return "Omit the '/': it is an archive." if MANIFESTS in self._parts("") else super()._hint()

    def _parts(self, name: str) -> set[str]:
        return {f"{folder}/" for folder in self._folder.open().folders(f"{name}/" if name else "")}


def members_of(pattern: ScopePattern, kind: ScopeKind, target: ScopePattern | None = None) -> ScopeMembers:
    """Return the members of a scope, given what a verb takes.

    Args:
        pattern: the scope and the pattern.
        kind: what the verb takes.
        target: the scope of the verb's targets, if it has any.

    Raises:
        InvalidName, InvalidRoot: it is not the URI of a scope.
        Usage: the verb takes none of this kind.
    """
    text = str(pattern)
    if kind == "archive" and is_stream(text):
        raise Usage("a scope of archives is required", where=text, todo="Write ROOT/SCOPE/.")
    if kind == "archive" or (kind == "stream or archive" and not is_stream(text)):
        return ArchiveMembers(pattern)
    return StreamMembers(pattern, kind, target)


@dataclass(frozen=True)
class StreamCall:
    """The call for one stream.

    Attributes:
        uri: URI of the stream or the archive.
        arguments: the verb's arguments.
        options: its options.
        is_named: whether the user named the stream itself, rather than a scope or a pattern.
        has: returns whether the stream is still there.
    """

    uri: str
    arguments: Sequence[str]
    options: Options
    is_named: bool
    has: Callable[[], bool]


class ScopeCalls:
    """The calls for a scope or a pattern, or the one for a stream or an archive. As text, it is what the user gave.

    Args:
        verb: the verb, one of whose arguments may be a scope.
        arguments: its arguments; of those that may be scopes, all are, or none is.
        options: its options.

    Raises:
        Usage: they are not scopes of the right kind.
    """

    def __init__(self, verb: PublicVerb, arguments: Sequence[str], options: Options) -> None:
        self._names, self._given = verb.argument_names, arguments
        self._patterns = _patterns(verb, arguments)
        self._options = options
        (name, kind), *others = verb.options_class.scoped.items()
        target = next((self._patterns.get(other) for other, its in others if its == "target"), None)
        scope, _, stream = arguments[verb.argument_names.index(name)].rpartition("/")
        self._pattern = ScopePattern(scope, stream)
        self._members = members_of(self._pattern, kind, target)

    def __str__(self) -> str:
        return str(self._pattern)

    def look(self, *, first: bool = False) -> ScopeListing:
        """List the streams as they are now.

        Args:
            first: whether it is an error that there are none.

        Raises:
            Usage: nothing matches.
            Problem: they cannot be listed.
        """
        if self._pattern.is_name:
            return ScopeListing(names=[self._pattern.pattern])
        listing = self._members.look()
        if first:
            self._members.check_any(listing)
        return listing

    def given(self) -> Iterator[StreamCall]:
        """Yield the call as the user gave it: for scopes and patterns rather than for their streams."""
        yield self.call(self._pattern.pattern)

    def uri(self, name: str) -> str:
        """Return the URI of the stream or the archive."""
        return self._pattern.member(name)

    def call(self, name: str) -> StreamCall:
        """Return the call for a stream."""
        arguments = [
            self._patterns[argument].member(name) if argument in self._patterns else given
            for argument, given in zip(self._names, self._given, strict=True)
        ]
        is_named, has = self._pattern.is_name, partial(self._members.has, name)
        return StreamCall(self.uri(name), arguments, self._options, is_named, has)


def _patterns(verb: PublicVerb, arguments: Sequence[str]) -> Mapping[str, ScopePattern]:
    """Return the scopes among a verb's arguments, by the argument's name; none if it is called for one stream."""
    patterns, is_one = dict[str, ScopePattern](), not has_scope(verb, arguments)
    for number, (name, kind) in enumerate(verb.options_class.scoped.items()):
        text = arguments[verb.argument_names.index(name)]
        if is_one:
            _check_stream(kind, text, number)
            continue
        if not is_scope(text):
            what = (
                "the target of a scope must be a scope"
                if number
                else "a scope as the target requires a scope as the source"
            )
            raise Usage(what, where=repr(text), todo="End both with '/', or neither.")
        patterns[name] = ScopePattern.parse(text)
        if number and patterns[name].pattern:
            raise Usage(
                "a target must not be a pattern", where=repr(text), todo="Write the scope, with '/' at the end."
            )
        _check_stream(kind, patterns[name].member("x"), number)
    return patterns


def _check_stream(kind: ScopeKind, uri: str, number: int) -> None:
    """Check the URI of a stream; ``number`` is that of the argument. An archive's is checked when it is opened."""
    if kind == "target" or (kind != "archive" and is_stream(uri)):
        parse_stream(uri, target=bool(number))
