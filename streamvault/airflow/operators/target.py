"""Base classes of the operators that write a stream of another cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from streamvault.airflow.operators.command import CommandOperator, options
from streamvault.airflow.pravega import PravegaHook, own_target_login


class TargetOperator(CommandOperator):
    """Writes a stream whose cluster may have a connection of its own.

    Args:
        stream: the target: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI. This and all arguments below are
            templated.
        target_conn_id: id of the target's connection of type ``pravega``; None: `pravega_conn_id`, which is the
            source's.
        others: see `CommandOperator`.
    """

    template_fields: Sequence[str] = ("stream", "target_conn_id", *CommandOperator.template_fields)
    written = "stream"

    def __init__(self, *, stream: str, target_conn_id: str | None = None, **others: Any) -> None:
        super().__init__(**others)
        self.stream = stream
        self.target_conn_id = target_conn_id

    def target_uri(self) -> str:
        """Return the target's URI; resolve a name with its connection."""
        return self.stream if "://" in self.stream else self._target().stream_uri(self.stream)

    def variables(self) -> dict[str, str | None]:
        """See the base class."""
        variables = super().variables()
        if "://" in self.stream:
            given = {name: str(value) for name, value in (self.env_vars or {}).items()}
            return variables | own_target_login({**os.environ, **given})
        return variables | self._target().environment(target=True)

    def _target(self) -> PravegaHook:
        return PravegaHook(self.target_conn_id or self.pravega_conn_id)


class MirrorOperator(TargetOperator):
    """Reads a stream and writes another one.

    Args:
        source: ``SCOPE/STREAM`` or ``STREAM`` of `pravega_conn_id`, or a URI. This and all arguments below are
            templated.
        offsets: ``keep`` or ``shift``; None for the command's default, as for all arguments below.
        filler_limit: a size as on the command line, such as ``1GiB``.
        numbers: ``keep`` or ``map``: whether segments may get other numbers than the source's.
        window: a size, as `filler_limit`.
        others: see `TargetOperator`.
    """

    template_fields: Sequence[str] = (
        *("source", "offsets", "filler_limit", "numbers", "window"),
        *TargetOperator.template_fields,
    )

    def __init__(
        self,
        *,
        source: str,
        offsets: str | None = None,
        filler_limit: str | None = None,
        numbers: str | None = None,
        window: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.source = source
        self.offsets = offsets
        self.filler_limit = filler_limit
        self.numbers = numbers
        self.window = window

    def places(self) -> tuple[str, str | None]:
        """See the base class."""
        return self.source, self.source

    def mirroring(self, verb: str) -> list[str]:
        """Return the command with the arguments common to these operators.

        Args:
            verb: the command's name.
        """
        return [
            verb,
            self.stream_uri(self.source),
            self.target_uri(),
            *options(
                {
                    "--offsets": self.offsets,
                    "--filler-limit": self.filler_limit,
                    "--numbers": self.numbers,
                    "--window": self.window,
                }
            ),
        ]
