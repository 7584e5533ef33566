"""URIs of scopes and patterns, and the verbs that take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self

from streamvault.common.errors import Usage
from streamvault.common.options import Options, PublicVerb, arguments_of, in_keywords
from streamvault.common.progress import Progress


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
            raise Usage("only the stream's name may contain a '*'", where=repr(text), todo="Name the scope.")
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


def taking_scopes(function: Any) -> Any:
    """Return a verb that also takes a scope or a pattern, if its options say so, and then returns a `ScopeReport`.

    Its attribute ``declared`` runs it for the streams that a file declares. Any other function is returned as it is.
    """
    kind: type[Options] | None = getattr(function, "options_class", None)
    if kind is None or not kind.scoped:
        return function

    @wraps(function)
    def with_options(*given: Any) -> Any:
        *arguments, options, progress = given
        if not has_scope(function, arguments):
            return function.with_options(*given)
        from streamvault.scopes.calls import ScopeCalls  # noqa: PLC0415  (these import the engines)
        from streamvault.scopes.run import run_calls  # noqa: PLC0415

        return run_calls(function, ScopeCalls(function, list(map(str, arguments)), options), options, progress)

    def declared(file: str, options: Any, progress: Progress) -> Any:
        from streamvault.scopes.declared import DeclaredCalls  # noqa: PLC0415
        from streamvault.scopes.run import run_calls  # noqa: PLC0415

        return run_calls(function, DeclaredCalls(function, file, options), options, progress)

    @wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        given = arguments_of(function, args, kwargs)
        arguments = [given.pop(name) for name in function.argument_names]
        if not has_scope(function, arguments):
            return function(*args, **kwargs)
        progress = given.pop("progress", None) or Progress()
        with in_keywords(kind):
            return with_options(*arguments, kind(**given), progress)

    vars(public).update(with_options=with_options, declared=declared)
    return public
