"""Lines of generations: the archives of streams that follow each other under one name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    export_stream,
    follow_stream,
    import_stream,
    list_archives,
    read_archive,
    rotate_stream,
    show_archive,
    write_table,
)
from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.layouts.keys import GenerationSpan, manifest_key
from testkit.small_archives import NAME, Vault, a_root, a_vault, contents, objects_of, replace_object

RUN = {"master": "inline[2]"}


vault = a_vault(b"one", b"two", segments=2, on_disk=True)


def restore(vault: Vault) -> None:
    """Lose the stream, and restore it under its own name."""
    vault.seal()
    vault.delete()
    import_stream(vault.archive, vault.uri(), numbers="map", **RUN)


def test_restored_stream_is_rotated_in_a_line_of_its_own(vault: Vault) -> None:
    rotate_stream(vault.uri(), vault.root, **RUN)
    restore(vault)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="line=NAME"):
        rotate_stream(vault.uri(), vault.root, **RUN)
    first = rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    vault.add(b"three")
    second = rotate_stream(vault.uri(), vault.root, line="2", keep=1, truncate_source=True, **RUN)
    assert first.archive == second.archive == f"{vault.root}/_line-2/{NAME}"
    assert (second.generation, second.expired) == (2, (1,))
    after = contents(vault.root)
    assert {key: after[key] for key in before} == before
    assert {key.split("/")[0] for key in set(after) - set(before)} == {"_line-2"}
    for archive in (vault.archive, second.archive):
        assert check_archive(archive, read_data=True, **RUN).ok
    assert [found.archive for found in list_archives(vault.root)] == [second.archive, vault.archive]
    export_stream(vault.uri(), vault.root, line="2", **RUN)
    with pytest.raises(Conflict):  # a run that forgets the option mixes nothing
        rotate_stream(vault.uri(), vault.root, **RUN)


VERBS: dict[str, Callable[[Vault, str], object]] = {
    "check": lambda vault, line: check_archive(_archive(vault, line), **RUN),
    "import": lambda vault, line: import_stream(
        _archive(vault, line), vault.uri(replace(NAME, stream="restored")), **RUN
    ),
    "export": lambda vault, line: export_stream(vault.uri(), vault.root, line=line, **RUN),
    "cat": lambda vault, line: read_archive(_archive(vault, line)),
    "compact": lambda vault, line: compact_archive(_archive(vault, line), **RUN),
    "convert": lambda vault, line: convert_archive(_archive(vault, line), a_root(), layout="chunks", **RUN),
}


def _archive(vault: Vault, line: str) -> str:
    return f"{vault.root}/{f'_line-{line}/' if line else ''}{NAME}"


@pytest.mark.parametrize("line", ["", "2"])
@pytest.mark.parametrize("verb", VERBS)
def test_line_in_the_place_of_another_is_damage(tmp_path: Path, verb: str, line: str) -> None:
    vault = Vault(tmp_path)
    vault.create(2)
    vault.add(b"one", b"two")
    for each in ("", "2"):
        export_stream(vault.uri(), vault.root, line=each, **RUN)
        assert check_archive(_archive(vault, each), read_data=True, **RUN).ok
    swap(vault)
    with pytest.raises(
        Damaged, match=r"the manifest belongs to (line 2, but this is a stream's|a stream's .* is line 2)"
    ):
        VERBS[verb](vault, line)
    assert all("the manifest belongs to" in found.problem for found in list_archives(vault.root))
    swap(vault)
    VERBS[verb](vault, line)


def swap(vault: Vault) -> None:
    held = contents(vault.root)
    store = objects_of(vault.root)
    store.delete(list(held))
    for key, data in held.items():
        store.put(key.removeprefix("_line-2/") if key.startswith("_line-2/") else f"_line-2/{key}", data)


def test_converted_and_merged_generations_are_of_the_line_they_are_in(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create(2)
    for number in range(2):
        vault.add(b"%d" % number)
        export_stream(vault.uri(), vault.root, line="2", layout="chunks", **RUN)
    other = a_root()
    convert_archive(_archive(vault, "2"), other, layout="events", **RUN)
    compact_archive(_archive(vault, "2"), **RUN)
    write_table(_archive(vault, "2"), format="parquet", **RUN)
    for archive in (f"{other}/{NAME}", _archive(vault, "2")):
        assert check_archive(archive, read_data=True, **RUN).ok
    assert show_archive(f"{other}/{NAME}").line == ""
    assert show_archive(_archive(vault, "2")).line == "2"


def test_merge_of_generations_of_an_earlier_release_gets_its_line(vault: Vault) -> None:
    for number in range(1, 3):
        export_stream(vault.uri(), vault.root, line="2", layout="chunks", **RUN)
        vault.add(b"more")
        left_out = show_archive(_archive(vault, "2")).model_copy(update={"line": None})
        replace_object(vault.root, f"_line-2/{NAME}/{manifest_key(GenerationSpan.of(number))}", left_out.encode())
    compact_archive(_archive(vault, "2"), **RUN)
    assert show_archive(_archive(vault, "2")).line == "2"
    assert check_archive(_archive(vault, "2"), read_data=True, **RUN).ok


def test_line_rejects_another_stream(vault: Vault) -> None:
    """Each line belongs to one stream, as the first archive does."""
    rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    restored = Vault(vault.folder, root=f"{vault.root}/_line-2")
    restore(restored)
    with pytest.raises(Conflict, match="not the one that was archived here"):
        rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    assert rotate_stream(vault.uri(), vault.root, line="3", **RUN).generation == 1


def test_stream_is_followed_in_a_line(vault: Vault) -> None:
    report = follow_stream(vault.uri(), vault.root, line="new", idle=0.01, every=0.01, **RUN)
    assert report.archive == f"{vault.root}/_line-new/{NAME}"


@pytest.mark.parametrize("name", ["a/b", "..", "_x", "x" * 65, " "])
def test_invalid_name_of_a_line_is_wrong_usage(vault: Vault, name: str) -> None:
    with pytest.raises(Usage, match=r"^line is not valid: .*1 to 64 letters, digits and hyphens"):
        export_stream(vault.uri(), vault.root, line=name, **RUN)
