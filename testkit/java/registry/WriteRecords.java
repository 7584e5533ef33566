import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.Serializer;
import io.pravega.schemaregistry.client.SchemaRegistryClientConfig;
import io.pravega.schemaregistry.contract.data.Compatibility;
import io.pravega.schemaregistry.contract.data.SerializationFormat;
import io.pravega.schemaregistry.serializer.avro.impl.AvroSerializerFactory;
import io.pravega.schemaregistry.serializer.avro.schemas.AvroSchema;
import io.pravega.schemaregistry.serializer.json.impl.JsonSerializerFactory;
import io.pravega.schemaregistry.serializer.json.schemas.JSONSchema;
import io.pravega.schemaregistry.serializer.protobuf.impl.ProtobufSerializerFactory;
import io.pravega.schemaregistry.serializer.protobuf.schemas.ProtobufSchema;
import io.pravega.schemaregistry.serializer.shared.codec.Codecs;
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Writes records with the serializers of Pravega's Schema Registry, which register their schema and codec.
 *
 * Arguments: controller URI, scope, stream, registry's URL, group, Avro, Protobuf or Json, name of a codec, the type's
 * name, file of the schema (of Protobuf: a descriptor set), file of the records: a JSON text in each line.
 */
public class WriteRecords {
    public static void main(String[] args) throws Exception {
        SerializationFormat format = SerializationFormat.valueOf(args[5]);
        SerializerConfig settings = SerializerConfig.builder()
            .groupId(args[4])
            .registryConfig(SchemaRegistryClientConfig.builder().schemaRegistryUri(URI.create(args[3])).build())
            .createGroup(format, Compatibility.allowAny(), true)
            .registerSchema(true)
            .registerCodec(true)
            .encoder(Codecs.valueOf(args[6]).getCodec())
            .build();
        byte[] schema = Files.readAllBytes(Path.of(args[8]));
        List<String> records = Files.readAllLines(Path.of(args[9]));
        if (format == SerializationFormat.Avro) {
            Schema parsed = new Schema.Parser().parse(new String(schema, "UTF-8"));
            GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(parsed);
            write(args, AvroSerializerFactory.serializer(settings, AvroSchema.ofRecord(parsed)), records,
                  text -> reader.read(null, DecoderFactory.get().jsonDecoder(parsed, text)));
        } else if (format == SerializationFormat.Protobuf) {
            FileDescriptorSet set = FileDescriptorSet.parseFrom(schema);
            Descriptors.Descriptor type = Descriptors.FileDescriptor.buildFrom(set.getFile(0), new Descriptors.FileDescriptor[0])
                .findMessageTypeByName(args[7].substring(args[7].lastIndexOf('.') + 1));
            write(args, ProtobufSerializerFactory.serializer(settings, ProtobufSchema.of(args[7], set)), records, text -> {
                DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
                JsonFormat.parser().merge(text, message);
                return message.build();
            });
        } else {
            ObjectMapper mapper = new ObjectMapper();
            write(args, JsonSerializerFactory.serializer(settings, JSONSchema.of(args[7], new String(schema, "UTF-8"), JsonNode.class)),
                  records, mapper::readTree);
        }
        System.exit(0);
    }

    private interface Parser<T> {
        T parse(String text) throws Exception;
    }

    private static <T> void write(String[] args, Serializer<T> serializer, List<String> records, Parser<T> parser)
            throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(args[0])).build();
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(args[1], config);
             EventStreamWriter<T> writer = factory.createEventWriter(args[2], serializer, EventWriterConfig.builder().build())) {
            for (String text : records) {
                writer.writeEvent("key", parser.parse(text));
            }
            writer.flush();
        }
    }
}
