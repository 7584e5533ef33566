"""Calls a function for many values, several at once: most of the time goes by waiting for servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 8
"""How many things are asked for at once."""

S = TypeVar("S")
R = TypeVar("R")


def each_of(function: Callable[[S], R], specs: Iterable[S]) -> Generator[R, None, None]:
    """Call a function for each value, `AT_ONCE` of them at the same time; yield the results in order."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="each") as pool:
        begun: deque[Future[R]] = deque()
        try:
            for spec in specs:
                begun.append(pool.submit(function, spec))
                if len(begun) == 2 * AT_ONCE:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for one in begun:
                one.cancel()
