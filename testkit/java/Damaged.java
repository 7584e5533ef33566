import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.UTF8StringSerializer;

import java.net.URI;
import java.util.concurrent.CompletableFuture;

/**
 * Reads a stream of texts with one segment until an error, by a reader group and by the batch client at once. Prints
 * "group" or "batch", a blank, and each text; and, in place of a text, "raised" and why in one line.
 *
 * Arguments: controller URI, scope, stream.
 */
public class Damaged {
    private interface Reading {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        CompletableFuture.allOf(
                until("group", () -> readAsGroup(config, args[1], args[2])),
                until("batch", () -> readAsBatch(config, args[1], args[2]))).join();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static CompletableFuture<Void> until(String who, Reading reading) {
        return CompletableFuture.runAsync(() -> {
            StringBuilder line = new StringBuilder(who + " raised");
            try {
                reading.run();
                line.append(" nothing");
            } catch (Throwable raised) {
                for (Throwable one = raised; one != null; one = one.getCause()) {
                    line.append(" ").append(one).append(";");
                }
            }
            System.out.println(line.toString().replace('\n', ' '));
        }, command -> new Thread(command).start());
    }

    private static void readAsGroup(ClientConfig config, String scope, String stream) throws Exception {
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            manager.createReaderGroup("app", ReaderGroupConfig.builder().disableAutomaticCheckpoints()
                    .stream(Stream.of(scope, stream)).build());
        }
        EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
        EventStreamReader<String> reader = factory.createReader(
                "one", "app", new UTF8StringSerializer(), ReaderConfig.builder().build());
        while (true) {
            EventRead<String> read = reader.readNextEvent(1000);
            if (read.getEvent() != null) {
                System.out.println("group " + read.getEvent());
            }
        }
    }

    private static void readAsBatch(ClientConfig config, String scope, String stream) throws Exception {
        BatchClientFactory factory = BatchClientFactory.withScope(scope, config);
        SegmentIterator<String> events = factory.readSegment(
                factory.getSegments(Stream.of(scope, stream), StreamCut.UNBOUNDED, StreamCut.UNBOUNDED)
                        .getIterator().next(), new UTF8StringSerializer());
        while (events.hasNext()) {
            System.out.println("batch " + events.next());
        }
    }
}
