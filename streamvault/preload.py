"""What tasks import, whichever verb they work for."""

from __future__ import annotations

__all__ = ["TASK_MODULES"]

TASK_MODULES = (
    "exporter.compact",
    "exporter.task",
    "importer.fill",
    "importer.verify",
    "objectstore.folder",
    "objectstore.obstore_store",
    "objectstore.s3",
    "streamstore.local",
    "streamstore.pravega.store",
)
"""Modules of tasks and of the stores they open; none starts a thread when it is imported."""
