"""One mutant for each row of *Order of writes* and each rule of the design; see `mutants`. They are in `rules.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from testkit.prove.mutants import Mutant

RULES = tuple(
    Mutant(**{field: tuple(value) if isinstance(value, list) else value for field, value in row.items()})
    for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutant"]
)
