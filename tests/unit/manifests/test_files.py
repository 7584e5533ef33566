"""JSON files that somebody else has written, with a digest that fits."""

from __future__ import annotations

import pytest

from streamvault.common.errors import Damaged, Failed
from streamvault.manifests.files import File, decode
from streamvault.requests.queue import NotARequest, decode_request
from testkit.prove.hostile_files import VALUES, resealed


class Noted(File):
    """A file of one field."""

    names: tuple[str, ...] = ("a",)


_HEAVY = {"long text", "many values", "many members"}
GOOD = Noted().encode()


@pytest.mark.parametrize("place", ['"names": [\n  "a"\n ]', '"more": 1'])
@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in _HEAVY | {"zero", "NaN"}])
def test_hostile_value_is_refused_wherever_it_is(kind: str, place: str) -> None:
    data = GOOD if place.encode() in GOOD else GOOD.replace(b"{", b'{\n "more": 1,', 1)
    changed = resealed(data.replace(place.encode(), b'"%s": %s' % (place.split('"')[1].encode(), VALUES[kind])))
    if kind in {"1e400", "-1e99999"} and "more" in place:
        decode(Noted, changed, "here")  # what nobody reads, and is no harm
        return
    with pytest.raises(Damaged, match="here") as refused:
        decode(Noted, changed, "here")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("inner", [b'"names": ["b"],', b'"more": {"a": 1, "a": 2},', b'"more": [{"": 1, "": 1}],'])
def test_name_that_is_there_twice_is_refused(inner: bytes) -> None:
    with pytest.raises(Damaged, match="twice in one object"):
        decode(Noted, resealed(GOOD.replace(b"{", b"{\n " + inner, 1)), "here")


def test_file_with_too_many_values_is_neither_written_nor_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Noted(names=("a",) * 100)
    data = made.encode()
    assert decode(Noted, data, "here") == made
    monkeypatch.setattr("streamvault.manifests.files.MOST_VALUES", 100)
    with pytest.raises(Failed, match="readers accept"):
        made.encode()
    with pytest.raises(Damaged, match="values"):
        decode(Noted, data, "here")


def test_request_with_a_name_twice_is_refused() -> None:
    with pytest.raises(NotARequest):
        decode_request(b'{"kind":"delete","kind":"delete","version":1,"root":"/x","archive":"a/b","generation":1}')
