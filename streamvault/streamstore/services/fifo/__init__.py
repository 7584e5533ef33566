"""A durable FIFO queue on a stream of one segment, with one consumer and at-least-once delivery.

Modelled after the event processor of Pravega's segment containers (`ContainerEventProcessor` in its source): entries
are appended to a small segment; a processor reads them in batches, passes these to a function, and truncates the
segment up to where that function succeeded. The segment's start offset is thus the progress, survives a kill, and is
visible to producers in other processes; write offset minus start offset is outstanding.

`segment.QueueSegment` is the queue's segment, `producer.Producer` adds entries, `consumer.Consumer` processes them. All
use only the `StreamStore` interface.
"""
