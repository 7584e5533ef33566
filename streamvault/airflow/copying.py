"""The archive that a copy goes through: a place of its own for each run, and its removal."""

from __future__ import annotations

import hashlib

from airflow.sdk.exceptions import AirflowFailException

from objectstore.bulk import delete_all
from objectstore.uri import RootAddress
from streamvault.airflow.aws import aws_environment
from streamvault.airflow.environment import environment

__all__ = ["copy_root", "remove_copy"]

_OURS = "copy-"


def copy_root(via: str, dag_id: str, run_id: str) -> str:
    """A root below `via` that no other run uses, the same whenever this run asks."""
    # a run's id may be any text, and two that differ in punctuation alone are different runs
    name = hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()[:32]
    return f"{RootAddress.parse(via).uri}/{_OURS}{name}"


def remove_copy(root: str, aws_conn_id: str | None) -> int:
    """Remove everything below such a root, manifests first; how many objects. What is gone already is fine.

    Raises:
        AirflowFailException: it is no root of a copy. Problem: it cannot be removed.
    """
    address = RootAddress.parse(root)
    if not root.rpartition("/")[2].startswith(_OURS):
        raise AirflowFailException(f"not a copy's root, nothing is removed: {root}")
    variables = aws_environment(aws_conn_id) if address.name == "s3" and aws_conn_id else {}
    removed = 0
    with environment(variables):
        store = address.open()
        # a reader takes an archive without its manifests for none
        for manifests in (True, False):
            keys = (entry.key for entry in store.list("") if not manifests or "/_manifest/" in entry.key)
            removed += delete_all(store, keys)
    return removed
