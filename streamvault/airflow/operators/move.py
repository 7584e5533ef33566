"""Moves a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import options
from streamvault.airflow.operators.target import MirrorOperator


class MoveStreamOperator(MirrorOperator):
    """``streamvault move``: gives a stream another name or cluster, and deletes the old one once all was compared.

    Args:
        no_tombstone: whether to leave no empty sealed stream under the old name; this and `retention` are templated.
        retention: ``off`` to give the new stream no retention policy; None for the command's default.
        mirror: arguments of `MirrorOperator`.
    """

    template_fields: Sequence[str] = ("no_tombstone", "retention", *MirrorOperator.template_fields)

    def __init__(self, *, no_tombstone: bool | str = False, retention: str | None = None, **mirror: Any) -> None:
        super().__init__(**mirror)
        self.no_tombstone = no_tombstone
        self.retention = retention

    def command(self) -> list[str]:
        """See the base class."""
        chosen = options({"--no-tombstone": flag("no_tombstone", self.no_tombstone), "--retention": self.retention})
        return [*self.mirroring("move"), *chosen]
