"""The table of rules that `bin/prove --mutants` takes out fits the code and the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.prove.mutants import Mutant
from testkit.prove.rules import RULES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", RULES, ids=lambda mutant: mutant.name)
def test_rule_has_one_place_and_a_test_that_exists(mutant: Mutant) -> None:
    if not mutant.same:
        assert (ROOT / "streamvault" / mutant.file).read_text().count(mutant.old) == 1
        assert mutant.tests or mutant.families
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
        assert (ROOT / file).exists()


def test_names_of_rules_differ() -> None:
    assert len({mutant.name for mutant in RULES}) == len(RULES)
