import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.StreamCutImpl;
import io.pravega.client.stream.impl.UTF8StringSerializer;

import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;

/**
 * Reads a stream of texts with a reader group, from a cut on, and prints each event: its pointer, a blank, the text.
 *
 * Arguments: controller URI, scope, stream, number of events to expect, and the cut's positions, each SEGMENT=OFFSET
 * with the segment's full name; none: the stream's head.
 * If the number is negative, no successor of a segment is read, and after so many events the last line is the cut of a
 * checkpoint in which a segment is at its end, as SEGMENT=OFFSET and blanks.
 */
public class ReaderGroupCut {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        Stream stream = Stream.of(args[1], args[2]);
        int expected = Math.abs(Integer.parseInt(args[3]));
        boolean cuts = Integer.parseInt(args[3]) < 0;
        String name = "cut" + UUID.randomUUID().toString().replace("-", "");
        ReaderGroupConfig.ReaderGroupConfigBuilder reading = ReaderGroupConfig.builder();
        // the successors of a segment are read after a checkpoint
        reading = cuts ? reading.disableAutomaticCheckpoints() : reading.automaticCheckpointIntervalMillis(500);
        Map<Segment, Long> start = new HashMap<>();
        for (int index = 4; index < args.length; index++) {
            String[] position = args[index].split("=");
            start.put(Segment.fromScopedName(position[0]), Long.parseLong(position[1]));
        }
        reading = start.isEmpty() ? reading.stream(stream) : reading.stream(stream, new StreamCutImpl(stream, start));
        ScheduledExecutorService executor = Executors.newSingleThreadScheduledExecutor();
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(args[1], config)) {
            manager.createReaderGroup(name, reading.build());
            try (ReaderGroup group = manager.getReaderGroup(name);
                 EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
                 EventStreamReader<String> reader = factory.createReader("reader", name, new UTF8StringSerializer(),
                         ReaderConfig.builder().build())) {
                int count = 0;
                for (int quiet = 0; count < expected ? quiet < 30 : quiet < 2; quiet++) {
                    EventRead<String> read = reader.readNextEvent(1000);
                    if (read.getEvent() != null) {
                        System.out.println(read.getEventPointer() + " " + read.getEvent());
                        count++;
                        quiet = -1;
                    } else if (read.isCheckpoint()) {
                        quiet--;
                    }
                }
                if (cuts) {
                    CompletableFuture<Checkpoint> checkpoint = group.initiateCheckpoint("checkpoint", executor);
                    while (!checkpoint.isDone()) {
                        reader.readNextEvent(100);
                    }
                    StreamCut cut = checkpoint.get().asImpl().getPositions().get(stream);
                    StringBuilder line = new StringBuilder();
                    Map<Segment, Long> positions = new TreeMap<>(cut.asImpl().getPositions());
                    positions.forEach((segment, offset) ->
                            line.append(segment.getScopedName()).append('=').append(offset).append(' '));
                    System.out.println(line.toString().trim());
                }
            }
            manager.deleteReaderGroup(name);
        }
        System.exit(0);
    }
}
