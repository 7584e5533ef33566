"""Promotes a replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import options
from streamvault.airflow.operators.target import TargetOperator


class PromoteReplicaOperator(TargetOperator):
    """``streamvault promote``: makes a replica a stream like any other.

    The source's connection, `pravega_conn_id`, is used only with `seal_source`, for the source that the replica names.

    Args:
        seal_source: whether to seal the source first, and replicate what was written to it until then. This and all
            arguments below are templated.
        retention: ``off`` to promote it without the source's retention policy; None for the command's default.
        window: a size as on the command line, such as ``64MiB``; None for the command's default.
        target: arguments of `TargetOperator`; its `stream` is the replica.
    """

    template_fields: Sequence[str] = ("seal_source", "retention", "window", *TargetOperator.template_fields)

    def __init__(
        self,
        *,
        seal_source: bool | str = False,
        retention: str | None = None,
        window: str | None = None,
        **target: Any,
    ) -> None:
        super().__init__(**target)
        self.seal_source = seal_source
        self.retention = retention
        self.window = window

    def places(self) -> tuple[str, str | None]:
        """See the base class."""
        return "", self.stream if flag("seal_source", self.seal_source) else None

    def command(self) -> list[str]:
        """See the base class."""
        chosen = options(
            {
                "--seal-source": flag("seal_source", self.seal_source),
                "--retention": self.retention,
                "--window": self.window,
            }
        )
        return ["promote", self.target_uri(), *chosen]
