"""What append and join say they did, or would do."""

from __future__ import annotations

import pytest

from streamvault.cli import join
from streamvault.cli import join as append
from streamvault.cli.output import Results
from streamvault.concat.reports import StitchReport

HERE, INTO = "local:///streams/shop/orders", "local:///streams/shop/all"


@pytest.mark.parametrize(
    ("resumed", "dry_run", "appended", "joined"),
    [
        (False, False, f"appended {HERE} to {INTO}", f"joined {HERE} into {INTO}"),
        (False, True, f"would append {HERE} to {INTO}", f"would join {HERE} into {INTO}"),
        (True, True, f"would finish appending {HERE} to {INTO}", f"would finish joining {HERE} into {INTO}"),
        (
            *(True, False),
            f"appended {HERE} to {INTO} (resumed an unfinished run)",
            f"joined {HERE} into {INTO} (resumed an unfinished run)",
        ),
    ],
)
def test_what_was_done_is_said(
    capfd: pytest.CaptureFixture[str], resumed: bool, dry_run: bool, appended: str, joined: str
) -> None:
    report = StitchReport(sources=(HERE,), stream=INTO, resumed=resumed, dry_run=dry_run)
    with Results() as results:
        append._show(results, report)
        join._show_join(results, report)
    assert [line for line in capfd.readouterr().out.splitlines() if HERE in line] == [appended, joined]


def test_nothing_to_do_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    report = StitchReport(sources=(HERE,), stream=INTO, unchanged=True)
    with Results() as results:
        append._show(results, report)
        join._show_join(results, report)
    assert capfd.readouterr().out.splitlines() == [
        f"nothing new to append to {INTO} since the last time",
        f"already joined: {INTO} has {HERE}",
    ]
