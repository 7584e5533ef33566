"""The demo: archive, restore and query a stream on this machine alone, and verify the results."""

from __future__ import annotations

from streamvault.demo.report import DemoReport, Proof
from streamvault.demo.tour import run_demo

__all__ = ["DemoReport", "Proof", "run_demo"]
