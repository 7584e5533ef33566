"""The same copy, replication, promotion or move started twice at once, between two real Pravegas."""

from __future__ import annotations

import os

import pytest

from streamvault import replicate_stream
from streamvault.streamstore.model import StreamName
from testkit.commands import run, started
from testkit.streams import digest_of, make_stream, shape_of
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("verb", "options"),
    [("copy", ()), ("replicate", ()), ("promote", ()), ("promote", ("--seal-source",)), ("move", ())],
    ids=["copy", "replicate", "promote", "cut over", "move"],
)
def test_one_of_two_succeeds_and_the_other_exits_with_4_or_does_nothing(
    here: Site,
    there: Site,
    scope_name: str,
    verb: str,
    options: tuple[str, ...],
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=400)
    before, shape = digest_of(here.store, name), shape_of(here.store, name)
    source, target = here.uri(name), there.uri(name)
    if verb == "promote":
        replicate_stream(source, target, master="inline")
    uris = (target,) if verb == "promote" else (source, target)
    command = (verb, *uris, *options, "--master", "inline", "--json")
    environment = dict(os.environ)
    with started(*command, environment=environment) as one, started(*command, environment=environment) as other:
        ended = [one.ended(), other.ended()]
    assert sorted(each.code for each in ended) in ([0, 0], [0, 4]), ended
    again = run(*command, environment=environment)
    assert again.code == 0, again
    if verb != "replicate":
        assert again.report["unchanged"]
    assert digest_of(there.store, name) == before
    assert shape_of(there.store, name)["head"] == shape["head"]
    if verb == "move":
        assert not any(here.store.describe(name).tail.offsets.values())
    else:
        assert digest_of(here.store, name) == before
    assert list(there.store.list_streams(scope_name, own=True)) == [name] or verb == "replicate"
