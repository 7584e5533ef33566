"""Makes the verbs take scopes."""

from __future__ import annotations

from functools import wraps
from typing import Any

from streamvault.common.options import Options, in_keywords
from streamvault.common.progress import Progress
from streamvault.common.verb import arguments_of
from streamvault.scopes.uri import has_scope


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
