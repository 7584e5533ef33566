"""URIs of scopes and patterns: ``pravega://HOST:PORT/SCOPE/``, ``ROOT/SCOPE/``, and with ``*`` in the last name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from streamvault.common.errors import Usage
from streamvault.common.verb import PublicVerb


def is_scope(text: str) -> bool:
    """Return whether a URI is that of a scope or a pattern: its last part is empty, or it has a ``*`` in a name."""
    *_, scope, stream = "", *str(text).rsplit("/", 2)
    return "://" in str(text) and (not stream or "*" in scope + stream)


def has_scope(verb: PublicVerb, arguments: Sequence[object]) -> bool:
    """Return whether one of a verb's arguments is a scope or a pattern."""
    scoped = verb.options_class.scoped
    given = dict(zip(verb.argument_names, arguments, strict=True))
    return any(is_scope(str(given[name])) for name in scoped)


@dataclass(frozen=True, slots=True)
class ScopePattern:
    """A scope, or the streams of a scope whose names match a pattern.

    Attributes:
        scope: URI of the scope, without a slash at its end.
        pattern: what the names match, in which ``*`` stands for any text; empty if all do.
    """

    scope: str
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the URI of a scope or a pattern.

        Raises:
            Usage: there is a ``*`` elsewhere than in the last part.
        """
        scope, _, pattern = text.rpartition("/")
        if "*" in scope:
            raise Usage("only the stream's name may have a '*'", where=repr(text), todo="Name the scope.")
        return cls(scope, pattern)

    def __str__(self) -> str:
        return f"{self.scope}/{self.pattern}"

    @property
    def is_name(self) -> bool:
        """Whether it is that of one stream."""
        return bool(self.pattern) and "*" not in self.pattern

    def matches(self, name: str) -> bool:
        """Return whether a stream's name matches."""
        return re.fullmatch(".*".join(map(re.escape, (self.pattern or "*").split("*"))), name) is not None

    def member(self, name: str) -> str:
        """Return the URI of a stream of the scope, or of its archive."""
        return f"{self.scope}/{name}"
