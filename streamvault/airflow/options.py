"""The verbs' options as arguments of operators."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from airflow.sdk.exceptions import AirflowFailException
from pydantic.fields import FieldInfo

from streamvault.common.options import Options, command_line, variable_of
from streamvault.scopes.entries import entry_fields, parse_flag

_LOGIN = re.compile("https?://[^/]*@")


def flag(name: str, value: Any) -> bool:
    """Return the value of an operator's argument.

    Args:
        name: the argument's name.
        value: as for `parse_flag`.

    Raises:
        AirflowFailException: it is not a boolean.
    """
    try:
        return parse_flag(value)
    except ValueError as error:
        raise AirflowFailException(f"{name}: {error}") from None


@dataclass(frozen=True, slots=True)
class OptionArgument:
    """An option of a verb as an argument of the verb's operator.

    Attributes:
        name: the argument's name.
        option: the option on a command line.
        declared: the option's field.
    """

    name: str
    option: str
    declared: FieldInfo

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return self.declared.annotation is bool

    @property
    def is_repeated(self) -> bool:
        """Whether the option may be given several times."""
        return self.declared.annotation == Iterable[str]

    def parameter(self) -> Parameter:
        """Return the argument for the signature of ``__init__``; not given: the command's default."""
        form = command_line(self.declared)
        annotation: Any = str | None
        if self.is_flag:
            annotation = bool | str
        elif form.pair:
            annotation = Sequence[tuple[Any, Any]]
        elif self.is_repeated:
            annotation = str | Sequence[str] | None
        elif form.parse is None and not form.choices:
            annotation = self.declared.annotation | annotation
        default: Any = False if self.is_flag else None
        if self.declared.is_required():
            default = Parameter.empty
        return Parameter(self.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def description(self) -> str:
        """Return the argument's entry in a docstring."""
        text = self.declared.description or ""
        if self.option != f"--{self.name.replace('_', '-')}":
            text = f"``{self.option}``. {text}"
        default = None if self.declared.is_required() else self.declared.default
        if default and not self.is_repeated:
            text += f" Default: {command_line(self.declared).text(default)}."
        return described(self.name, text)

    def words(self, value: Any) -> list[str]:
        """Return the words for a command line; for None, False and an empty text, none.

        Args:
            value: a text, or a value whose text is that of the command line; a mapping is written as JSON. Of an option
                that is two texts, a sequence of pairs.

        Raises:
            AirflowFailException: it must be a boolean or pairs, and is not; or it is a URL with a login, which Airflow
                would show.
        """
        if self.is_flag:
            return [self.option] if flag(self.name, value) else []
        if command_line(self.declared).pair:
            return [word for pair in value or () for word in (self.option, *map(_text, self._pair(pair)))]
        values = value or () if self.is_repeated and not isinstance(value, str) else (value,)
        words = []
        for each in values:
            if each is None or each is False or each == "":
                continue
            words += [self.option, text := _text(each)]
            if _LOGIN.match(text):
                what = f"{self.name}: the URL has a login, which command lines and rendered fields would show"
                todo = f"Set {variable_of(self.option)} for the worker instead."
                if not command_line(self.declared).environment:
                    todo = "No environment variable sets it here: give a URL without a login."
                raise AirflowFailException(f"{what}. {todo}")
        return words

    def _pair(self, pair: Any) -> tuple[Any, Any]:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise AirflowFailException(f"{self.name}: {pair!r} is not a pair")
        return pair[0], pair[1]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def option_arguments(
    kind: type[Options], omitted: Collection[str] = (), renamed: Mapping[str, str] | None = None
) -> tuple[OptionArgument, ...]:
    """Return a verb's options as arguments, without those in `OMITTED` and ``omitted``.

    Args:
        kind: the verb's options.
        omitted: options to leave out.
        renamed: the option → the argument's name, if it is another one.
    """
    names = renamed or {}
    return tuple(
        OptionArgument(names.get(keyword, name), command_line(declared).option(keyword), declared)
        for name, keyword, declared in entry_fields(kind, omitted)
    )


def described(name: str, text: str) -> str:
    """Return an entry of the section ``Args`` of a docstring."""
    return textwrap.fill(f"{name}: {text}", 116, initial_indent="    ", subsequent_indent="        ")


def forwarding_init(kind: type[Any]) -> Any:
    """Return an ``__init__`` for an operator's class, whose arguments its base class takes; Airflow wants one of it."""

    def __init__(self: Any, **given: Any) -> None:  # noqa: N807
        super(kind, self).__init__(**given)

    return __init__
