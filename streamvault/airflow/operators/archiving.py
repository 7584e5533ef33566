"""Base class of the operators that write an archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import CommandOperator, options


class ArchivingOperator(CommandOperator):
    """Reads a stream and writes below a root.

    Args:
        stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI. This and all arguments below are templated.
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        content: ``events`` or ``bytes``; None for the command's default, as for all arguments below.
        layout: ``events`` or ``chunks``.
        compress: ``zstd`` or ``none``.
        range_size: a size as on the command line, such as ``64MiB``.
        largest_event: likewise.
        window: likewise.
        storage_class: S3 storage class of the data.
        line: name of a line of generations, beside the stream's first archive.
        restart: whether to give up an unfinished run that was begun with other options.
        others: see `CommandOperator`.
    """

    template_fields: Sequence[str] = (
        *("stream", "root", "content", "layout", "compress", "range_size", "largest_event", "window", "storage_class"),
        *("line", "restart"),
        *CommandOperator.template_fields,
    )
    written = "archive"

    def __init__(
        self,
        *,
        stream: str,
        root: str,
        content: str | None = None,
        layout: str | None = None,
        compress: str | None = None,
        range_size: str | None = None,
        largest_event: str | None = None,
        window: str | None = None,
        storage_class: str | None = None,
        line: str | None = None,
        restart: bool | str = False,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.stream = stream
        self.root = root
        self.content = content
        self.layout = layout
        self.compress = compress
        self.range_size = range_size
        self.largest_event = largest_event
        self.window = window
        self.storage_class = storage_class
        self.line = line
        self.restart = restart

    def places(self) -> tuple[str, str | None]:
        """See the base class."""
        return self.root, self.stream

    def archiving(self, verb: str) -> list[str]:
        """Return the command with the arguments common to these operators.

        Args:
            verb: the command's name.
        """
        return [
            verb,
            self.stream_uri(self.stream),
            self.root,
            *options(
                {
                    "--content": self.content,
                    "--layout": self.layout,
                    "--compress": self.compress,
                    "--range-size": self.range_size,
                    "--largest-event": self.largest_event,
                    "--window": self.window,
                    "--storage-class": self.storage_class,
                    "--line": self.line,
                    "--restart": flag("restart", self.restart),
                }
            ),
        ]
