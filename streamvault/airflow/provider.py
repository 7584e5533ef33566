"""Provider metadata for Airflow: the connection type and its form."""

from __future__ import annotations

from typing import Any

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
                        "description": "Scope of streams that are given without one.",
                        "schema": {"type": _TEXT},
                    },
                    "tls": {"label": "TLS", "schema": {"type": _FLAG, "default": False}},
                    "ca_file": {
                        "label": "CA file",
                        "description": "PEM file with the CA certificates, on the workers.",
                        "schema": {"type": _TEXT},
                    },
                    "verify_hostname": {
                        "label": "Verify host names",
                        "description": "Whether the server's certificate must match its host name.",
                        "schema": {"type": _FLAG, "default": True},
                    },
                },
            }
        ],
    }
