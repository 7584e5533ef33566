"""A shortage of this machine is no damage: exit code 1, and its name, wherever content is decoded."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from streamvault import write_table
from streamvault.common.errors import Damaged, Failed, ShortOf, content_error, shortage
from streamvault.layouts import chunks, isolated
from streamvault.manifests import index as ranges
from streamvault.runner.runner import task_failed
from streamvault.streamstore.model import StreamName
from testkit.small_archives import Vault, a_vault
from tests.told import Ran

NO_THREAD = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"

SHORTAGES: dict[str, tuple[BaseException, str]] = {
    "memory": (MemoryError(), "memory"),
    "arrow-memory": (pa.ArrowMemoryError("malloc of size 64 failed"), "memory"),
    "thread": (RuntimeError("can't start new thread"), "threads or processes"),
    "arrow-thread": (pa.ArrowException(NO_THREAD), "threads or processes"),
    "fork": (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "threads or processes"),
    "files": (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
    "disk": (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "disk space"),
    "zstd": (zstandard.ZstdError("decompression error: Allocation error : not enough memory"), "memory"),
}
NONE = (
    OSError("its metadata is too large"),
    pa.ArrowInvalid("not enough memory"),
    KeyError("out of memory"),
    ValueError(),
)


@pytest.mark.parametrize("name", SHORTAGES)
def test_each_has_its_name(name: str) -> None:
    error, what = SHORTAGES[name]
    found = shortage(error)
    assert found is not None
    assert (found.exit_code, found.what) == (1, f"this machine is short of {what}")
    assert isinstance(content_error(error, "broken"), ShortOf) if isinstance(error, Exception) else True


@pytest.mark.parametrize("error", NONE, ids=repr)
def test_what_a_value_says_is_no_shortage(error: Exception) -> None:
    assert shortage(error) is None
    assert isinstance(content_error(error, "broken", where="a"), Damaged)


vault = a_vault(events=40, largest=500, exports=[("chunks", "zstd")], on_disk=True)


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def table(vault: Vault) -> list[str]:
    write_table(vault.archive, format="parquet", master="inline[1]")
    return ["import", vault.archive, vault.uri(StreamName("scope", "b")), "--layout", "table", "--master", "inline"]


class Child:
    """The process that decodes tables' files, which ends instead."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, _: Any, **options: Any) -> Any:
        return isolated_popen([sys.executable, "-c", self._program], **options)


isolated_popen = isolated.subprocess.Popen
SAYS = "import sys; sys.stderr.write({!r}); sys.exit(1)"
KILLED = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"


def index(vault: Vault, error: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(ranges.pq, "ParquetFile", raising(error))
    return ["check", vault.archive]


def frame(vault: Vault, error: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(chunks, "_decompressed_frame", raising(error))
    return ["check", vault.archive, "--read-data", "--master", "inline"]


def started(vault: Vault, error: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    command = table(vault)
    isolated._end_all()
    patch.setattr(isolated.subprocess, "Popen", raising(error))
    return command


def said(vault: Vault, error: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    command = table(vault)
    isolated._end_all()
    patch.setattr(isolated.subprocess, "Popen", Child(SAYS.format(f"{type(error).__name__}: {error}")))
    return command


def killed(vault: Vault, _: BaseException, patch: pytest.MonkeyPatch) -> list[str]:
    command = table(vault)
    isolated._end_all()
    patch.setattr(isolated.subprocess, "Popen", Child(KILLED))
    return command


CALLERS = [
    (index, "memory"),
    (index, "arrow-thread"),
    (index, "files"),
    (frame, "zstd"),
    (frame, "memory"),
    (started, "fork"),
    (said, "thread"),
    (said, "arrow-thread"),
    (killed, "memory"),
]


@pytest.mark.parametrize(("caller", "name"), CALLERS, ids=lambda one: getattr(one, "__name__", one))
def test_it_is_exit_1_with_its_name(
    caller: Callable[..., list[str]],
    name: str,
    vault: Vault,
    monkeypatch: pytest.MonkeyPatch,
    ran: Ran,
) -> None:
    error, what = SHORTAGES[name]
    command = caller(vault, error, monkeypatch)
    line = ran(*command, "-q", code=1).err
    assert f"short of {what}" in line
    assert "internal error" not in line
    assert "amage" not in line


def test_decoder_tells_a_shortage_from_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends what it has met, as a message of its own kind."""
    sent = iter([(isolated.SHORT, b"ArrowException out of memory"), (isolated.ERROR, b"no footer")])
    monkeypatch.setattr(isolated, "receive", lambda _: next(sent))
    monkeypatch.setattr(isolated, "_give_back", isolated._end)
    with pytest.raises(ShortOf):
        list(isolated.decoded(io.BytesIO(b""), {"stored": None}))  # type: ignore[arg-type]
    with pytest.raises(isolated.NotDecodable):
        list(isolated.decoded(io.BytesIO(b""), {"stored": None}))  # type: ignore[arg-type]


def test_failed_task_says_what_is_short() -> None:
    found: Failed = task_failed(RuntimeError("can't start new thread"))
    assert "short of threads" in str(found)
