"""Schedules that are not run equal one that is; none is left out; the former release runs beside today's."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from testkit.explorer.exhaust import commute, exhaust
from testkit.explorer.explore import calls_of, run
from testkit.explorer.former import NoFormer, beside_former, load_former
from testkit.servers.availability import is_required


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("get", "vault/a"), ("get", "vault/a"), True),
        (("get", "vault/a"), ("put", "vault/a"), False),
        (("get", "vault/a"), ("put", "vault/b"), True),
        (("list", "vault/a/"), ("put", "vault/a/b"), False),
        (("list", "vault/b/"), ("put", "vault/a/b"), True),
        (("delete", "vault/a\nvault/b"), ("get", "vault/b"), False),
        (("put", "vault/a"), ("put", "vault/a"), False),
        (("put", "scope/stream"), ("seal", "scope/stream"), True),
        (("describe", "c/s/a"), ("append", "c/s/a/0.#epoch.0:96"), False),
        (("append", "c/s/a/1.#epoch.0:96"), ("append", "c/s/a/0.#epoch.0:96"), True),
        (("append", "c/s/a/0.#epoch.0:0"), ("append", "c/s/a/0.#epoch.0:96"), False),
        (("list streams", "c/s"), ("create stream", "c/s/a"), False),
        (("read", "c/s/a/0.#epoch.0:0"), ("describe", "c/s/a"), True),
        (("delete stream", "c/s/a"), ("describe", "c/s/a"), False),
        (("wait", "c/s/a"), ("get", "vault/a"), False),
    ],
)
def test_calls_commute(one: tuple[str, str], other: tuple[str, str], expected: bool) -> None:
    assert commute(one, other) is expected
    assert commute(other, one) is expected


def test_none_is_left_out() -> None:
    pair = exhaust("chunks/grown", ("hold", "export"))
    assert pair.wrong == []
    assert pair.left_out == 0
    assert 0 < pair.run < pair.schedules // 2
    assert pair.schedules >= calls_of("chunks/grown", ("hold",))[0] * calls_of("chunks/grown", ("export",))[0]


def test_former_release_runs_beside_todays() -> None:
    try:
        load_former()
    except NoFormer as error:
        if is_required("former", os.environ) and not error.may_be:
            raise
        pytest.skip(str(error))
    outcomes = [run(schedule) for schedule in islice(beside_former(3), 40)]
    assert [f"{one.schedule}: {one.wrong}" for one in outcomes if one.wrong] == []
