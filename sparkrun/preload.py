"""Modules that tasks import, for all verbs."""

from __future__ import annotations

__all__ = ["TABLE_MODULES", "TASK_MODULES"]

TASK_MODULES = (
    "rotation.compact.task",
    "exporter.task",
    "importer.fill",
    "importer.verify",
    "objectstore.folder.scheme",
    "objectstore.s3.scheme",
    "streamstore.local",
    "streamstore.pravega.store",
)
"""Modules of tasks and of the stores they open; none starts a thread when it is imported."""

TABLE_MODULES = (*TASK_MODULES, "exporter.ranges", "lake.task", "lake.json_payloads")
"""Additionally those that write tables: Arrow takes half a second to import, so other verbs omit it."""
