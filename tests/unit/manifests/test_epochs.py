"""Epochs as texts: what is written is read back, and epochs made one after the other agree with their changes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from benchmarks.epochs import scaled
from streamvault.manifests.epochs import epoch_texts, parse_epochs
from streamvault.streamstore.model import Epoch, EpochChange, Epochs, KeyRange, SegmentId


def rolled(rng: random.Random) -> Epochs:
    """A history of scales and of transactions that are committed over a scale: two epochs with earlier numbers."""
    edges = [n / 4 for n in range(5)]
    epochs = Epochs([Epoch(0, {SegmentId(0, n): KeyRange(*pair) for n, pair in enumerate(pairwise(edges))})])
    for _ in range(rng.randrange(8)):
        epochs = scaled(epochs, 1)
        if rng.random() < 0.3:
            for like in (epochs[rng.randrange(len(epochs))], epochs[-1]):
                made = {SegmentId(len(epochs), s.number): held for s, held in like.segments.items()}
                epochs = epochs.then(Epoch(len(epochs), made))
    return epochs


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read_back(seed: int) -> None:
    epochs = rolled(random.Random(seed))
    texts = epoch_texts(epochs)
    assert parse_epochs(texts) == epochs
    assert epoch_texts(parse_epochs(texts)) == texts
    for count in range(1, len(epochs) + 1):
        assert parse_epochs(texts[:count]) == epochs.upto(count)
        assert epochs.starts_with(epochs.upto(count))
    for other in (texts[:-1], [*texts[:-1], ">"], texts) if len(texts) > 1 else ():  # whatever was read before
        assert epoch_texts(parse_epochs(other)) == other


@pytest.mark.parametrize("seed", range(20))
def test_epochs_are_the_same_from_all_sides(seed: int) -> None:
    epochs = rolled(random.Random(seed))
    every = list(epochs)
    assert [one.number for one in every] == list(range(len(epochs)))
    assert [epochs[number] for number in range(len(epochs))] == every
    assert [epochs[number - len(epochs)] for number in range(len(epochs))] == every
    assert list(reversed(epochs)) == every[::-1]
    assert epochs[1:3] == tuple(every[1:3])
    assert Epochs(every) == epochs == Epochs.of(epochs.changes)
    assert hash(Epochs(every)) == hash(epochs)
    for segment, keys, first, last in epochs.lives:
        assert [one.number for one in every if segment in one.segments] == list(range(first, last + 1))
        assert epochs.ranges[segment] == keys
        assert epochs.life(segment) == (segment, keys, first, last)


def test_history_that_no_stream_has_is_refused() -> None:
    whole, first = KeyRange(0.0, 1.0), SegmentId(0, 0)
    begin = EpochChange({}, {first: whole})
    with pytest.raises(ValueError, match="there is no epoch"):
        Epochs.of([])
    with pytest.raises(ValueError, match="which is not open"):
        Epochs.of([begin, EpochChange({SegmentId(0, 1): whole}, {})])
    with pytest.raises(ValueError, match="which was open before"):
        Epochs.of([begin, EpochChange({first: whole}, {first: whole})])
    with pytest.raises(ValueError, match="not numbered consecutively from 0"):
        Epochs([Epoch(1, {first: whole})])
    with pytest.raises(ValueError, match="not numbered consecutively from 0"):
        Epochs.of([begin]).then(Epoch(2, {first: whole}))
    with pytest.raises(IndexError):
        Epochs.of([begin])[1]
