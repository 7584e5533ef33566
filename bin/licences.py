"""Add to a list of packages (CycloneDX) the licence of each, by its metadata in an environment.

Usage: ``python bin/licences.py ENVIRONMENT SBOM``; the environment has all packages of the list.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any


def licences(package: Distribution) -> list[dict[str, Any]]:
    """Return a package's licences as CycloneDX has them: an SPDX expression, or names."""
    metadata = package.metadata
    if (expression := metadata.get("License-Expression")) is not None:
        return [{"expression": expression}]
    names = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", ()) if text.startswith("License ::")]
    names = names or (metadata.get("License") or "").splitlines()[:1]
    return [{"license": {"name": name[:100]}} for name in dict.fromkeys(names) if name != "OSI Approved"]


def main(environment: str, listed: str) -> None:
    """Write the list anew, without packages of other platforms and versions of Python: those that are not installed.

    Raises:
        SystemExit: a package names no licence.
    """
    (folder,) = Path(environment).glob("lib/python3*/site-packages")
    found = {(re.sub("[-_.]+", "-", one.name).lower(), one.version): one for one in distributions(path=[str(folder)])}
    document = json.loads(Path(listed).read_text())
    left_out = set()
    for component in document["components"]:
        if (package := found.get((component["name"], component["version"]))) is None:
            left_out.add(component["bom-ref"])
        else:
            component["licenses"] = licences(package)
    document["components"] = [one for one in document["components"] if one["bom-ref"] not in left_out]
    if without := [one["name"] for one in document["components"] if not one["licenses"]]:
        raise SystemExit(f"no licence is known of {', '.join(without)}")
    document["dependencies"] = [one for one in document["dependencies"] if one["ref"] not in left_out]
    for one in document["dependencies"]:
        one["dependsOn"] = [ref for ref in one.get("dependsOn", ()) if ref not in left_out]
    Path(listed).write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
