"""Copies a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import options
from streamvault.airflow.operators.target import MirrorOperator


class CopyStreamOperator(MirrorOperator):
    """``streamvault copy``: copies a stream, or a part of it, into a new stream.

    Args:
        from_cut: copy only events after this cut: JSON text, the name of a file on the worker, or a mapping. This and
            all arguments below are templated.
        to_cut: copy only events before this cut, likewise.
        read_back: whether to also read back and compare the bytes that this run appended.
        mirror: arguments of `MirrorOperator`.
    """

    template_fields: Sequence[str] = ("from_cut", "to_cut", "read_back", *MirrorOperator.template_fields)

    def __init__(
        self,
        *,
        from_cut: str | Mapping[str, int] | None = None,
        to_cut: str | Mapping[str, int] | None = None,
        read_back: bool | str = False,
        **mirror: Any,
    ) -> None:
        super().__init__(**mirror)
        self.from_cut = from_cut
        self.to_cut = to_cut
        self.read_back = read_back

    def command(self) -> list[str]:
        """See the base class."""
        part = options({"--from": self.from_cut, "--to": self.to_cut, "--read-back": flag("read_back", self.read_back)})
        return [*self.mirroring("copy"), *part]
