"""What an actor of a schedule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testkit.explorer.scenes import Scene
from testkit.explorer.world import World


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        run: does it. outside: whether it is no command of the product's, but something that happens beside it.
        keep: how many generations its expiry leaves; 0 if it lets none expire.
        keep_for: how old a generation is, by the store's clock, that its expiry deletes (seconds); 0: any age.
        again: what a user runs after a kill; None: the same.
    """

    run: Callable[[Scene, World], object]
    outside: bool = False
    keep: int = 0
    keep_for: float = 0.0
    again: Callable[[Scene, World], object] | None = None
