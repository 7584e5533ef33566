"""Verbs: functions whose keyword arguments are the fields of an options class."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args, overload

from streamvault.common.options import Options, Watched, command_line, in_keywords, with_types
from streamvault.common.progress import Progress
from streamvault.common.report import TimedReport

FOLDERS = frozenset({"archive", "place", "root", "source"})
"""Names of verbs' arguments that may be a folder's path."""

Keywords = ParamSpec("Keywords")
Called = ParamSpec("Called")
Given = ParamSpec("Given")
A = TypeVar("A")
B = TypeVar("B")
O = TypeVar("O", bound=Options)  # noqa: E741
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Verb(Protocol[Called, Given, R_co]):
    """A public function, which takes options as keywords; `with_options` takes them as an object instead."""

    def __call__(self, *args: Called.args, **kwargs: Called.kwargs) -> R_co:
        """Call the verb as a user does."""

    @property
    def with_options(self) -> Callable[Given, R_co]:
        """The same, for callers that have the options: takes the verb's arguments, the options and the progress.

        A verb that reports no progress ignores it.
        """


class PublicVerb(Protocol):
    """What every verb has, whatever its arguments.

    Attributes:
        options_class: its options class.
        argument_names: the names of its arguments, without the options.
    """

    @property
    def options_class(self) -> type[Options]:
        """See the class."""

    @property
    def argument_names(self) -> tuple[str, ...]:
        """See the class."""

    @property
    def with_options(self) -> Callable[..., Any]:
        """See `Verb.with_options`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `Verb`."""


def verb(kind: Callable[Keywords, O]) -> _Decorator[Keywords, O]:
    """Make a function a verb: its parameter ``options`` becomes a keyword argument for each option.

    The verb rejects options that are not valid, supplies a `Progress` if none is given, and notes in the report how
    long a call took. Its errors name options as keywords.

    Args:
        kind: the options class. If it is `Watched`, the function's last parameter is ``progress``.
    """
    return _Decorator(kind)


class _Decorator(Generic[Keywords, O]):
    def __init__(self, kind: Callable[Keywords, O]) -> None:
        self.kind: Any = kind

    @overload
    def __call__(
        self, function: Callable[[A, B, O, Progress], R]
    ) -> Verb[Concatenate[A, B, Keywords], [A, B, O, Progress], R]: ...
    @overload
    def __call__(
        self, function: Callable[[A, O, Progress], R]
    ) -> Verb[Concatenate[A, Keywords], [A, O, Progress], R]: ...
    @overload
    def __call__(self, function: Callable[[O, Progress], R]) -> Verb[Keywords, [O, Progress], R]: ...
    @overload
    def __call__(self, function: Callable[[A, B, O], R]) -> Verb[Concatenate[A, B, Keywords], [A, B, O], R]: ...
    @overload
    def __call__(self, function: Callable[[A, O], R]) -> Verb[Concatenate[A, Keywords], [A, O], R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        declared = signature(function, eval_str=True)
        arguments = [_argument(one) for one in declared.parameters.values() if one.name not in {"options", "progress"}]
        is_watched = issubclass(self.kind, Watched)

        @wraps(function)
        def with_options(*given: Any) -> Any:
            began = time.monotonic()
            report: Any = function(*given[: len(declared.parameters)])
            total = round(time.monotonic() - began, 3)
            if isinstance(report, TimedReport):
                return replace(report, seconds=report.seconds or total, total_seconds=total)
            return replace(report, total_seconds=total) if hasattr(report, "total_seconds") else report

        keywords = [
            _keyword(name, self.kind.given_type(name), Parameter.empty if field.is_required() else field.default)
            for name, field in self.kind.own_first()
        ]
        if is_watched:
            keywords.append(_keyword("progress", Progress | None, None))
        called = Signature([*arguments, *keywords], return_annotation=declared.return_annotation)

        @wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            given = arguments_of(public, args, kwargs)
            progress = given.pop("progress", None)
            positional = [_text(given.pop(one.name, one.default)) for one in arguments]
            with in_keywords(self.kind):
                return with_options(*positional, self.kind(**given), progress or Progress())

        names = tuple(one.name for one in arguments)
        vars(public).update(
            __signature__=called, with_options=with_options, options_class=self.kind, argument_names=names
        )
        public.__annotations__ = {one.name: one.annotation for one in called.parameters.values()}
        return public


def arguments_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb's call by name.

    Raises:
        TypeError: they do not fit; the message names the keyword that an unknown one may stand for.
    """
    called = signature(function)
    try:
        return called.bind(*args, **kwargs).arguments
    except TypeError as error:
        fields = function.options_class.keyword_fields().items()
        known = {command_line(declared).option(name): name for name, declared in fields}
        unknown = next((f"--{name.replace('_', '-')}" for name in kwargs if name not in called.parameters), "")
        similar = get_close_matches(unknown, known, n=1)
        hint = f". Did you mean {known[similar[0]]!r}?" if similar else ""
        raise TypeError(f"{function.__name__}() {error}{hint}") from None


def _argument(declared: Parameter) -> Parameter:
    """Return a verb's argument: one that may be a folder may be given as a path, one that may be None not at all."""
    if NoneType in get_args(declared.annotation):
        declared = declared.replace(default=None)
    if declared.name in FOLDERS:
        declared = declared.replace(annotation=with_types(declared.annotation, os.PathLike[str]))
    return declared


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
