"""The calls that a verb makes for the streams of a scope: the arguments and options of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from streamvault.common.errors import Usage
from streamvault.common.options import Options, ScopeKind
from streamvault.common.verb import PublicVerb
from streamvault.scopes.listing import ScopeListing, members_of
from streamvault.scopes.uri import ScopePattern, has_scope, is_scope
from streamvault.streamstore.uri import is_stream, parse_stream


class StreamCalls(ABC):
    """The calls of a verb, by the names of their streams. As text, it is what the user gave."""

    @abstractmethod
    def look(self, *, first: bool = False) -> ScopeListing:
        """List the streams as they are now.

        Args:
            first: whether it is an error that there are none.

        Raises:
            Usage: nothing matches.
            Problem: they cannot be listed.
        """

    @abstractmethod
    def given(self) -> Iterator[tuple[Sequence[str], Options]]:
        """Yield arguments and options as the user gave them: scopes and patterns rather than their streams."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether a stream is still there; of one that was named, True: that it is gone is a failure."""

    @abstractmethod
    def uri(self, name: str) -> str:
        """Return the URI of the stream or the archive."""

    @abstractmethod
    def call(self, name: str) -> tuple[Sequence[str], Options]:
        """Return the verb's arguments and options for a stream."""


class ScopeCalls(StreamCalls):
    """The calls for a scope or a pattern, or the one for a stream or an archive.

    Args:
        verb: the verb, one of whose arguments may be a scope.
        arguments: its arguments; of those that may be scopes, all are, or none is.
        options: its options.

    Raises:
        Usage: they are not scopes of the right kind.
    """

    def __init__(self, verb: PublicVerb, arguments: Sequence[str], options: Options) -> None:
        self._names, self._given, self._options = verb.argument_names, arguments, options
        self._patterns = _patterns(verb, arguments)
        (name, kind), *others = verb.options_class.scoped.items()
        target = next((self._patterns.get(other) for other, its in others if its == "target"), None)
        scope, _, stream = arguments[verb.argument_names.index(name)].rpartition("/")
        self._pattern = ScopePattern(scope, stream)
        self._members = members_of(self._pattern, kind, target)

    def __str__(self) -> str:
        return str(self._pattern)

    def look(self, *, first: bool = False) -> ScopeListing:
        """See `StreamCalls.look`."""
        if self._pattern.is_name:
            return ScopeListing(names=[self._pattern.pattern])
        listing = self._members.look()
        if first:
            self._members.check_any(listing)
        return listing

    def given(self) -> Iterator[tuple[Sequence[str], Options]]:
        """See `StreamCalls.given`."""
        yield self.call(self._pattern.pattern)

    def has(self, name: str) -> bool:
        """See `StreamCalls.has`."""
        return self._pattern.is_name or self._members.has(name)

    def uri(self, name: str) -> str:
        """See `StreamCalls.uri`."""
        return self._pattern.member(name)

    def call(self, name: str) -> tuple[Sequence[str], Options]:
        """See `StreamCalls.call`."""
        arguments = [
            self._patterns[argument].member(name) if argument in self._patterns else given
            for argument, given in zip(self._names, self._given, strict=True)
        ]
        return arguments, self._options


def _patterns(verb: PublicVerb, arguments: Sequence[str]) -> Mapping[str, ScopePattern]:
    """Return the scopes among a verb's arguments, by the argument's name; none if it is called for one stream."""
    patterns, is_one = dict[str, ScopePattern](), not has_scope(verb, arguments)
    for number, (name, kind) in enumerate(verb.options_class.scoped.items()):
        text = arguments[verb.argument_names.index(name)]
        if is_one:
            _check_stream(kind, text, number)
            continue
        if not is_scope(text):
            what = "the target of a scope is a scope" if number else "a scope as target needs a scope as source"
            raise Usage(what, where=repr(text), todo="Let both end in '/', or none.")
        patterns[name] = ScopePattern.parse(text)
        if number and patterns[name].pattern:
            raise Usage(
                "a target must not be a pattern", where=repr(text), todo="Write the scope, with '/' at its end."
            )
        _check_stream(kind, patterns[name].member("x"), number)
    return patterns


def _check_stream(kind: ScopeKind, uri: str, number: int) -> None:
    """Check the URI of a stream; ``number`` is that of the argument. An archive's is checked when it is opened."""
    if kind == "target" or (kind != "archive" and is_stream(uri)):
        parse_stream(uri, target=bool(number))
