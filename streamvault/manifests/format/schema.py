"""The manifest's JSON schema; ``python -m streamvault.manifests.format.schema`` writes it from the model."""

from __future__ import annotations

import json
from pathlib import Path

from streamvault.manifests.format.manifest import Manifest

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def schema_text() -> str:
    """Return the content of the committed schema file."""
    schema = Manifest.model_json_schema(by_alias=True, mode="serialization")
    schema["properties"]["sha256"] = {
        "description": "SHA-256 of the file with zeros for these digits",
        "pattern": "^[0-9a-f]{64}$",
        "type": "string",
    }
    schema["required"].append("sha256")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text())
