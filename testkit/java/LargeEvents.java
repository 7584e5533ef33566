import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.impl.ByteArraySerializer;

import java.net.URI;
import java.util.Random;

/**
 * Writes events with Pravega's own Java client, large events enabled, and all with one routing key.
 *
 * Arguments: controller URI, scope, stream, sizes of the payloads (bytes). A payload's bytes are random, its size the seed.
 */
public class LargeEvents {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        EventWriterConfig large = EventWriterConfig.builder().enableLargeEvents(true).build();
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(args[2], new ByteArraySerializer(), large)) {
            for (int index = 3; index < args.length; index++) {
                byte[] payload = new byte[Integer.parseInt(args[index])];
                new Random(payload.length).nextBytes(payload);
                writer.writeEvent("key", payload).get();
            }
            writer.flush();
        }
        System.exit(0);
    }
}
