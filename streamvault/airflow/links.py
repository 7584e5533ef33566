"""Links of a task to what it made or uses: its archive's page, and Spark's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink

from streamvault.airflow.aws import is_on_s3, s3_client
from streamvault.common.processes import environment
from streamvault.inspect.write import write_report
from streamvault.objectstore.uri import RootAddress


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


def write_page(place: str, file: str, variables: Mapping[str, str | None], aws_conn_id: str | None) -> None:
    """Draw an archive, or those below a root, and replace a file.

    Args:
        place: ``ROOT/SCOPE/STREAM``, or a root.
        file: a file on the worker, or ``s3://BUCKET/KEY``.
        variables: what the process needs to read the archive.
        aws_conn_id: id of the connection of type ``aws`` for a file on S3.

    Raises:
        Problem: the page cannot be drawn, or the file cannot be written.
        BotoCoreError, ClientError: S3 does not take the page.
    """
    with TemporaryDirectory(prefix="streamvault-page-") as folder:
        to_s3 = is_on_s3(file)
        local = Path(folder, "page.html") if to_s3 else Path(file.removeprefix("file://"))
        with environment(variables):
            write_report(place, output=local)
        if to_s3:
            address = RootAddress.parse(file)
            s3_client(aws_conn_id).upload_file(
                str(local), address.place, address.prefix, ExtraArgs={"ContentType": "text/html; charset=utf-8"}
            )
