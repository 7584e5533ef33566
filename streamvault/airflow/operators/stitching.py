"""Operators for the commands that put several streams and archives together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.operators.mirrors import TargetOperator
from streamvault.joining.options import AppendOptions, JoinOptions
from streamvault.streamstore.uri import is_stream

_SOURCES = (
    "streams and archives, in the order in which they are read: each ``SCOPE/STREAM`` or ``STREAM`` of "
    "`pravega_conn_id`, a URI, or ``ROOT/SCOPE/STREAM``; a text or a list of texts."
)


class StitchOperator(TargetOperator):
    """Reads streams and archives, and writes one stream; see `TargetOperator`."""

    read = ("sources",)
    sources: str | Sequence[str]

    def words(self, argument: str) -> list[str]:
        """See the base class."""
        if argument == "sources":
            return [self.stream_uri(each) for each in self._sources()]
        return ["--into", *super().words(argument)]

    def connected_stream(self) -> str | None:
        """See the base class.

        Raises:
            AirflowFailException: some sources have the connection's login, and others the worker's.
        """
        named = [each for each in self._sources() if "://" not in each]
        if named and (others := [each for each in self._sources() if is_stream(each)]):
            raise AirflowFailException(
                f"sources: {named[0]} is a stream of connection {self.pravega_conn_id!r} and {others[0]} is a URI, but "
                "one command has one login for its sources. Name all streams in the same way."
            )
        return named[0] if named else None

    def _sources(self) -> list[str]:
        return [self.sources] if isinstance(self.sources, str) else [str(each) for each in self.sources]


class AppendStreamsOperator(StitchOperator):
    """``streamvault append``: appends streams and archives to a stream, all at once."""

    verb = "append"
    arguments: ClassVar = {
        "sources": _SOURCES,
        "stream": "the stream to append to: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    options_class = AppendOptions


class JoinStreamsOperator(StitchOperator):
    """``streamvault join``: puts streams and archives together in a new stream."""

    verb = "join"
    arguments: ClassVar = {
        "sources": _SOURCES,
        "stream": "the new stream: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    options_class = JoinOptions
