"""The end of a process, within one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest


class Killed(BaseException):
    """Ends a run without any cleanup, as kill -9 ends a process; the product must not catch it and continue."""


def killed(*_: object, **__: object) -> NoReturn:
    """Take the place of any function, and end the process."""
    raise Killed


@contextmanager
def stopped_at(owner: object, name: str, error: BaseException | type[BaseException] = Killed) -> Iterator[None]:
    """End what runs by an error when it calls a function."""

    def stop(*_: object, **__: object) -> NoReturn:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, stop)
        with pytest.raises(error if isinstance(error, type) else type(error)):
            yield


def before_call(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, happens: Callable[[], object], *, after: bool = False
) -> None:
    """Run something once, before the next call of a function, or when it has returned."""
    real = getattr(owner, name)

    def late(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        if not after:
            happens()
        found = real(*given, **options)
        if after:
            happens()
        return found

    monkeypatch.setattr(owner, name, late)
