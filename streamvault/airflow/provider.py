"""Provider metadata for Airflow: the connection type and its form."""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]

_TEXT = ["string", "null"]
_FLAG = ["boolean", "null"]


def get_provider_info() -> dict[str, Any]:
    """Return the metadata for the entry point ``apache_airflow_provider`` (https://airflow.apache.org/docs/apache-airflow-providers/howto/create-custom-providers.html)."""
    return {
        "package-name": "streamvault",
        "name": "Streamvault",
        "description": "Archives Pravega streams to S3 and restores them.",
        "connection-types": [
            {
                "connection-type": "pravega",
                "hook-name": "Pravega",
                "hook-class-name": "streamvault.airflow.pravega.PravegaHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "extra"],
                    "relabeling": {"host": "Controller", "login": "User"},
                    "placeholders": {"host": "controller.example.com", "port": "9090"},
                },
                "conn-fields": {
                    "scope": {
                        "label": "Scope",
                        "description": "The scope of streams that are named without one.",
                        "schema": {"type": _TEXT},
                    },
                    "tls": {"label": "TLS", "schema": {"type": _FLAG, "default": False}},
                    "ca_file": {
                        "label": "CA file",
                        "description": "On the workers: PEM file of the authorities that sign its certificates.",
                        "schema": {"type": _TEXT},
                    },
                    "verify_hostname": {
                        "label": "Verify host names",
                        "description": "Whether a certificate has to name the host that was called.",
                        "schema": {"type": _FLAG, "default": True},
                    },
                },
            }
        ],
    }
