"""Interruptible calls to Spark, with timeouts.

Interrupting PySpark during a call to Java leaves the connection out of sync. So each call runs in its own thread and
the caller only waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["call_in_thread"]

T = TypeVar("T")


def call_in_thread(call: Callable[[], T], seconds: float) -> T:
    """Make a call in another thread and wait for it.

    Raises:
        TimeoutError: no result within ``seconds``; the call continues and its result is discarded.
        BaseException: any exception raised by the call.
    """
    results: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(([call()], None))
        except BaseException as error:  # noqa: BLE001  (it is raised again where it is waited for)
            results.put(([], error))

    threading.Thread(target=work, name="spark call", daemon=True).start()
    try:
        value, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return value[0]
