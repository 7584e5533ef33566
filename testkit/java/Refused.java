import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.impl.UTF8StringSerializer;

import java.net.URI;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Writes an event to a stream that takes none, and prints why it was refused, in one line.
 *
 * Arguments: controller URI, scope, stream.
 */
public class Refused {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
        EventStreamWriter<String> writer = factory.createEventWriter(
                args[2], new UTF8StringSerializer(), EventWriterConfig.builder().build());
        try {
            writer.writeEvent("key", "event").get(60, TimeUnit.SECONDS);
            System.out.println("written");
        } catch (ExecutionException refused) {
            StringBuilder line = new StringBuilder();
            for (Throwable one = refused; one != null; one = one.getCause()) {
                line.append(one).append("; ");
            }
            System.out.println(line.toString().replace('\n', ' '));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
