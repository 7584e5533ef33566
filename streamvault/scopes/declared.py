"""Files that declare streams and their options once: TOML, for the command line and for the DAGs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field, ValidationError, create_model

from streamvault.common.errors import Problem, Usage
from streamvault.common.options import Options, PublicVerb, command_line
from streamvault.scopes.calls import ScopeCalls, ScopeListing, StreamCall
from streamvault.scopes.entries import (
    DeclaredList,
    ListEntry,
    ReplicaTaskOptions,
    entry_fields,
    line_of,
    load_declared,
    with_options,
    without_alternatives,
)

RUNNING = ("follow", "idle", "lasting")
"""Options that say how the command itself runs, so they are not declared for a stream."""


class DeclaredCalls:
    """The calls that a file declares; as `ScopeCalls`, which it has for each entry. As text, it is the file's name.

    Args:
        verb: the verb.
        file: the file's name.
        options: the options of the command line, which hold where the file says nothing else.

    Raises:
        Usage: the file is not valid; the message has the line.
    """

    def __init__(self, verb: PublicVerb, file: str, options: Options) -> None:
        self._verb, self._file, self._options = verb, file, options
        self._calls = [(self._entry_calls(*found), found[0]) for found in self._entries()]
        self._homes: dict[str, tuple[ScopeCalls, str]] = {}

    def __str__(self) -> str:
        return self._file

    def look(self, *, first: bool = False) -> ScopeListing:
        """See `ScopeCalls.look`."""
        whole = ScopeListing()
        for calls, number in self._calls:
            try:
                found = calls.look(first=first)
            except Usage as problem:
                raise self._problem(problem, ("streams", number)) from None
            for name in found.names:
                uri = calls.uri(name)
                if self._homes.setdefault(uri, (calls, name))[0] is not calls:
                    raise self._problem(Usage("the stream is listed twice", where=uri), ("streams", number))
                whole.names.append(uri)
            whole.omitted += found.omitted
            whole.key_value_tables += found.key_value_tables
        return whole

    def given(self) -> Iterator[StreamCall]:
        """See `ScopeCalls.given`."""
        for calls, _ in self._calls:
            yield from calls.given()

    def call(self, name: str) -> StreamCall:
        """See `ScopeCalls.call`."""
        calls, own = self._homes[name]
        return calls.call(own)

    def _entries(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Return what holds for each entry of the list, with the entry's index."""
        said, self._text = load_declared(self._file)
        model = _list_model(self._verb)
        try:
            declared = model.model_validate(said)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            # a key that is missing may be the one that is misspelt
            first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
            path = [part for part in first["loc"] if isinstance(part, int) or has_key(said, part)]
            name = str(first["loc"][-1])
            unknown = first["type"] == "extra_forbidden"
            what = f"unknown key {name}" if unknown else f"{name}: {first['msg'].removeprefix('Value error, ')}"
            similar = get_close_matches(name, model.model_fields, n=1) if unknown else ()
            todo = f"Did you mean {similar[0]}?" if similar else ""
            if first["type"] == "missing" and name == "streams":
                what, todo = "no streams are declared", "Write a table [[streams]] for each, or streams = [URI, …]."
            raise self._problem(Usage(what, todo=todo), path) from None
        return [(number, said) for number, _, said in declared.entries()]

    def _entry_calls(self, number: int, said: Mapping[str, Any]) -> ScopeCalls:
        path = ("streams", number)
        arguments = []
        for name in self._verb.argument_names:
            if name not in said:
                raise self._problem(Usage(f"{name} is missing"), path)
            arguments.append(said[name])
        try:
            return ScopeCalls(self._verb, arguments, self._merged(said))
        except Problem as problem:
            raise self._problem(problem, path) from None

    def _merged(self, said: Mapping[str, Any]) -> Options:
        kind = self._verb.options_class
        given = {
            keyword: command_line(declared).value(said[name], "--config")
            for name, keyword, declared in entry_fields(kind, RUNNING)
            if name in said
        }
        return kind(**{**without_alternatives(self._options.keywords(), said), **given})

    def _problem(self, problem: Problem, path: Sequence[str | int]) -> Usage:
        """Return an error with its place in the file."""
        where = f"{self._file}:{line_of(self._text, path)}"
        return Usage(problem.what, where=f"{where}: {problem.where}" if problem.where else where, todo=problem.todo)


def has_key(said: Mapping[str, Any], key: str) -> bool:
    """Return whether a file gives a key, for all streams or for one; pydantic also names the types that it tried."""
    entries = said.get("streams")
    tables = [said, *(entries if isinstance(entries, list) else [])]
    return any(isinstance(table, dict) and key in table for table in tables)


def _list_model(verb: PublicVerb) -> type[DeclaredList]:
    """Return the model of a list for a verb: its arguments and options, for all streams and for each."""
    kind = verb.options_class
    texts: dict[str, Any] = dict.fromkeys(verb.argument_names, (str | None, None))
    shared: Any = with_options(kind, RUNNING)(create_model("_Shared", __base__=ReplicaTaskOptions, **texts))
    entry: Any = type("_Entry", (ListEntry, shared), {"named": next(iter(kind.scoped))})
    streams: Any = (Annotated[tuple[entry, ...], Field(min_length=1)], ...)
    return create_model("_Declared", __base__=(DeclaredList, shared), streams=streams)
