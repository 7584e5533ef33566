"""Decisions that somebody else has put into an archive: nothing is deleted, or decided, on their word alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    convert_archive,
    delete_archive,
    export_stream,
    hold_archive,
    release_archive,
    rotate_stream,
    show_archive,
    work_queue,
)
from streamvault.cli import main
from streamvault.common.errors import Conflict, Damaged
from streamvault.layouts.keys import GenerationSpan, decision_key
from streamvault.manifests import listing
from streamvault.manifests.deleting import delete_expired
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.files import seal
from streamvault.manifests.merging import delete_replaced
from streamvault.objectstore.uri import RootAddress
from streamvault.requests.queue import request_deletions
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, a_vault, archive_of, contents, merge, objects_of
from tests.archives import new_decision

PREFIX = f"{NAME}/"
OWNER = {"format": 1, "scope": NAME.scope, "stream": NAME.stream, "created": "2026-11-20T00:00:00Z"}
NOTHING: dict[str, object] = {"dropped": 0, "swept": 0, "merged": [], "holds": []}


vault = a_vault(events=20, largest=2000, exports=[("chunks", "")] * 4, between=[b"one", b"two", b"three"])
"""Four generations."""


def forge(vault: Vault, number: int = 0, **fields: object) -> str:
    """Put a decision as whoever may create objects can; return its key."""
    before = archive_of(vault.root).listing().decision
    number = number or before.number + 1
    if fields.get("dropped"):
        fields = {"begin": archive_of(vault.root).read_manifest(GenerationSpan.of(1)).from_.to_json(), **fields}
    document = {
        **OWNER,
        **(before.document() if before.number else NOTHING),
        "number": number,
        "created": OWNER["created"],
        **fields,
    }
    key = PREFIX + decision_key(number)
    objects_of(vault.root).put(key, seal({name: value for name, value in document.items() if name != "sha256"}))
    return key


def rotate(vault: Vault, **options: Any) -> Any:
    return rotate_stream(vault.uri(), vault.root, range_size=RANGE_SIZE, master="inline", **options)


KEPT_BY = {
    "no rule": ({}, "this run has no --keep"),
    "keep": ({"keep": 3}, "fewer than 3 with data would be left"),
    "keep-for": ({"keep_for": 3600.0}, "generation 1 was taken at"),
    "until": ({"until": "2020-01-01T00:00:00Z"}, "generation 1 was taken at"),
    "until later": ({"until": "2100-01-01T00:00:00Z"}, "--until is later than the newest generation"),
}


@pytest.mark.parametrize(("options", "said"), KEPT_BY.values(), ids=KEPT_BY)
@pytest.mark.parametrize("swept", [0, 2])
def test_expiry_that_the_own_rule_does_not_explain_deletes_nothing(
    vault: Vault, options: dict[str, Any], said: str, swept: int
) -> None:
    before = set(contents(vault.root))
    forge(vault, dropped=2, swept=swept)
    report = rotate(vault, **options)
    assert (report.objects_deleted, report.resumed, report.expired) == (0, False, ())
    (warning,) = [one for one in report.warnings if "decision 1 of 2026-11-20" in one]
    assert said in warning
    assert before <= set(contents(vault.root))


def test_expiry_that_the_own_rule_explains_is_finished(vault: Vault) -> None:
    forge(vault, dropped=2)
    report = rotate(vault, keep=2)
    assert (report.resumed, report.warnings) == (True, ())
    assert archive_of(vault.root).listing().decision.swept == 2


def test_expiry_whose_manifests_are_gone_is_finished_by_any_rotation(vault: Vault) -> None:
    """Whoever deleted the manifests had checked them."""
    forge(vault, dropped=2)
    objects_of(vault.root).delete(
        [key for key in contents(vault.root) if "_manifest/000000000" in key and key[-6] in "12"]
    )
    assert rotate(vault).objects_deleted > 0
    assert archive_of(vault.root).listing().decision.swept == 2


def test_worker_deletes_by_the_rule_of_who_asked(vault: Vault, tmp_path: Path) -> None:
    queue = f"local://{tmp_path}/queues/ops/deletions"
    forge(vault, dropped=3)
    before = contents(vault.root)
    report = rotate(vault, keep=2, queue=queue)
    assert report.queued == ()
    assert any("fewer than 2 with data" in one for one in report.warnings)
    for rule in (ExpiryRule(), ExpiryRule(keep=2), ExpiryRule(keep_for=3600.0)):
        assert request_deletions(queue, vault.root, NAME, [3], rule) == (3,)
    done = work_queue(queue, idle=0, master="inline")
    assert (done.done, done.failed_exit_codes) == (0, (4,))
    assert before.keys() <= contents(vault.root).keys()
    request_deletions(queue, vault.root, NAME, [3], ExpiryRule(keep=1))
    assert work_queue(queue, idle=0, master="inline").done == 1
    assert archive_of(vault.root).listing().decision.swept == 3


# a sequence that does not hold


def lost_hold(vault: Vault) -> str:
    hold_archive(vault.archive, "legal", generation=1)
    return forge(vault, dropped=2, holds=[])


def jump(vault: Vault) -> str:
    hold_archive(vault.archive, "legal", generation=1)
    return forge(vault, 900, holds=[])


def highest(vault: Vault) -> str:
    return forge(vault, 0x7FFFFFFF)


def decided(vault: Vault) -> str:
    return forge(vault, format=2, deletion="decided")


VERBS: dict[str, Callable[[Vault], object]] = {
    "hold": lambda vault: hold_archive(vault.archive, "another", generation=4),
    "release": lambda vault: release_archive(vault.archive, "legal"),
    "rotate": lambda vault: rotate(vault, keep=1),
    "delete": lambda vault: delete_archive(vault.archive, yes=True),
    "delete, dry run": lambda vault: delete_archive(vault.archive),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("attack", [lost_hold, jump, highest, decided])
def test_decision_that_does_not_follow_stops_whatever_decides_or_deletes(
    vault: Vault, verb: Callable[[Vault], object], attack: Callable[[Vault], str]
) -> None:
    key = attack(vault)
    before = contents(vault.root)
    with pytest.raises(Damaged, match=r"^decision \d+ of 2026-11-20T00:00:00Z") as caught:
        verb(vault)
    assert key in caught.value.where
    assert "--yes" not in str(caught.value)
    assert "delete nothing" in caught.value.todo
    assert before.items() <= contents(vault.root).items()
    objects_of(vault.root).delete([key])
    hold_archive(vault.archive, "another", generation=4)  # the archive is as it was


@pytest.mark.parametrize("forged", ["head", None])
def test_beginning_that_is_taken_back_keeps_the_source(tmp_path: Path, forged: str | None) -> None:
    """It says where the archive began, so that what lies before it was never archived."""
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"never", b"archived")
    export_stream(vault.uri(), vault.root, layout="chunks", from_cut=vault.described.tail.to_json(), master="inline")
    for payload in (b"one", b"two"):
        vault.add(payload)
        vault.export("chunks")
    rotate(vault, keep=2, layout="chunks")
    begin = archive_of(vault.root).listing().decision.document()["begin"]
    assert begin
    forge(vault, begin=forged and dict.fromkeys(begin, 0))
    before = vault.events()
    for dry_run in (True, False):
        with pytest.raises(Damaged, match="takes back what has expired"):
            rotate(vault, truncate_source=True, same_stream=True, layout="chunks", dry_run=dry_run)
    with pytest.raises(Damaged, match="takes back what has expired"):
        convert_archive(vault.archive, a_root(), layout="events", master="inline")
    assert vault.events() == before


@pytest.mark.parametrize("options", [{"truncate_source": True, "same_stream": True}, {"keep": 1}], ids=str)
@pytest.mark.parametrize("begin", [{f"{NAME}/0.#epoch.0": 1}, None])
def test_beginning_that_the_first_generation_has_not_keeps_it_and_the_source(
    vault: Vault, begin: object, options: dict[str, Any]
) -> None:
    """Once its manifest is deleted, only decisions say where the archive began."""
    forge(vault, dropped=1, begin=begin)
    before, streamed = contents(vault.root), vault.events()
    with pytest.raises(Damaged, match="does not begin where generation 1 does"):
        rotate(vault, **options)
    with pytest.raises(Damaged, match="does not begin where generation 1 does"):
        convert_archive(vault.archive, a_root(), layout="events", master="inline")
    assert before.keys() <= contents(vault.root).keys()
    assert vault.events() == streamed


@pytest.mark.parametrize("attack", [lost_hold, jump, highest])
def test_check_finds_it(vault: Vault, attack: Callable[[Vault], str]) -> None:
    attack(vault)
    with pytest.raises(Damaged, match=r"^decision \d+"):
        check_archive(vault.archive, master="inline")


def test_expired_data_stay(vault: Vault) -> None:
    lost_hold(vault)
    before = contents(vault.root)
    with pytest.raises(Damaged, match="leaves out the hold legal of generation 1"):
        delete_expired(RootAddress.parse(vault.root), NAME, ExpiryRule(keep=1))
    assert contents(vault.root) == before


def test_nothing_is_told_of_a_deletion_on_its_word(vault: Vault) -> None:
    decided(vault)
    with pytest.raises(Damaged, match="deletion is decided, although it was not begun"):
        show_archive(vault.archive)
    with pytest.raises(Damaged, match="deletion is decided, although it was not begun"):
        vault.export()


def test_replaced_generations_stay(vault: Vault) -> None:
    merge(vault, 1, 2)
    rotate(vault)
    hold_archive(vault.archive, "legal", generation=1)
    forge(vault, holds=[])
    before = contents(vault.root)
    later = archive_of(vault.root).listing().decision.merged[0].at.replace(year=2100)
    with pytest.raises(Damaged, match="leaves out the hold legal of generation 2"):
        delete_replaced(archive_of(vault.root), now=later)
    assert contents(vault.root) == before


def test_deletion_that_nobody_began_is_told_and_not_advised(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    forge(vault, format=2, deletion="begun", who="mallory")
    forge(vault, deletion="decided")
    for command in (["show", vault.archive], ["timeline", vault.archive], ["export", vault.uri(), vault.root]):
        assert main(command) in {4, 5}
        told = capfd.readouterr()
        assert "according to decision 2 of 2026-11-20T00:00:00Z by 'mallory'" in told.err
        assert "--yes" not in told.err + told.out
    assert main(["delete", vault.archive]) == 0
    told = capfd.readouterr().out
    assert "decision 2 of 2026-11-20T00:00:00Z by 'mallory'" in " ".join(told.split())
    assert "--yes" not in told


# honest races


def test_late_decision_below_those_that_are_kept_is_no_damage(vault: Vault) -> None:
    for number in range(listing.KEPT + 2):
        hold_archive(vault.archive, f"h{number}", generation=4)
    assert PREFIX + decision_key(1) not in contents(vault.root)
    late = new_decision(1).expire(2)
    objects_of(vault.root).put(PREFIX + decision_key(1), late.encode())
    hold_archive(vault.archive, "last", generation=4)
    assert check_archive(vault.archive, master="inline").ok
    assert PREFIX + decision_key(1) not in contents(vault.root)


def test_archive_of_an_earlier_release_has_only_its_newest_decision(vault: Vault) -> None:
    for name in ("a", "b", "c"):
        hold_archive(vault.archive, name, generation=4)
    older = [PREFIX + decision_key(number) for number in (1, 2)]
    objects_of(vault.root).delete(older)
    release_archive(vault.archive, "a")
    assert rotate(vault, keep=2).expired == (1, 2)


def test_release_is_recorded(vault: Vault) -> None:
    hold_archive(vault.archive, "a", generation=2)
    hold_archive(vault.archive, "b", generation=3)
    release_archive(vault.archive, "a")
    decision = archive_of(vault.root).listing().decision
    assert [(one.name, one.generation) for one in decision.released] == [("a", 2)]
    assert decision.who == decision.holds[0].who
    rotate(vault, keep=1)
    with pytest.raises(Conflict, match="has the hold b"):
        delete_archive(vault.archive, yes=True)
    assert archive_of(vault.root).listing().decision.released == ()
