"""The demo: the whole way there and back on this machine alone, with what it proved."""

from __future__ import annotations

from streamvault.demo.report import DemoReport, Proof
from streamvault.demo.tour import run_demo

__all__ = ["DemoReport", "Proof", "run_demo"]
