"""What tasks import, whichever verb they work for."""

from __future__ import annotations

__all__ = ["TABLE_MODULES", "TASK_MODULES"]

TASK_MODULES = (
    "rotation.compact.task",
    "exporter.task",
    "importer.fill",
    "importer.verify",
    "objectstore.folder.store",
    "objectstore.obstore_store",
    "objectstore.s3.bucket",
    "streamstore.local",
    "streamstore.pravega.store",
)
"""Modules of tasks and of the stores they open; none starts a thread when it is imported."""

TABLE_MODULES = (*TASK_MODULES, "exporter.ranges", "lake.task", "lake.json_payloads")
"""As well as what writes tables: Arrow takes half a second to import, so tasks of other verbs do without."""
