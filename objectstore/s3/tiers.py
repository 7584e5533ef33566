"""Retrieval tiers of S3's archive classes."""

from __future__ import annotations

from typing import Literal

__all__ = ["Tier"]

Tier = Literal["Bulk", "Standard", "Expedited"]
