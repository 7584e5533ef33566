"""A durable queue: a named FIFO on a stream of one segment, worked off by one consumer, entry by entry at least once.

Modelled after the event processor of Pravega's segment containers (`ContainerEventProcessor` in its source): entries
are appended to a small segment, a processor reads it in batches, hands these to a function, and truncates the segment
where that function has succeeded. So the segment's start offset is the progress, which survives a kill and which
producers in other processes see; write offset less start offset is what is outstanding.

`QueueSegment` is the place, `Producer` puts entries in, `Consumer` works them off. All is written against the
`StreamStore` interface alone.
"""

from streamstore.fifo.consumer import Consumer, ConsumerBusy, Handler
from streamstore.fifo.entry import MAX_ENTRY_BYTES, Entry, EntryTooLarge
from streamstore.fifo.metrics import QueueMetrics
from streamstore.fifo.place import NotAQueue, QueueSegment
from streamstore.fifo.producer import Producer, QueueFull

__all__ = [
    "MAX_ENTRY_BYTES",
    "Consumer",
    "ConsumerBusy",
    "Entry",
    "EntryTooLarge",
    "Handler",
    "NotAQueue",
    "Producer",
    "QueueFull",
    "QueueMetrics",
    "QueueSegment",
]
