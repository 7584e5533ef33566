"""Restores an archive into a new stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.airflow.operators.command import CommandOperator, fingerprints, flag, options

__all__ = ["ImportStreamOperator"]

IMPORT_FIELDS = (
    "archive",
    "stream",
    "at",
    "generation",
    "from_cut",
    "to_cut",
    "offsets",
    "filler_limit",
    "retention",
    "window",
    "read_back",
    "layout",
    "table",
    "wait_for_warm",
    "fingerprint",
)


class ImportStreamOperator(CommandOperator):
    """``streamvault import``: an archive as a new stream, every range verified.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. (templated, as all of these)
        stream: the new stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.
        at: restore what the stream held at this time, RFC 3339.
        generation: up to this generation; None for the newest.
        from_cut: JSON text, the name of a file on the worker, or a mapping.
        to_cut: likewise.
        offsets: ``keep`` or ``shift``; None for the command's default, as for all that follow.
        filler_limit: as on the command line, ``1GiB``.
        retention: ``keep`` or ``off``: whether the stream gets the archived retention policy.
        window: likewise.
        read_back: whether to read back and compare also what the run itself has appended.
        layout: ``table`` restores from a table of the archive.
        table: its name.
        wait_for_warm: whether the task waits for what S3 is bringing back; see `WarmArchiveOperator`.
        fingerprint: of a generation, as its export printed it, or several in a list: another archive is refused.
        others: see `CommandOperator`.
    """

    template_fields: Sequence[str] = (*IMPORT_FIELDS, *CommandOperator.template_fields)
    written = "stream"

    def __init__(
        self,
        *,
        archive: str,
        stream: str,
        at: str | None = None,
        generation: int | str | None = None,
        from_cut: str | Mapping[str, int] | None = None,
        to_cut: str | Mapping[str, int] | None = None,
        offsets: str | None = None,
        filler_limit: str | None = None,
        retention: str | None = None,
        window: str | None = None,
        read_back: bool | str = False,
        layout: str | None = None,
        table: str | None = None,
        wait_for_warm: bool | str = False,
        fingerprint: str | Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.archive = archive
        self.stream = stream
        self.at = at
        self.generation = generation
        self.from_cut = from_cut
        self.to_cut = to_cut
        self.offsets = offsets
        self.filler_limit = filler_limit
        self.retention = retention
        self.window = window
        self.read_back = read_back
        self.layout = layout
        self.table = table
        self.wait_for_warm = wait_for_warm
        self.fingerprint = fingerprint

    def places(self) -> tuple[str, str | None]:
        """See the base class."""
        return self.archive, self.stream

    def command(self) -> list[str]:
        """See the base class."""
        chosen = options(
            {
                "--at": self.at,
                "--generation": self.generation,
                "--from": self.from_cut,
                "--to": self.to_cut,
                "--offsets": self.offsets,
                "--filler-limit": self.filler_limit,
                "--retention": self.retention,
                "--window": self.window,
                "--read-back": flag(self.read_back),
                "--layout": self.layout,
                "--table": self.table,
                "--wait-for-warm": flag(self.wait_for_warm),
                # a task may be killed between the import's end and its report
                "--again": True,
            }
        )
        return ["import", self.archive, self.stream_uri(self.stream), *chosen, *fingerprints(self.fingerprint)]
