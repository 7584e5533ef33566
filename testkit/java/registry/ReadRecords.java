import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Serializer;
import io.pravega.client.stream.Stream;
import io.pravega.schemaregistry.client.SchemaRegistryClientConfig;
import io.pravega.schemaregistry.serializer.avro.impl.AvroSerializerFactory;
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;

import java.net.URI;

/**
 * Prints the Avro records of a sealed stream, a JSON text in each line, as the deserializers of Pravega's Schema Registry read them.
 *
 * Arguments: controller URI, scope, stream, registry's URL, group.
 */
public class ReadRecords {
    public static void main(String[] args) throws Exception {
        SerializerConfig settings = SerializerConfig.builder()
            .groupId(args[4])
            .registryConfig(SchemaRegistryClientConfig.builder().schemaRegistryUri(URI.create(args[3])).build())
            .build();
        Serializer<Object> records = AvroSerializerFactory.genericDeserializer(settings, null);
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        try (ReaderGroupManager groups = ReaderGroupManager.withScope(args[1], config)) {
            groups.createReaderGroup("readers", ReaderGroupConfig.builder()
                .stream(Stream.of(args[1], args[2])).disableAutomaticCheckpoints().build());
        }
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
             EventStreamReader<Object> reader = factory.createReader("reader", "readers", records, ReaderConfig.builder().build())) {
            for (Object record = reader.readNextEvent(20000).getEvent(); record != null; record = reader.readNextEvent(20000).getEvent()) {
                System.out.println(record);
            }
        }
        System.exit(0);
    }
}
