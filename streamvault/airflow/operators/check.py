"""Proves that an archive is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.airflow.operators.command import CommandOperator, fingerprints, flag, options

__all__ = ["CheckArchiveOperator"]

CHECK_FIELDS = ("archive", "read_data", "subset", "seed", "generation", "repair", "fingerprint")


class CheckArchiveOperator(CommandOperator):
    """``streamvault check``: fails, with the damaged ranges, if the archive is not whole.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. (templated, as all of these)
        read_data: read all data and compare its digests.
        subset: read a share of it, ``10%``.
        seed: chooses the same ranges as the check that printed it.
        generation: check only the ranges of this generation, and do not look for strays; None for all.
        repair: delete objects that belong to no event, if nothing is damaged.
        fingerprint: of a generation, as its export printed it, or several in a list: another archive is refused.
        others: see `CommandOperator`.
    """

    template_fields: Sequence[str] = (*CHECK_FIELDS, *CommandOperator.template_fields)

    def __init__(
        self,
        *,
        archive: str,
        read_data: bool | str = False,
        subset: str | None = None,
        seed: int | str | None = None,
        generation: int | str | None = None,
        repair: bool | str = False,
        fingerprint: str | Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.archive = archive
        self.read_data = read_data
        self.subset = subset
        self.seed = seed
        self.generation = generation
        self.repair = repair
        self.fingerprint = fingerprint

    def places(self) -> tuple[str, str | None]:
        """See the base class."""
        return self.archive, None

    def command(self) -> list[str]:
        """See the base class."""
        chosen = options(
            {
                "--read-data": flag(self.read_data),
                "--read-data-subset": self.subset,
                "--seed": self.seed,
                "--generation": self.generation,
                "--repair": flag(self.repair),
            }
        )
        return ["check", self.archive, *chosen, *fingerprints(self.fingerprint)]
