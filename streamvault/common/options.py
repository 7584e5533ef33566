"""Options of the verbs, declared once for the command line, Airflow and Python callers, and the verbs that take them.

Each verb has a frozen class with a field for each option: its type, default, bounds and help text. A `CommandLine`
among a field's annotations describes how the option is written on a command line. This module reads no command line.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import reduce, wraps
from inspect import Parameter, Signature, signature
from operator import index, or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from streamvault.common.errors import Problem, Usage
from streamvault.common.progress import Progress
from streamvault.common.report import TimedReport
from streamvault.common.units import (
    age_option_text,
    duration_text,
    parse_age,
    parse_duration,
    parse_moment,
    parse_percent,
    parse_size,
    size_text,
)

T = TypeVar("T", bound="Options")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """How an option is written on a command line.

    Attributes:
        name: the option, such as ``--from``; empty if it follows from the field's name.
        short: a second name of one letter, such as ``-o``.
        metavar: placeholder for the value in help texts.
        parse: converts the text; raises ValueError.
        load: converts the text, given the option's name, where that may read a file; raises Usage.
        text: converts a value to text, for help texts and messages.
        choices: the texts that may be given, with their values, if the values differ from the texts.
        pair: whether each time two texts are given; the value is a sequence of pairs, and `load` converts each text.
        environment: whether the environment variable ``STREAMVAULT_<OPTION>`` sets the option too; False if another
            command has an option of the same name and another meaning.
        destroys: whether the option makes a command delete, truncate or seal something. No variable sets it, and one
            that would is an error: a variable that was forgotten must not delete anything.
    """

    name: str = ""
    short: str = ""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    load: Callable[[str, str], Any] | None = None
    text: Callable[[Any], str] = str
    choices: Mapping[str, Any] = field(default_factory=dict)
    pair: bool = False
    environment: bool = True
    destroys: bool = False

    def named(self, name: str) -> Self:
        """Return a copy with another option name."""
        return dataclasses.replace(self, name=name)

    def destroying(self) -> Self:
        """Return a copy that makes a command delete, truncate or seal something; see `destroys`."""
        return dataclasses.replace(self, environment=False, destroys=True)

    def option(self, keyword: str) -> str:
        """Return the option's name, given the field's keyword."""
        return self.name or f"--{keyword.replace('_', '-')}"

    def value(self, given: Any, option: str) -> Any:
        """Return the option's value, which is given as on a command line, or is of the option's type.

        Args:
            given: a text, or a value.
            option: where it is given, for messages.

        Raises:
            ValueError: it is not valid.
            Usage: likewise, or a file that it names cannot be read.
        """
        if self.choices:
            if given not in self.choices:
                raise ValueError(f"{given!r} is not one of {', '.join(self.choices)}")
            return self.choices[given]
        if self.parse is not None:
            return self.parse(str(given))
        if isinstance(given, str) and self.load is not None:
            return self.load(given, option)
        return tuple(given) if isinstance(given, list) else given

    def variable(self, keyword: str) -> str:
        """Return the environment variable with the option's name, whether or not it sets the option."""
        return variable_of(self.option(keyword))


def with_types(kind: Any, *more: Any) -> Any:
    """Return a type or more types as one type; None stays the last."""
    kinds = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    ordered = [*(each for each in kinds if each is not NoneType), *more, *(each for each in kinds if each is NoneType)]
    return reduce(or_, dict.fromkeys(ordered))


def variable_of(option: str) -> str:
    """Return the environment variable with an option's name: ``--log-level`` → ``STREAMVAULT_LOG_LEVEL``."""
    return f"STREAMVAULT_{option.lstrip('-').replace('-', '_').upper()}"


SIZE = CommandLine(metavar="SIZE", parse=parse_size, text=size_text)
DURATION = CommandLine(metavar="TIME", parse=parse_duration, text=duration_text)
AGE = CommandLine(metavar="TIME", parse=parse_age, text=age_option_text)
TIME = CommandLine(metavar="TIME", load=parse_moment)


def parse_path(text: str) -> Path:
    """Return the path of a file or folder."""
    if not text:
        raise ValueError("it is empty; omit the option, or give it a value")
    return expanded(text)


def expanded(text: str) -> Path:
    """Return a path whose ``~`` is the home folder: a shell does not see it in ``--option=~/file`` or a variable."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  (a home that is not known is no error)


FILE = CommandLine(metavar="FILE", parse=parse_path, environment=False)
FOLDER = CommandLine(metavar="FOLDER", parse=parse_path, environment=False)
PERCENT = CommandLine(metavar="PERCENT", parse=parse_percent, text=lambda share: f"{100 * share:g}%")


ScopeKind = Literal["stream", "archive", "stream or archive", "movable", "replica", "target"]
"""What an argument names that may be a scope: what is listed, or where the others of the same names are made."""


class Options(BaseModel):
    """Base class of the verbs' options. Values that are not valid raise `Usage`.

    Attributes:
        scoped: the verb's arguments that may be a scope or a pattern instead (package ``scopes``): the first is listed.
        deletes: whether the verb deletes the stream that the first argument names. If that was gone before, it raises
            `streamstore.errors.GoneBefore`: nobody else can tell who has deleted it.
        measured: whether the verb may run for so long that its figures are worth watching.
        follows: whether the verb goes on as a stream grows, so that new streams of a scope join.
    """

    scoped: ClassVar[Mapping[str, ScopeKind]] = {}
    deletes: ClassVar[bool] = False
    measured: ClassVar[bool] = False

    # strict: a verb uses its arguments as they are, so "false" must not pass as False
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _raise_usage(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(values, dict):
            values = {name: cls._plain(name, value) for name, value in values.items()}
        try:
            return handler(values)
        except ValidationError as error:
            raise cls._usage(error) from None

    @classmethod
    def _plain(cls, keyword: str, value: Any) -> Any:
        """Return a value of another type as the option's.

        That is an integer such as NumPy's, the text of a size or a time, a timedelta, and a path for a text or for the
        file that has it.

        Raises:
            Usage: the text is no size or time, or the file cannot be read.
        """
        declared = cls.keyword_fields().get(keyword)
        form = CommandLine() if declared is None else command_line(declared)
        if isinstance(value, os.PathLike) and form.parse is not parse_path:
            path: str = os.fspath(value)
            return path if form.load is None else form.load(path, form.option(keyword))
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, str):
            try:
                return value if form.parse is None else form.parse(value)
            except ValueError as error:
                raise Usage(f"{form.option(keyword)} is not valid: {str(error).rstrip('.')}") from None
        return index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else value

    @classmethod
    def keyword_fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by keyword: the argument's name in Python."""
        return {declared.alias or name: declared for name, declared in cls.model_fields.items()}

    @classmethod
    def own_first(cls) -> list[tuple[str, FieldInfo]]:
        """Return `keyword_fields` in the order for help texts: a verb's own before those that it shares."""
        homes = [vars(one).get("__annotations__", {}) for one in cls.__mro__]
        found = zip(cls.model_fields, cls.keyword_fields().items(), strict=True)
        ordered = sorted(found, key=lambda one: next(place for place, home in enumerate(homes) if one[0] in home))
        return [item for _, item in ordered]

    @property
    def follows(self) -> bool:
        """See the class."""
        return False

    @classmethod
    def given_type(cls, keyword: str) -> Any:
        """Return the type of an option as callers may give it, see `_plain`."""
        declared = cls.keyword_fields()[keyword]
        form, more = command_line(declared), list[Any]()
        if form.parse is not None:
            more.append(str)
        if form.parse in {parse_duration, parse_age}:
            more.append(timedelta)
        if form.metavar in {"ROOT", "FILE", "CUT"} and form.parse is None and not form.pair:
            more.append(os.PathLike[str])
        return with_types(declared.annotation, *more)

    def keywords(self) -> dict[str, Any]:
        """Return the options as keyword arguments."""
        return {declared.alias or name: getattr(self, name) for name, declared in type(self).model_fields.items()}

    def shared_with(self, kind: type[T]) -> T:
        """Return another verb's options: those that it shares with this one as they are, the others its defaults."""
        return kind(**{name: value for name, value in self.keywords().items() if name in kind.keyword_fields()})

    @classmethod
    def _usage(cls, error: ValidationError) -> Usage:
        first = error.errors(include_url=False)[0]
        keyword, value = str(first["loc"][0]) if first["loc"] else "", first["input"]
        declared = cls.keyword_fields().get(keyword)
        if declared is None:
            return Usage(first["msg"], where=keyword)
        form = command_line(declared)
        option = form.option(keyword)
        bounds, todo = first.get("ctx", {}), ""
        match first["type"]:
            case "greater_than_equal":
                what = f"{option} must be at least {form.text(bounds['ge'])}"
                if form.parse is parse_size and value < 1024:
                    todo = "A size without a unit is in bytes; 64MiB has one."
            case "greater_than" if bounds["gt"] == 0:
                what = f"{option} must be positive"
            case "greater_than":
                what = f"{option} must be more than {form.text(bounds['gt'])}"
            case "less_than_equal":
                what = f"{option} must be at most {form.text(bounds['le'])}"
            case "literal_error":
                what = f"{option} must be {bounds['expected']}"
            case "missing":
                return Usage(f"{option} is required")
            case _:
                return Usage(f"{option} is not valid: {first['msg'].removeprefix('Value error, ')}", where=repr(value))
        return Usage(what, where=form.text(value) if isinstance(value, int | float) else repr(value), todo=todo)


_FLAG = re.compile(r"(?<!\w)'[a-z-]+ [^']*'|`[^`]*`|(--[a-z](?:[a-z-]*[a-z])?)(?: ([A-Za-z]+))?")
"""An option with the word after it; also a whole command line, which stays as it is."""


@contextmanager
def in_keywords(kind: type[Options]) -> Iterator[None]:
    """Let the errors of a call name a verb's options as the caller does: ``range_size``, not ``--range-size``."""
    try:
        yield
    except Problem as problem:
        forms = {
            command_line(declared).option(keyword): (keyword, declared)
            for keyword, declared in kind.keyword_fields().items()
        }

        def named(match: re.Match[str]) -> str:
            keyword, declared = forms.get(match[1], ("", None))
            word = match[2] or ""
            if declared is None:
                return match[0]
            if word and (word.isupper() or f"'{word}'" in str(declared.annotation)):
                return f"{keyword}={word}" if word.isupper() else f"{keyword}={word!r}"
            is_set = declared.annotation is bool and match.start() > 0
            return f"{keyword}{'=True' if is_set else ''}{' ' if word else ''}{word}"

        problem.what, problem.where, problem.todo = (
            _FLAG.sub(named, text) for text in (problem.what, problem.where, problem.todo)
        )
        problem.args = (problem.what,)
        raise


class Watched(Options):
    """Options of a verb that reports its progress."""

    if TYPE_CHECKING:
        progress: Progress | None = None  # an argument of the verb's function, and no option


class Rehearsed(Options):
    """Options of a verb that can say what it would do."""

    dry_run: Annotated[
        bool, Field(description="Write nothing; print what would be done, and S3's charges if there are any.")
    ] = False


def command_line(declared: FieldInfo) -> CommandLine:
    """Return how a field's option is written on a command line."""
    return next((form for form in declared.metadata if isinstance(form, CommandLine)), CommandLine())


def moment(option: str) -> BeforeValidator:
    """Return the validator of an option that is a time: RFC 3339 text or a timezone-aware datetime, made UTC."""
    return BeforeValidator(lambda value: value if value is None else parse_moment(value, option))


def _texts(value: Any) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(each, str) for each in found):
        raise ValueError("it must be a list of texts")
    return found


TEXTS = PlainValidator(_texts)
"""The validator of an option that is several texts: any iterable of them, made a tuple."""


def load_file(name: str, option: str, todo: str = "", *, kind: Callable[[bytes], str] = bytes.decode) -> str:
    """Read a text file that an option names.

    Args:
        name: the file.
        option: the option, for messages.
        todo: what to do if it cannot be read.
        kind: makes a text of the content; UTF-8 if not given.

    Raises:
        Usage: it cannot be read.
    """
    try:
        return kind(Path(name).read_bytes())
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise Usage(f"{option} cannot be read", where=f"{name}: {reason}", todo=todo) from None


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
            keyword_parameter(
                name, self.kind.given_type(name), Parameter.empty if field.is_required() else field.default
            )
            for name, field in self.kind.own_first()
        ]
        if is_watched:
            keywords.append(keyword_parameter("progress", Progress | None))
        called = Signature([*arguments, *keywords], return_annotation=declared.return_annotation)

        @wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            given = arguments_of(public, args, kwargs)
            progress = given.pop("progress", None)
            values = [given.pop(one.name, one.default) for one in arguments]
            positional = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in values]
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


def keyword_parameter(name: str, annotation: Any, default: Any = None) -> Parameter:
    """Return a parameter that is given by its name."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
