import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;

import java.net.URI;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Random;

/**
 * Writes or reads a byte stream of one segment with Pravega's own Java client.
 *
 * Arguments: controller URI, scope, stream, number of bytes to append first (random, the number is the seed; 0: none).
 * Prints one line: head, tail, and the SHA-256 of the bytes between them.
 */
public class ByteStream {
    public static void main(String[] args) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        int size = Integer.parseInt(args[3]);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        try (ByteStreamClientFactory factory = ByteStreamClientFactory.withScope(args[1], config)) {
            if (size > 0) {
                byte[] data = new byte[size];
                new Random(size).nextBytes(data);
                try (ByteStreamWriter writer = factory.createByteStreamWriter(args[2])) {
                    for (int at = 0; at < size; at += 777_777) {
                        writer.write(Arrays.copyOfRange(data, at, Math.min(at + 777_777, size)));
                    }
                    writer.flush();
                }
            }
            try (ByteStreamReader reader = factory.createByteStreamReader(args[2])) {
                long head = reader.fetchHeadOffset();
                long tail = reader.fetchTailOffset();
                reader.seekToOffset(head);
                byte[] buffer = new byte[1024 * 1024];
                for (long left = tail - head; left > 0; ) {
                    int read = reader.read(buffer, 0, (int) Math.min(left, buffer.length));
                    if (read < 0) {
                        throw new IllegalStateException(left + " bytes are missing");
                    }
                    digest.update(buffer, 0, read);
                    left -= read;
                }
                System.out.println(head + " " + tail + " " + String.format("%064x", new java.math.BigInteger(1, digest.digest())));
            }
        }
        System.exit(0);
    }
}
