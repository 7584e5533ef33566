import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.ByteArraySerializer;

import java.net.URI;
import java.util.Iterator;
import java.util.UUID;

/**
 * Reads a whole stream as fast as Pravega's client can, with one batch reader or a group of one reader, and prints one
 * line: number of events, bytes of their payloads, and seconds from the first request to the last event.
 *
 * Arguments: controller URI, scope, stream, "batch" or "group", number of events.
 */
public class ReadSpeed {
    private static long count = 0;
    private static long bytes = 0;

    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        long expected = Long.parseLong(args[4]);
        long began = System.nanoTime();
        if (args[3].equals("batch")) {
            readBatch(config, args[1], args[2]);
        } else {
            readGroup(config, args[1], args[2], expected);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        if (count != expected) {
            throw new IllegalStateException(count + " events instead of " + expected);
        }
        System.out.println(count + " " + bytes + " " + seconds);
        System.exit(0);
    }

    private static void readBatch(ClientConfig config, String scope, String stream) {
        try (BatchClientFactory factory = BatchClientFactory.withScope(scope, config)) {
            Iterator<SegmentRange> ranges = factory.getSegments(
                    Stream.of(scope, stream), StreamCut.UNBOUNDED, StreamCut.UNBOUNDED).getIterator();
            while (ranges.hasNext()) {
                try (SegmentIterator<byte[]> events = factory.readSegment(ranges.next(), new ByteArraySerializer())) {
                    while (events.hasNext()) {
                        bytes += events.next().length;
                        count++;
                    }
                }
            }
        }
    }

    private static void readGroup(ClientConfig config, String scope, String stream, long expected) {
        String group = "speed" + UUID.randomUUID().toString().replace("-", "");
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, stream)).build());
            try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
                 EventStreamReader<byte[]> reader = factory.createReader("r", group, new ByteArraySerializer(),
                         ReaderConfig.builder().build())) {
                while (count < expected) {
                    EventRead<byte[]> read = reader.readNextEvent(1000);
                    if (read.getEvent() != null) {
                        bytes += read.getEvent().length;
                        count++;
                    }
                }
            }
        }
    }
}
