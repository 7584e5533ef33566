"""The page of a task's archive, as *report* draws it: made when the task ends, for the link to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from streamvault.airflow.aws import is_on_s3, s3_client
from streamvault.airflow.environment import environment
from streamvault.objectstore.uri import RootAddress
from streamvault.report.write import write_report


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
