"""Restores an archive into a new stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import CommandOperator, fingerprints, options

IMPORT_FIELDS = (
    "archive",
    "stream",
    "at",
    "generation",
    "from_cut",
    "to_cut",
    "offsets",
    "filler_limit",
    "numbers",
    "retention",
    "window",
    "read_back",
    "layout",
    "table",
    "wait_for_warm",
    "skip_damaged",
    "fingerprint",
)


class ImportStreamOperator(CommandOperator):
    """``streamvault import``: restores an archive into a new stream and verifies every range.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. This and all arguments below are templated.
        stream: the new stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.
        at: restore the stream as of this time, RFC 3339.
        generation: the last generation to restore; None for the newest.
        from_cut: JSON text, the name of a file on the worker, or a mapping.
        to_cut: likewise.
        offsets: ``keep`` or ``shift``; None for the command's default, as for all arguments below.
        filler_limit: a size as on the command line, such as ``1GiB``.
        numbers: ``keep`` or ``map``: whether segments may get other numbers, as under a name that was used before.
        retention: ``keep`` or ``off``: whether the stream gets the archived retention policy.
        window: a size, as `filler_limit`.
        read_back: whether to also read back and compare the bytes that this run appended.
        layout: ``table`` restores from a table of the archive.
        table: name of the table.
        wait_for_warm: whether to wait for objects that S3 is restoring; see `WarmArchiveOperator`.
        skip_damaged: whether to restore a damaged archive without its damaged ranges. If any are, the task fails after
            the stream was restored; its XCom ``report`` names them.
        fingerprint: fingerprint of a generation, as its export printed it, or a list; other archives are rejected.
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
        numbers: str | None = None,
        retention: str | None = None,
        window: str | None = None,
        read_back: bool | str = False,
        layout: str | None = None,
        table: str | None = None,
        wait_for_warm: bool | str = False,
        skip_damaged: bool | str = False,
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
        self.numbers = numbers
        self.retention = retention
        self.window = window
        self.read_back = read_back
        self.layout = layout
        self.table = table
        self.wait_for_warm = wait_for_warm
        self.skip_damaged = skip_damaged
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
                "--numbers": self.numbers,
                "--retention": self.retention,
                "--window": self.window,
                "--read-back": flag("read_back", self.read_back),
                "--layout": self.layout,
                "--table": self.table,
                "--wait-for-warm": flag("wait_for_warm", self.wait_for_warm),
                "--skip-damaged": flag("skip_damaged", self.skip_damaged),
                # a task may be killed after the import but before it returns the report
                "--again": True,
            }
        )
        return ["import", self.archive, self.stream_uri(self.stream), *chosen, *fingerprints(self.fingerprint)]
