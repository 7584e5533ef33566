"""Imports that stop, or are killed, at a place: what the tests of imports share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.importer import run
from streamvault.importer.target import Target
from streamvault.streamstore import lease
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.model import StreamName
from testkit.killed import Killed
from testkit.small_archives import NAME, Vault

BACK = replace(NAME, stream="back")


def restore(vault: Vault, *options: str, to: StreamName = BACK) -> int:
    """Run the command; return its exit code. It prints its report as JSON."""
    return main(["import", vault.archive, vault.uri(to), "--master", "inline[2]", "--json", *options])


@contextmanager
def stopped_after(segments: int) -> Iterator[None]:
    """Let an import fail when it has filled so many segments."""
    real, calls = run.fill_segment, []

    def fill(task: Any) -> Any:
        calls.append(task)
        if len(calls) > segments:
            raise Failed("stopped for a test")
        return real(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "fill_segment", fill)
        yield


@contextmanager
def killed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill an import when its tag is gone, and only the lease shows which import the target belongs to."""
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.01)
    real = Target.finish

    def finish(self: Target) -> None:
        real(self)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Target, "finish", finish)
        patch.setattr(lease, "BEAT_SECONDS", 3600.0)
        patch.setattr(Lease, "release", lambda self, **_: self._appender.close())
        with pytest.raises(Killed):
            yield
