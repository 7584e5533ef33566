"""A verb takes its options as keywords, or as they are."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import Field

from streamvault import check_archive
from streamvault.common.errors import Usage
from streamvault.common.options import Options, Rehearsed, Watched, verb
from streamvault.common.progress import Progress
from streamvault.common.report import Report, TimedReport


class SharedOptions(Options):
    size: Annotated[int, Field(ge=1, description="The size.")] = 7


class SendOptions(SharedOptions, Rehearsed, Watched):
    to: Annotated[str, Field(description="Where to.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(TimedReport):
    sent: Any


@verb(SendOptions)
def send(what: str, options: SendOptions, progress: Progress) -> SendReport:
    """Send it."""
    return SendReport(sent=(what, options, progress), seconds=9.0 if options.dry_run else 0.0)


@verb(SharedOptions)
def count(first: str, second: str, options: SharedOptions) -> int:
    return len(first + second) * options.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalReport(Report):
    total_seconds: float = 0.0


@verb(SharedOptions)
def wait(seconds: float, options: SharedOptions) -> TotalReport:
    time.sleep(seconds)
    return TotalReport()


def test_total_time_is_noted_in_every_report_that_has_it() -> None:
    assert wait(0.01).total_seconds >= 0.01


def test_signature_has_the_options_a_verbs_own_first() -> None:
    assert str(inspect.signature(send)).startswith(
        "(what: str, *, to: str, size: int = 7, dry_run: bool = False, progress: "
    )
    assert (send.__name__, send.__doc__, send.__module__) == ("send", "Send it.", __name__)


def test_options_are_given_as_keywords_or_as_they_are() -> None:
    progress, options = Progress(), SendOptions(to="there", size=2)
    assert send("it", to="there", size=2, progress=progress).sent == ("it", options, progress)
    assert send(what="it", to="there", size=2, progress=progress).sent == ("it", options, progress)
    assert send.with_options("it", options, progress).sent == ("it", options, progress)
    assert isinstance(send("it", to="there").sent[2], Progress)
    assert count("ab", second="c", size=3) == 9


def test_invalid_options_are_wrong_usage_and_unknown_names_are_not_python() -> None:
    with pytest.raises(Usage, match=r"^size must be at least 1: 0"):
        send("it", to="there", size=0)
    for wrong in ({}, {"to": "there", "sice": 1}, {"to": "there", "what": "that"}):
        with pytest.raises(TypeError, match=r"^send\(\) "):
            send("it", **wrong)
    with pytest.raises(TypeError, match=r"'sice'\. Did you mean 'size'"):
        send("it", to="there", sice=1)
    with pytest.raises(TypeError, match=r"'read_data_subset'\. Did you mean 'subset'"):
        check_archive("file:///d/b/c", read_data_subset="10%")
    with pytest.raises(TypeError):
        count("ab", "c", progress=Progress())


def test_report_has_the_time_of_the_call() -> None:
    plain, rehearsed = send("it", to="there"), send("it", to="there", dry_run=True)
    assert plain.seconds == plain.total_seconds
    assert (rehearsed.seconds, rehearsed.total_seconds < 9) == (9.0, True)
