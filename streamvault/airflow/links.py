"""Links of a task to what it made or uses: its archive's page, and Spark's own pages."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink


class _TaskLink(BaseOperatorLink):
    """A link that the task knows; Airflow asks for it when the task ends."""

    name: ClassVar[str]
    attribute: ClassVar[str]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002
        """Return the URL; empty if there is none."""
        return str(getattr(operator, self.attribute, None) or "")


class ArchivePageLink(_TaskLink):
    """The page that `streamvault report` draws of the task's archive: the operator's argument ``report_url``."""

    name = "Archive report"
    attribute = "report_url"


class SparkLink(_TaskLink):
    """Spark's pages, while the driver runs; after that, its page of Spark's history server if there is one."""

    name = "Spark UI"
    attribute = "spark_url"
