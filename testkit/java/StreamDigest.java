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

import java.math.BigInteger;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;

/**
 * Reads a whole stream with Pravega's own Java client and prints one line:
 * number of events, and the sum (mod 2^256) of SHA-256(pointer without the stream's name, newline, payload).
 * A sum, because a reader group visits parallel segments in any order; inside a segment the order is checked.
 *
 * Arguments: controller URI, scope, stream, number of events to expect.
 */
public class StreamDigest {
    public static void main(String[] args) throws Exception {
        URI controller = URI.create(args[0]);
        String scope = args[1];
        String stream = args[2];
        long expected = Long.parseLong(args[3]);
        ClientConfig config = ClientConfig.builder().controllerURI(controller).build();
        String group = "digest" + UUID.randomUUID().toString().replace("-", "");
        BigInteger sum = BigInteger.ZERO;
        BigInteger modulus = BigInteger.ONE.shiftLeft(256);
        long count = 0;
        Map<String, Long> last = new HashMap<>();
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, stream))
                    .automaticCheckpointIntervalMillis(1000).build());
            try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
                 EventStreamReader<byte[]> reader = factory.createReader("r", group, new ByteArraySerializer(),
                         ReaderConfig.builder().build())) {
                int quiet = 0;
                while (quiet < (count < expected ? 30 : 2)) {
                    EventRead<byte[]> read = reader.readNextEvent(1000);
                    if (read.getEvent() == null) {
                        quiet += read.isCheckpoint() ? 0 : 1;
                        continue;
                    }
                    quiet = 0;
                    EventPointer pointer = read.getEventPointer();
                    String text = pointer.toString();
                    String local = text.substring(text.lastIndexOf('/') + 1);
                    String segment = local.substring(0, local.indexOf(':'));
                    long offset = Long.parseLong(local.substring(local.indexOf(':') + 1, local.lastIndexOf('-')));
                    Long before = last.put(segment, offset);
                    if (before != null && before >= offset) {
                        throw new IllegalStateException("out of order: " + text + " after " + before);
                    }
                    digest.reset();
                    digest.update((local + "\n").getBytes(StandardCharsets.UTF_8));
                    digest.update(read.getEvent());
                    sum = sum.add(new BigInteger(1, digest.digest())).mod(modulus);
                    count++;
                }
            }
            manager.deleteReaderGroup(group);
        }
        System.out.println(count + " " + String.format("%064x", sum));
        System.exit(0);
    }
}
