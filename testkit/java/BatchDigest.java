import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.ByteArraySerializer;

import java.math.BigInteger;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Iterator;

/**
 * Reads a whole stream with Pravega's batch client and prints one line: number of events, and the sum (mod 2^256) of
 * SHA-256(segment, blank, offset, newline, payload).
 *
 * Arguments: controller URI, scope, stream.
 */
public class BatchDigest {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        BigInteger sum = BigInteger.ZERO;
        BigInteger modulus = BigInteger.ONE.shiftLeft(256);
        long count = 0;
        try (BatchClientFactory factory = BatchClientFactory.withScope(args[1], config)) {
            Iterator<SegmentRange> ranges = factory.getSegments(
                    Stream.of(args[1], args[2]), StreamCut.UNBOUNDED, StreamCut.UNBOUNDED).getIterator();
            while (ranges.hasNext()) {
                SegmentRange range = ranges.next();
                try (SegmentIterator<byte[]> events = factory.readSegment(range, new ByteArraySerializer())) {
                    while (events.hasNext()) {
                        String at = range.getSegmentId() + " " + events.getOffset() + "\n";
                        digest.reset();
                        digest.update(at.getBytes(StandardCharsets.UTF_8));
                        digest.update(events.next());
                        sum = sum.add(new BigInteger(1, digest.digest())).mod(modulus);
                        count++;
                    }
                }
            }
        }
        System.out.println(count + " " + String.format("%064x", sum));
        System.exit(0);
    }
}
