"""Calls to Spark, made so that the caller can be interrupted and need not wait for ever.

Spark's Python code does not mind its caller being interrupted in the middle of a call to Java: afterwards the
connection is out of step. So such calls are made by threads of their own; the caller only waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["aside"]

T = TypeVar("T")


def aside(call: Callable[[], T], seconds: float) -> T:
    """Make a call in another thread and wait for it.

    Raises:
        TimeoutError: it has not returned within ``seconds``; it goes on, and what it returns is dropped.
        BaseException: what the call raised.
    """
    said: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            said.put(([call()], None))
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            said.put(([], error))

    threading.Thread(target=work, name="spark call", daemon=True).start()
    try:
        value, error = said.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return value[0]
