import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventPointer;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.ByteArraySerializer;

import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;

/**
 * Reads events with Pravega's own Java client, then each of them again by its pointer, in another order.
 *
 * Arguments: controller URI, scope, stream, number of events to expect. Prints how many were equal.
 */
public class FetchEvents {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        int expected = Integer.parseInt(args[3]);
        String group = "fetch" + UUID.randomUUID().toString().replace("-", "");
        List<Map.Entry<EventPointer, byte[]>> found = new ArrayList<>();
        int equal = 0;
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(args[1], config)) {
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(args[1], args[2])).build());
            try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
                 EventStreamReader<byte[]> reader = factory.createReader("r", group, new ByteArraySerializer(),
                         ReaderConfig.builder().build())) {
                for (int quiet = 0; quiet < 30 && found.size() < expected; ) {
                    EventRead<byte[]> read = reader.readNextEvent(1000);
                    if (read.getEvent() == null) {
                        quiet++;
                    } else {
                        found.add(Map.entry(read.getEventPointer(), read.getEvent()));
                    }
                }
                Collections.shuffle(found, new Random(1));
                for (Map.Entry<EventPointer, byte[]> one : found) {
                    EventPointer pointer = EventPointer.fromBytes(one.getKey().toBytes());
                    equal += Arrays.equals(reader.fetchEvent(pointer), one.getValue()) ? 1 : 0;
                }
            }
            manager.deleteReaderGroup(group);
        }
        System.out.println(found.size() + " " + equal);
        System.exit(0);
    }
}
