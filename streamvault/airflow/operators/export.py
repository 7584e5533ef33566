"""Archives a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.airflow.operators.archiving import ArchivingOperator
from streamvault.airflow.operators.command import options


class ExportStreamOperator(ArchivingOperator):
    """``streamvault export``: archives the whole stream, or the events since the newest generation.

    Args:
        from_cut: JSON text, the name of a file on the worker, or a mapping; None for the head or the archive's end.
            Templated, as is `to_cut`.
        to_cut: likewise; None for the tail.
        archiving: arguments of `ArchivingOperator`.
    """

    template_fields: Sequence[str] = ("from_cut", "to_cut", *ArchivingOperator.template_fields)

    def __init__(
        self,
        *,
        from_cut: str | Mapping[str, int] | None = None,
        to_cut: str | Mapping[str, int] | None = None,
        **archiving: Any,
    ) -> None:
        super().__init__(**archiving)
        self.from_cut = from_cut
        self.to_cut = to_cut

    def command(self) -> list[str]:
        """See the base class."""
        return [*self.archiving("export"), *options({"--from": self.from_cut, "--to": self.to_cut})]
