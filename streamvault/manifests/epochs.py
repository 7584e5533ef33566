"""A manifest's epochs: a text for each one, of the segments that it seals and opens.

`docs/reference/format.md` has the grammar. In format 1, of earlier releases, each epoch lists all its segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, WithJsonSchema

from streamvault.manifests.files import value_errors
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.model import KEY_SLACK, MOST_SEGMENTS, Epoch, EpochChange, Epochs, KeyRange, SegmentId

_ID = r"(?:(0|[1-9][0-9]{0,9})\.)?(0|[1-9][0-9]{0,9})"
_OPENED = re.compile(_ID + r"(?::([0-9](?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?))?")
_PATTERN = r"^([0-9]+\.[0-9]+(,[0-9]+\.[0-9]+)*)?>([0-9.]+(:[0-9.eE+-]+)?(,[0-9.]+(:[0-9.eE+-]+)?)*)?$"


_written: tuple[Epochs, list[str]] | None = None
"""What was written last. A plan and its manifest have the same epochs."""


def epoch_texts(epochs: Epochs) -> list[str]:
    """Return a text for each epoch, as `parse_epochs` reads them."""
    global _written  # noqa: PLW0603
    known = _written
    if known is None or known[0] is not epochs:
        known = _written = epochs, [_text(number, change) for number, change in enumerate(epochs.changes)]
    return known[1].copy()


def _text(number: int, change: EpochChange) -> str:
    place, opened = _Place(number, change.seals), []
    for segment, held in change.opens.items():
        name = f"{segment.number}" if segment.epoch == number else f"{segment.epoch}.{segment.number}"
        opened.append(name if held.high == place.end else f"{name}:{held.high!r}")
        place.fill(held.high)
    sealed = ",".join(f"{segment.epoch}.{segment.number}" for segment in change.seals)
    return f"{sealed}>{','.join(opened)}"


class _Place:
    """The lowest key that an epoch's sealed segments held, and none of its opened ones holds yet.

    Attributes:
        low: the key.
        end: the end of the sealed segment that held it.
    """

    def __init__(self, number: int, seals: Mapping[SegmentId, KeyRange]) -> None:
        self._left = [KeyRange(0.0, 1.0)] if number == 0 else list(seals.values())[::-1]
        self.low = self.end = 0.0
        self.fill(0.0)

    def fill(self, high: float) -> None:
        """Go on after a segment was opened that ends at a key."""
        while self._left and self._left[-1].high <= high:
            self._left.pop()
        self.low, self.end = (max(high, self._left[-1].low), self._left[-1].high) if self._left else (high, high)


_latest: tuple[tuple[str, ...], Epochs] | None = None
"""What was read last. Generations of an archive begin with the same epochs, which are read once and kept once."""


def parse_epochs(texts: Sequence[str]) -> Epochs:
    """Read the texts of epochs.

    Raises:
        ValueError: one is not valid, or they are not those of a stream.
    """
    global _latest  # noqa: PLW0603
    wanted, (known, before) = tuple(texts), _latest or ((), None)
    if before is not None and known[: len(wanted)] == wanted and wanted:
        return before.upto(len(wanted))
    if before is None or wanted[: len(known)] != known:
        known, before = (), None
    changes = [] if before is None else list(before.changes)
    held = {} if before is None else _by_name(before.ranges)
    for number, text in enumerate(wanted[len(known) :], len(known)):
        try:
            changes.append(_change(number, text, held))
        except (ValueError, KeyError, InvalidName):
            raise ValueError(f"not what epoch {number} seals and opens: {text[:80]!r}") from None
        held.update(_by_name(changes[-1].opens))
        if len(held) > MOST_SEGMENTS:
            raise ValueError(f"more than {MOST_SEGMENTS} segments")
    epochs = _checked(Epochs.of(changes), before)
    _latest = wanted, epochs
    return epochs


_Segment = tuple[SegmentId, KeyRange]


def _by_name(ranges: Mapping[SegmentId, KeyRange]) -> dict[str, _Segment]:
    return {f"{item[0].epoch}.{item[0].number}": item for item in ranges.items()}


def _change(number: int, text: str, held: Mapping[str, _Segment]) -> EpochChange:
    sealed, arrow, opened = text.partition(">")
    if not arrow:
        raise ValueError
    names = sealed.split(",") if sealed else []
    seals = dict(sorted((held[name] for name in names), key=lambda item: item[1].low))
    place, opens, count = _Place(number, seals), dict[SegmentId, KeyRange](), 0
    for count, one in enumerate(opened.split(",") if opened else (), 1):  # noqa: B007
        match = _OPENED.fullmatch(one)
        if match is None:
            raise ValueError
        epoch, name, end = match.groups()
        high = place.end if end is None else float(end)
        opens[SegmentId(number if epoch is None else int(epoch), int(name))] = KeyRange(place.low, high)
        place.fill(high)
    if len(seals) != len(names) or len(opens) != count:
        raise ValueError  # one is there twice
    return EpochChange(seals, opens)


def _checked(epochs: Epochs, before: Epochs | None = None) -> Epochs:
    """Return epochs if in each of them the segments hold every key once, and none is of a later epoch.

    Args:
        epochs: the epochs.
        before: the first ones, which were checked already.
    """
    top = 1.0 if before is None else list(before[-1].segments.values())[-1].high  # the end of the highest keys
    for number, change in islice(enumerate(epochs.changes), 0 if before is None else len(before), None):
        if late := next((segment for segment in change.opens if segment.epoch > number), None):
            raise ValueError(f"epoch {number} has segment {late}, which is of a later epoch")
        sealed = _joined(change.seals.values()) if number else [(0.0, 1.0)]
        opened = _joined(change.opens.values())
        if sealed and opened and sealed[-1][1] == top and opened[-1][1] > 1.0 - KEY_SLACK:
            top = opened[-1][1]
            sealed[-1] = (sealed[-1][0], top)
        if sealed != opened:
            raise ValueError(f"epoch {number} does not cover the key space exactly once")
    return epochs


def _joined(ranges: Iterable[KeyRange]) -> list[tuple[float, float]]:
    """Return ranges in order of the keys, those joined that follow each other without a hole."""
    found: list[tuple[float, float]] = []
    for held in ranges:
        if found and found[-1][1] == held.low:
            found[-1] = found[-1][0], held.high
        else:
            found.append((held.low, held.high))
    return found


def _listed(value: Iterable[Any]) -> Iterator[Epoch]:
    """Yield the epochs of format 1, each with all of its segments."""
    known: dict[tuple[int, float, float], tuple[SegmentId, KeyRange]] = {}
    for entry in value:
        segments: dict[SegmentId, KeyRange] = {}
        for one in entry["segments"]:
            number, low, high = key = one["id"], one["low"], one["high"]
            if type(number) is not int or number < 0 or not {type(low), type(high)} <= {int, float}:
                raise TypeError
            segment, held = known.get(key) or known.setdefault(key, (SegmentId.of(number), KeyRange(low, high)))
            segments[segment] = held
        if type(entry["epoch"]) is not int:
            raise TypeError
        if len(segments) != len(entry["segments"]):
            raise ValueError(f"epoch {entry['epoch']} has a segment twice")
        yield Epoch(entry["epoch"], segments)


def _validated(value: Any, info: ValidationInfo) -> Epochs:
    if isinstance(value, Epochs):
        return _checked(value)
    of, kind = (
        (str, parse_epochs) if info.data.get("format") == 2 else (dict, lambda each: _checked(Epochs(_listed(each))))
    )
    if not isinstance(value, list | tuple) or not all(isinstance(one, of) for one in value):
        raise ValueError("not a text for each epoch")
    with value_errors():
        try:
            return kind(value)
        except (KeyError, TypeError):
            raise ValueError("an epoch is not a number and its segments, each with id, low and high") from None


EpochTexts = Annotated[
    Epochs,
    PlainValidator(_validated),
    PlainSerializer(epoch_texts, return_type=list[str]),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": _PATTERN},
            "description": "what each epoch from 0 on seals and opens",
        }
    ),
]
"""Every epoch from 0 on, in a file."""
