"""A small part of `bin/prove`: injuries are detected, hostile archives do no harm, a writer's events are counted."""

from __future__ import annotations

import pytest

from streamvault.cli.app import COMMANDS
from testkit.prove.__main__ import Row, rows_of_page
from testkit.prove.hostile import attack
from testkit.prove.hostile_runs import ATTACKS, attack_commands, tried
from testkit.prove.injuries import INJURIES, injure
from testkit.prove.replicas import is_whole
from testkit.prove.servers import Wrong


def test_injuries_are_noticed_or_harmless() -> None:
    found = injure(300, 1)
    assert {*found.kinds} == {*INJURIES}
    assert (found.missed, found.broken) == ([], [])


def test_hostile_archives_are_refused_or_harmless() -> None:
    found = attack(150, 1)
    assert (found.broken, found.outside) == ([], [])
    assert found.refused["manifest"] > found.kinds["manifest"] // 2
    assert found.refused["index"] > found.kinds["index"] // 2


def test_commands_refuse_hostile_input_or_take_no_harm() -> None:
    found = attack_commands(10, 1)
    assert found.broken == []
    assert {*found.kinds} == {*ATTACKS}


def test_every_command_that_reads_what_others_wrote_is_attacked() -> None:
    assert {*COMMANDS} - tried() == {"demo"}


def test_whole_keys_may_lack_what_was_truncated() -> None:
    is_whole({"a": [0, 1, 2], "b": [5, 6]}, {"a": 3, "b": 7, "c": 0}, since={"a": 0, "b": 5, "c": 0}, where="target")
    is_whole({"a": [3, 4]}, {"a": 9, "b": 2}, since=None, where="replica", may_end=True)


@pytest.mark.parametrize(
    ("found", "how"),
    [
        ([2, 3], "lost"),  # the source has an older one
        ([1, 3], "lost"),
        ([1, 2], "lost"),
        ([], "lost"),
        ([1, 2, 2, 3], "doubled"),
        ([1, 2, 3, 2, 3], "doubled"),
        ([1, 2, 3, 4], "doubled"),
    ],
)
def test_keys_that_are_not_whole_are_noticed(found: list[int], how: str) -> None:
    with pytest.raises(Wrong) as raised:
        is_whole({"a": found}, {"a": 4}, since={"a": 1}, where="target")
    assert raised.value.how == how


def test_table_of_the_page_has_a_row_for_each_sort() -> None:
    rows: list[Row] = [
        ("kind", "how many", "survived", "lost", "doubled", "otherwise wrong", "seed", "seconds"),
        ("disk full: export", "10", "9", "0", "1", "0", "11", "5"),
        ("disk full: import", "1000", "999", "1", "0", "0", "11", "5"),
        ("rotate stopped, wakes late", "9", "9", "0", "0", "0", "11", "5"),
        ("compact stopped, wakes late", "9", "9", "0", "0", "0", "11", "5"),
        ("schedules", "7", "7", "0", "0", "0", "1", "5"),
    ]
    assert rows_of_page(rows)[1:] == [
        ("disk full: export, import", "1,010", "2", "11"),
        ("rotate, compact stopped, wakes late", "18", "0", "11"),
        ("schedules", "7", "0", "1"),
    ]
