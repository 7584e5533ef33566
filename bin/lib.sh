# What the scripts of this folder share. Read with `.` by a POSIX shell; sets `root` and goes there.
# shellcheck shell=sh

set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"

# Where things are kept that a clone doesn't hold: outside the tree, so that a fresh clone needs them only once.
cache=${STREAMVAULT_CACHE:-${XDG_CACHE_HOME:-${HOME:-$root}/.cache}/streamvault}

# Every command is a Python process of its own: what one has compiled, the next one need not.
unset PYTHONDONTWRITEBYTECODE

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "$(basename -- "$0"): $*"
    exit 1
}

# Functions that need variables run in a subshell, `( … )`, so that none of them is the caller's.

# A Python that can run the project (3.11 to 3.13), 3.11 first.
find_python() (
    for python in python3.11 python3 python python3.12 python3.13; do
        if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; then
            command -v "$python"
            return 0
        fi
    done
    return 1
)

# Makes `uv` callable: the one on PATH, or one of our own that is installed from PyPI into the cache once. It has the version
# and one of the digests of bin/uv.txt.
find_uv() {
    if uv --version >/dev/null 2>&1; then
        return 0
    fi
    PATH=$cache/uv-$(uv_version)/bin:$PATH
    export PATH
    if ! uv --version >/dev/null 2>&1; then
        install_uv
    fi
}

uv_version() {
    sed -n 's/^uv==\([0-9.]*\).*/\1/p' "$root/bin/uv.txt"
}

install_uv() (
    folder=$cache/uv-$(uv_version)
    python=$(find_python) || fail "no Python 3.11 to 3.13 was found. Install one, or uv."
    say "installing uv into $folder"
    mkdir -p "$cache"
    rm -rf "$folder"
    set -- --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$root/bin/uv.txt"
    if "$python" -m venv "$folder" >/dev/null 2>&1; then
        "$folder/bin/python" -m pip install "$@" >&2 || fail "uv could not be installed into $folder."
    elif "$python" -m pip --version >/dev/null 2>&1; then
        # a Python without the venv module (some distributions pack it apart)
        "$python" -m pip install "$@" --target "$folder" >&2 || fail "uv could not be installed into $folder."
    else
        fail "$python has neither venv nor pip. Install one of them (python3-venv), or uv."
    fi
    uv --version >/dev/null 2>&1 || fail "uv could not be installed into $folder."
)

# Whether a Java of version 17 or later is at hand, where Spark would look for it.
have_java() (
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
        version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
        if [ "${version:-0}" -ge 17 ]; then
            return 0
        fi
    done
    return 1
)

# Brings the environment .venv to the lock file: `install demo` to run the product, `install dev` to work on it.
install() {
    find_uv
    set -- "$1" --locked --inexact --quiet --extra demo
    if [ "$1" = demo ]; then
        set -- "$@" --no-dev --extra report
    else
        set -- "$@" --extra lake
    fi
    shift
    if ! have_java; then
        set -- "$@" --extra java
    fi
    [ -d .venv ] || say "installing into $root/.venv (a few minutes the first time: Spark alone is 450 MB)"
    # a virtual environment that happens to be active is somebody else's
    env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT="$root/.venv" uv sync "$@"
    PATH=$root/.venv/bin:$PATH
    export PATH
}
