"""The intermediate archive of a copy: a separate root for each run, and its removal."""

from __future__ import annotations

import hashlib

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.aws import aws_environment
from streamvault.airflow.environment import environment
from streamvault.common.errors import Failed
from streamvault.common.modes import make_folders
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.uri import RootAddress

_OURS = "copy-"


def copy_root(via: str, dag_id: str, run_id: str) -> str:
    """Return a root below `via` that is unique to this run; the same on every call. If `via` is a folder, make it.

    Raises:
        Failed: the folder cannot be made.
        Usage: `via` is not a root.
    """
    address = RootAddress.parse(via)
    if address.folder is not None:
        try:
            make_folders(address.folder)
        except OSError as error:
            raise Failed(f"the folder cannot be made ({error.strerror})", where=address.uri) from None
    # a run's id may be any text, and ids that differ only in punctuation are different runs
    name = hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()[:32]
    return f"{address.uri}/{_OURS}{name}"


def remove_copy(root: str, aws_conn_id: str | None) -> int:
    """Delete everything below such a root, manifests first, and return the number of objects. May be repeated.

    Raises:
        AirflowFailException: the root is not that of a copy.
        Problem: an object cannot be deleted.
    """
    address = RootAddress.parse(root)
    if not root.rpartition("/")[2].startswith(_OURS):
        raise AirflowFailException(f"not the root of a copy; nothing was deleted: {root}")
    variables = aws_environment(aws_conn_id) if address.name == "s3" and aws_conn_id else {}
    removed = 0
    with environment(variables):
        store = address.open()
        # without its manifests, the archive does not exist for readers
        for manifests in (True, False):
            keys = (entry.key for entry in store.list("") if not manifests or "/_manifest/" in entry.key)
            removed += delete_all(store, keys)
    return removed
