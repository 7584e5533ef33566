"""The JSON schema of manifests, from their model."""

from __future__ import annotations

import json
from pathlib import Path

from streamvault.manifests import manifest

SCHEMA_FILE = Path(manifest.__file__).with_name("schema.json")


def files() -> dict[Path, str]:
    """Return the content of the generated file."""
    schema = manifest.Manifest.model_json_schema(by_alias=True, mode="serialization")
    schema["properties"]["sha256"] = {
        "description": "SHA-256 of the file with zeros for these digits",
        "pattern": "^[0-9a-f]{64}$",
        "type": "string",
    }
    schema["required"].append("sha256")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return {SCHEMA_FILE: json.dumps(schema, indent=2, ensure_ascii=False) + "\n"}
