"""Ends an interrupted command that would go on waiting for a server.

Ctrl-C raises `KeyboardInterrupt` in the main thread, but not before that leaves the native code of a client library;
and who winds up may wait for threads, or for another answer. A server that is alive answers in the meantime.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from streamvault.common.underway import unanswered_seconds

GRACE_SECONDS = 0.7
"""How long an interrupted command may wait for an answer."""

LOOK_SECONDS = 0.1

_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def ending_in_time(give_up: Callable[[], int]) -> Iterator[None]:
    """End the process if the block is interrupted, by SIGINT or SIGTERM, and then waits for servers that do not answer.

    What that leaves is as after a kill.

    Args:
        give_up: called from another thread before the process ends; returns its exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=_watch, args=(heard, give_up), name="interrupts", daemon=True)
        try:
            thread.start()
            yield
        finally:
            signal.set_wakeup_fd(before)
            told.shutdown(socket.SHUT_RDWR)  # also if a child has it, too
            with suppress(RuntimeError):  # the interrupt came before the thread had started
                thread.join()


def _watch(heard: socket.socket, give_up: Callable[[], int]) -> None:
    try:
        while not {signal.SIGINT, signal.SIGTERM} & set(numbers := heard.recv(64)):
            if not numbers:
                return
    except OSError:  # closed: the block ended before this thread had started
        return
    interrupted = time.monotonic()
    heard.settimeout(LOOK_SECONDS)
    while unanswered_seconds(interrupted) < GRACE_SECONDS:
        try:
            if not heard.recv(64):
                return
        except TimeoutError:
            pass
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)
    os._exit(give_up())
