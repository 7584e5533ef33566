"""A durable FIFO queue on a stream of one segment, with one consumer and at-least-once delivery.

Modelled after the event processor of Pravega's segment containers (`ContainerEventProcessor` in its source): entries
are appended to a small segment; a processor reads them in batches, passes these to a function, and truncates the
segment up to where that function succeeded. The segment's start offset is thus the progress, survives a kill, and is
visible to producers in other processes; write offset minus start offset is outstanding.

`QueueSegment` is the queue's segment, `Producer` adds entries, `Consumer` processes them. All use only the
`StreamStore` interface.
"""

from streamstore.fifo.consumer import Consumer, ConsumerBusy, Handler, QueueMetrics
from streamstore.fifo.entry import MAX_ENTRY_BYTES, Entry, EntryTooLarge
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
