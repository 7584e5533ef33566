"""The verbs' options as arguments of operators and as fields of the DAGs' lists."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, WrapValidator, create_model
from pydantic.fields import FieldInfo

from streamvault.airflow.flags import Flag, flag
from streamvault.common.errors import Problem
from streamvault.common.options import CommandLine, Options, command_line

Model = TypeVar("Model", bound=BaseModel)

OMITTED = frozenset(
    {
        "master",  # the connection to Spark gives it
        "dry_run",  # a task does its work
        "same_stream",  # a person confirms it once; a schedule would confirm any stream
    }
)
"""Options that no operator has."""

_RENAMED = {"fingerprints": "fingerprint", "queue": "deletions"}
"""One fingerprint or several; Airflow's operators have a `queue` of their own."""


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
        elif self.is_repeated:
            annotation = str | Sequence[str] | None
        elif form.parse is None and not form.choices:
            annotation = self.declared.annotation | annotation
        return Parameter(
            self.name, Parameter.KEYWORD_ONLY, default=False if self.is_flag else None, annotation=annotation
        )

    def description(self) -> str:
        """Return the argument's entry in a docstring."""
        text = self.declared.description or ""
        if self.option != f"--{self.name.replace('_', '-')}":
            text = f"``{self.option}``. {text}"
        default = self.declared.default
        if default and not self.is_repeated:
            text += f" Default: {command_line(self.declared).text(default)}."
        return described(self.name, text)

    def words(self, value: Any) -> list[str]:
        """Return the words for a command line; for None, False and an empty text, none.

        Args:
            value: a text, or a value whose text is that of the command line; a mapping is written as JSON.

        Raises:
            AirflowFailException: it must be a boolean, and is none.
        """
        if self.is_flag:
            return [self.option] if flag(self.name, value) else []
        values = value or () if self.is_repeated and not isinstance(value, str) else (value,)
        words = []
        for each in values:
            if each is None or each is False or each == "":
                continue
            words += [self.option, json.dumps(each) if isinstance(each, Mapping) else str(each)]
        return words


def option_arguments(kind: type[Options], omitted: Collection[str] = ()) -> tuple[OptionArgument, ...]:
    """Return a verb's options as arguments, without those in `OMITTED` and ``omitted``."""
    return tuple(
        OptionArgument(_RENAMED.get(keyword, keyword), command_line(declared).option(keyword), declared)
        for keyword, declared in kind.own_first()
        if keyword not in OMITTED and keyword not in omitted
    )


def described(name: str, text: str) -> str:
    """Return an entry of the section ``Args`` of a docstring."""
    return textwrap.fill(f"{name}: {text}", 116, initial_indent="    ", subsequent_indent="        ")


def with_options(kind: type[Options], omitted: Collection[str] = ()) -> Callable[[type[Model]], type[Model]]:
    """Return a class decorator that gives a model of a list's entries the options of a verb.

    A text is validated as on a command line, and stays a text. An option that is not given is None.

    Args:
        kind: the verb's options.
        omitted: options that an entry must not have, besides those of `OMITTED`.
    """

    def decorate(model: type[Model]) -> type[Model]:
        fields: dict[str, Any] = {
            each.name: (_entry_type(each.declared) | None, None) for each in option_arguments(kind, omitted)
        }
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return decorate


def _entry_type(declared: FieldInfo) -> Any:
    if declared.annotation is bool:
        return Flag
    rules = [rule for rule in declared.metadata if not isinstance(rule, CommandLine)]
    return Annotated[declared.annotation, *rules, WrapValidator(_validator(command_line(declared)))]


def _validator(form: CommandLine) -> Callable[[Any, Callable[[Any], Any]], Any]:
    def validate(value: Any, check: Callable[[Any], Any]) -> Any:
        if form.choices:
            if value not in form.choices:
                raise ValueError(f"{value!r} is not one of {', '.join(form.choices)}")
            return value
        try:
            if form.parse is not None:
                check(form.parse(str(value)))
            elif form.load is not None:
                check(form.load(value, "it"))
            else:
                return check(value)
        except Problem as problem:
            raise ValueError(str(problem)) from None
        return value

    return validate
