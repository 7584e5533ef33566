"""What a file that declares streams may say of each: TOML, with the line of each value."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from streamvault.common.errors import Problem, Usage
from streamvault.common.options import CommandLine, Options, command_line, load_file
from streamvault.common.units import parse_duration

Model = TypeVar("Model", bound=BaseModel)

OMITTED = frozenset(
    {
        "master",  # it is where the command runs, not what it does with a stream
        "same_stream",  # a person confirms it once; a list would confirm any stream
    }
)
"""Options that no list and no operator has."""

NOT_LISTED = frozenset(
    {
        "dry_run",  # what is declared is what is to be done
        "ranges",  # cuts are of one stream, and pairs have no form in a list
    }
)
"""Options that no list has."""

ALTERNATIVES = ({"keep", "keep_for", "until"}, {"generation", "at"})
"""Options of which an entry's own takes the place of another one of the list."""

RENAMED = {"fingerprints": "fingerprint", "queue": "deletions"}
"""One fingerprint or several; Airflow's operators have a `queue` of their own."""

_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class ListModel(BaseModel):
    """A list, or an entry of it: unknown names are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of some fields that are set."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class ListEntry(ListModel):
    """An entry of a list; a text stands for the field `named`."""

    named: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {cls.named: value} if isinstance(value, str) else value


class DeclaredList(ListModel):
    """A list of streams; its other fields, which each entry has too, hold for all of them."""

    streams: Annotated[tuple[Any, ...], Field(min_length=1)]

    def entries(self) -> Iterator[tuple[int, Any, dict[str, Any]]]:
        """Yield number and entry, and what holds for it: its own, and what the list says and the entry does not."""
        names = [name for name in type(self).model_fields if name != "streams"]
        shared = self.given(names)
        for number, entry in enumerate(self.streams):
            own = entry.given(names)
            yield number, entry, {**without_alternatives(shared, own), **own}


def without_alternatives(options: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """Return options without those that an entry's own take the place of."""
    replaced = {name for group in ALTERNATIVES if group.intersection(own) for name in group}
    return {name: value for name, value in options.items() if name not in replaced}


def a_duration(text: str) -> str:
    """Check a duration.

    Raises:
        ValueError: it is none.
    """
    parse_duration(text)
    return text


Duration = Annotated[str, AfterValidator(a_duration)]
"""A duration such as ``6h``, as it is written."""


class TaskOptions(ListModel):
    """Where, with what and for how long a stream's task of a DAG runs, as for `airflow.operators.CommandOperator`.

    On the command line, logins come from the environment, and Spark from ``--master``.

    Attributes:
        pravega_conn_id: id of the connection of type ``pravega`` of what is read.
        aws_conn_id: id of the connection of type ``aws``.
        stop_after: a try that takes longer is stopped; the next one resumes.
        conn_id: id of the connection of type ``spark``.
        conf: settings of Spark.
    """

    pravega_conn_id: str | None = None
    aws_conn_id: str | None = None
    stop_after: Duration | None = None
    conn_id: str | None = None
    conf: dict[str, str | int | float | bool] | None = None
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    num_executors: int | None = None


class ReplicaTaskOptions(TaskOptions):
    """Those of a replication's task.

    Attributes:
        most_lag: the task fails if the last events took longer to arrive.
        target_conn_id: id of the connection of type ``pravega`` of the replica.
    """

    most_lag: Duration | None = None
    target_conn_id: str | None = None


def parse_flag(value: Any) -> bool:
    """Convert a boolean, 1 or 0, or one of the texts true, yes, on, 1, false, no, off and 0, in any case.

    Raises:
        ValueError: it is anything else: a misspelt ``true`` must not turn something off.
    """
    known = _FLAGS.get(str(value).strip().lower()) if isinstance(value, bool | int | str) else None
    if known is None:
        raise ValueError(f"{value!r} is not true, false, yes, no, on, off, 1 or 0")
    return known


Flag = Annotated[bool, BeforeValidator(parse_flag)]
"""A boolean in a declared list."""


def entry_fields(kind: type[Options], omitted: Collection[str] = ()) -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield a verb's options as a list has them, without those in `OMITTED` and ``omitted``.

    Yields:
        The name in a list, the keyword in Python, and the option's field.
    """
    for keyword, declared in kind.own_first():
        if keyword not in OMITTED and keyword not in omitted:
            yield RENAMED.get(keyword, keyword), keyword, declared


def with_options(kind: type[Options], omitted: Collection[str] = ()) -> Callable[[type[Model]], type[Model]]:
    """Return a class decorator that gives a model of a list's entries the options of a verb.

    A text is validated as on a command line, and stays a text. An option that is not given is None.

    Args:
        kind: the verb's options.
        omitted: options that an entry must not have, besides those of `OMITTED` and `NOT_LISTED`.
    """

    def decorate(model: type[Model]) -> type[Model]:
        fields: dict[str, Any] = {
            name: (_entry_type(declared) | None, None)
            for name, _, declared in entry_fields(kind, {*omitted, *NOT_LISTED})
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
        try:
            found = form.value(value, "it")
            checked = found if form.choices else check(found)
        except Problem as problem:
            raise ValueError(str(problem)) from None
        return value if form.choices or form.parse or form.load else checked

    return validate


_MAY_END = re.compile(r"""(]|}|\"{3}|'{3})\s*(#.*)?$""")
"""What the last line of a value of several lines ends with."""


def load_declared(file: str) -> tuple[Mapping[str, Any], str]:
    """Read a file that declares streams; return what it says, and its text.

    Raises:
        Usage: it cannot be read, or is not TOML; the message has the line.
    """
    text = load_file(file, "--config")
    try:
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:  # also of a number that is too long, or too many brackets
        raise Usage("the file is not TOML", where=f"{file}: {error}") from None


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line (from 1) at which a value is given in a TOML file; its table's or the first if it is not.

    Args:
        text: the file, which is valid.
        path: the keys and indices that lead to the value.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    ends = _statement_ends(lines)
    for length in range(len(path), 0, -1):

        def has(end: int, wanted: Sequence[str | int] = path[:length]) -> bool:
            return _has(tomllib.loads("".join(lines[:end])), wanted)

        if (at := bisect_left(ends, True, key=has)) < len(ends):  # once it is given, it is in all that follows
            begin = ends[at - 1] if at else 0
            return next(number for number in range(begin + 1, ends[at] + 1) if _has_content(lines[number - 1]))
    return 1


def _statement_ends(lines: Sequence[str]) -> list[int]:
    """Return the numbers of the lines at which statements end; of one of many lines, few are tried."""
    ends, begin = [], 0
    for number, line in enumerate(lines, 1):
        if number == begin + 1 or _MAY_END.search(line):
            with suppress(tomllib.TOMLDecodeError):  # within a value of several lines
                tomllib.loads("".join(lines[begin:number]))
                ends.append(number)
                begin = number
    return ends


def _has_content(line: str) -> bool:
    return bool(line.partition("#")[0].strip())


def _has(found: Any, path: Sequence[str | int]) -> bool:
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True
