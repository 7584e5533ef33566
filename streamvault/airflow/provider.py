"""Provider metadata for Airflow: what the package adds, and the form of its connection type."""

from __future__ import annotations

from typing import Any

PRAVEGA, STREAMVAULT = "Pravega", "Streamvault"
_TEXT = ["string", "null"]
_FLAG = ["boolean", "null"]


def get_provider_info() -> dict[str, Any]:
    """Return the metadata for the entry point ``apache_airflow_provider`` (https://airflow.apache.org/docs/apache-airflow-providers/howto/create-custom-providers.html)."""
    return {
        "package-name": "streamvault",
        "name": "Streamvault",
        "description": "Archives Pravega streams to S3 and restores them.",
        "integrations": [
            {"integration-name": PRAVEGA, "external-doc-url": "https://cncf.pravega.io/", "tags": ["software"]},
            {"integration-name": STREAMVAULT, "tags": ["software"]},
        ],
        "operators": [_modules(STREAMVAULT, "operators")],
        "sensors": [_modules(STREAMVAULT, "sensors")],
        "hooks": [_modules(PRAVEGA, "pravega")],
        "triggers": [_modules(STREAMVAULT, "triggers")],
        "extra-links": ["streamvault.airflow.links.ArchivePageLink", "streamvault.airflow.links.SparkLink"],
        "asset-uris": [
            {
                "schemes": ["pravega", "pravega+tls", "local"],
                "handler": "streamvault.airflow.outcome.sanitize_uri",
                "factory": "streamvault.airflow.outcome.create_asset",
                "to_openlineage_converter": "streamvault.airflow.outcome.convert_asset_to_openlineage",
            }
        ],
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


def _modules(integration: str, *names: str) -> dict[str, Any]:
    return {"integration-name": integration, "python-modules": [f"streamvault.airflow.{name}" for name in names]}
