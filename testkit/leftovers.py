"""What killed runs leave: made for tests of sweeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamvault import copy_stream, import_stream, replicate_stream, request_restore
from streamvault.common.errors import Failed
from streamvault.importer import run as importing
from streamvault.manager.ephemeral import EphemeralTag, _make
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.own import CONSUMER_LEASE, TARGET_LEASE, stream_beside
from streamvault.streamstore.uri import open_stream
from testkit.small_archives import NAME, Vault

TARGET, QUEUE, STAGING = (replace(NAME, stream=name) for name in ("target", "queue", "staging"))
OWNER = "0123456789abcdef"


def killed_ephemeral(vault: Vault, name: StreamName = STAGING) -> StreamDescription:
    """An ephemeral stream whose owner was killed."""
    with open_stream(vault.uri(name)) as stream:
        lease, described = _make(stream, EphemeralTag(OWNER, 12.0), 1)
        lease.release(remove=False)
    return described


def killed_import(vault: Vault, name: StreamName = TARGET, **options: Any) -> None:
    """The target of an import that was stopped after its first task."""
    stopped_import(lambda: import_stream(vault.archive, vault.uri(name), master="inline[1]", **options))


def killed_copy(vault: Vault, name: StreamName = TARGET, **options: Any) -> None:
    """The target of a copy that was stopped after its first task."""
    stopped_import(lambda: copy_stream(vault.uri(), vault.uri(name), master="inline[1]", **options))


def replica(vault: Vault, name: StreamName = TARGET) -> None:
    replicate_stream(vault.uri(), vault.uri(name), master="inline[1]")


def queue(vault: Vault) -> None:
    request_restore(vault.archive, vault.uri(replace(NAME, stream="back")), queue=vault.uri(QUEUE))


def dead_lease(vault: Vault, beside: StreamName, *, prefix: str = TARGET_LEASE, about: str | None = None) -> StreamName:
    """The lease of a dead process beside a stream; with `about`, it was finishing that."""
    name = stream_beside(beside, prefix)
    with vault.store as store:
        lease = Lease.take(store, name, "work", held=LeaseHeld("held"))
        if about is not None:
            lease.finishing(about)
        lease.release(remove=False)
    return name


def dead_worker(vault: Vault) -> StreamName:
    return dead_lease(vault, QUEUE, prefix=CONSUMER_LEASE)


def stopped_import(run: Callable[[], object]) -> None:
    """Run an import that stops once it has filled a segment."""

    def fill(task: Any) -> Any:
        really(task)
        raise Failed("stopped for a test")

    really = importing.fill_segment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "fill_segment", fill)
        with pytest.raises(Failed, match="stopped for a test"):
            run()
