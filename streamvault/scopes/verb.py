"""Makes the verbs take scopes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from inspect import signature
from typing import Any

from streamvault.common.options import Options
from streamvault.common.progress import Progress
from streamvault.scopes.uri import is_scope


def taking_scopes(function: Any) -> Any:
    """Return a verb that also takes a scope or a pattern, if its options say so, and then returns a `ScopeReport`.

    Any other function is returned as it is.
    """
    kind: type[Options] | None = getattr(function, "options_class", None)
    if kind is None or not kind.scoped:
        return function
    names: tuple[str, ...] = function.argument_names
    called = signature(function)

    def has_scope(arguments: Sequence[Any]) -> bool:
        return any(is_scope(str(given)) for name, given in zip(names, arguments, strict=False) if name in kind.scoped)

    @wraps(function)
    def with_options(*given: Any) -> Any:
        if not has_scope(given):
            return function.with_options(*given)
        from streamvault.scopes.run import run_for_scope  # noqa: PLC0415  (it imports the engines)

        *arguments, options, progress = given
        return run_for_scope(function, [str(one) for one in arguments], options, progress)

    @wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        given = called.bind(*args, **kwargs).arguments
        arguments = [given.pop(name) for name in names]
        if not has_scope(arguments):
            return function(*args, **kwargs)
        progress = given.pop("progress", None) or Progress()
        return with_options(*arguments, kind(**given), progress)

    vars(public)["with_options"] = with_options
    return public
