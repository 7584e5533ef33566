"""Verifies an archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import CommandOperator, fingerprints, options

CHECK_FIELDS = ("archive", "read_data", "subset", "seed", "generation", "repair", "fingerprint")


class CheckArchiveOperator(CommandOperator):
    """``streamvault check``: fails and lists the damaged ranges if the archive is not complete and intact.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. This and all arguments below are templated.
        read_data: read all data and compare its digests.
        subset: read only a share of the data, such as ``10%``.
        seed: select the same ranges as the check that printed this seed.
        generation: check only the ranges of this generation, and do not look for stray objects; None for all.
        repair: delete objects that belong to no event, if nothing is damaged.
        fingerprint: fingerprint of a generation, as its export printed it, or a list; other archives are rejected.
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
                "--read-data": flag("read_data", self.read_data),
                "--read-data-subset": self.subset,
                "--seed": self.seed,
                "--generation": self.generation,
                "--repair": flag("repair", self.repair),
            }
        )
        return ["check", self.archive, *chosen, *fingerprints(self.fingerprint)]
