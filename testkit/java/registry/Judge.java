import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.MapEntry;
import com.google.protobuf.Message;
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
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Writes random events of a history's schemas, and reads each with the newest one, by the libraries of the registry's
 * serializers. A request is a line of JSON, and so is its answer: floats by their bits, bytes in base64.
 */
public class Judge {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final String[] TEXTS = {"", "a", "Zürich", "\u0000", "\ud83d\ude00", "0", "null", "true", "1e5", "\"\\"};
    private static final long[] NUMBERS = {0, 1, -1, 127, -128, 65536, Integer.MAX_VALUE, Integer.MIN_VALUE, 1L << 24, (1L << 24) + 1,
        (1L << 53) + 1, Long.MAX_VALUE, Long.MIN_VALUE, -62135596800000L, 253402300799999L, 1764000000123456L};
    private static final double[] FLOATS = {0, -0.0, 1.5, 0.1, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY,
        Double.MAX_VALUE, Double.MIN_VALUE, Float.MAX_VALUE, Float.MIN_VALUE, 16777217};

    private static Random random;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err); // some libraries write there
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = MAPPER.readTree(line);
            random = new Random(request.get("seed").asLong());
            String kind = request.get("kind").asText();
            Object events = kind.equals("avro") ? avro(request) : kind.equals("protobuf") ? protobuf(request) : json(request);
            out.println(MAPPER.writeValueAsString(events));
        }
    }

    private static Map<String, Object> event(int schema, byte[] data, Object value, Object fields) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("schema", schema);
        found.put("data", Base64.getEncoder().encodeToString(data));
        found.put("value", value);
        found.put("fields", fields);
        return found;
    }

    private static SerializerConfig settings(JsonNode request, SerializationFormat format) {
        URI registry = URI.create(request.get("registry").asText());
        return SerializerConfig.builder().groupId(request.get("group").asText()).registerSchema(true)
            .registryConfig(SchemaRegistryClientConfig.builder().schemaRegistryUri(registry).build())
            .createGroup(format, Compatibility.allowAny(), true).build();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] found = new byte[buffer.remaining()];
        buffer.duplicate().get(found);
        return found;
    }

    private static int number(int most) {
        return random.nextInt(most);
    }

    private static long wide() {
        return number(3) == 0 ? random.nextLong() : NUMBERS[number(NUMBERS.length)];
    }

    private static double real() {
        return number(3) == 0 ? Double.longBitsToDouble(random.nextLong()) : FLOATS[number(FLOATS.length)];
    }

    private static float small() {
        return number(3) == 0 ? Float.intBitsToFloat(random.nextInt()) : (float) FLOATS[number(FLOATS.length)];
    }

    private static byte[] bytes(int size) {
        byte[] found = new byte[size];
        random.nextBytes(found);
        return found;
    }

    private static Object plain(Object value) {
        if (value instanceof Float) {
            return Map.of("bits", String.format("%08x", Float.floatToIntBits((Float) value)));
        } else if (value instanceof Double) {
            return Map.of("bits", String.format("%016x", Double.doubleToLongBits((Double) value)));
        }
        return value instanceof byte[] ? Base64.getEncoder().encodeToString((byte[]) value) : value;
    }

    // Avro

    private static Object avro(JsonNode request) throws Exception {
        List<Schema> schemas = parsed(request.get("written"));
        List<Schema> given = parsed(request.get("schemas"));
        Schema newest = given.get(given.size() - 1);
        List<Serializer<GenericRecord>> registered = new ArrayList<>();
        for (Schema schema : request.has("registry") ? given : List.<Schema>of()) {
            registered.add(AvroSerializerFactory.serializer(settings(request, SerializationFormat.Avro), AvroSchema.ofRecord(schema)));
        }
        List<Object> events = new ArrayList<>();
        for (int count = request.get("events").asInt(); count > 0; count--) {
            int of = number(schemas.size());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            GenericRecord record = (GenericRecord) random(schemas.get(of));
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
            new GenericDatumWriter<>(schemas.get(of)).write(record, encoder);
            encoder.flush();
            byte[] data = out.toByteArray();
            Map<String, Object> each = new LinkedHashMap<>();
            Object value = read(schemas.get(of), newest, data);
            for (Schema.Field field : value == null ? newest.getFields() : List.<Schema.Field>of()) {
                Schema only = Schema.createRecord(newest.getName(), null, newest.getNamespace(), false);
                newest.getAliases().forEach(only::addAlias);
                only.setFields(List.of(new Schema.Field(field, field.schema())));
                Object found = read(schemas.get(of), only, data);
                if (found != null) {
                    each.putAll((Map<String, Object>) found);
                }
            }
            events.add(event(of, registered.isEmpty() ? data : bytes(registered.get(of).serialize(record)), value, each));
        }
        return events;
    }

    private static List<Schema> parsed(JsonNode schemas) {
        List<Schema> found = new ArrayList<>();
        schemas.forEach(schema -> found.add(new Schema.Parser().parse(schema.toString())));
        return found;
    }

    private static Object read(Schema written, Schema reader, byte[] data) {
        try {
            GenericRecord found = new GenericDatumReader<GenericRecord>(written, reader)
                .read(null, DecoderFactory.get().binaryDecoder(data, null));
            return shown(reader, found);
        } catch (Exception error) {
            return null;
        }
    }

    private static Object random(Schema schema) {
        boolean digits = schema.getProp("logicalType") != null && schema.getProp("logicalType").equals("decimal");
        switch (schema.getType()) {
            case NULL: return null;
            case BOOLEAN: return random.nextBoolean();
            case INT: return (int) wide();
            case LONG: return wide();
            case FLOAT: return small();
            case DOUBLE: return real();
            case STRING: return TEXTS[number(TEXTS.length)];
            case BYTES: return ByteBuffer.wrap(digits ? bytes(1 + number(3)) : TEXTS[number(TEXTS.length)].getBytes(StandardCharsets.UTF_8));
            case FIXED: return new GenericData.Fixed(schema, bytes(schema.getFixedSize()));
            case ENUM: return new GenericData.EnumSymbol(schema, schema.getEnumSymbols().get(number(schema.getEnumSymbols().size())));
            case UNION: return random(schema.getTypes().get(number(schema.getTypes().size())));
            case ARRAY: {
                List<Object> found = new ArrayList<>();
                for (int count = number(3); count > 0; count--) {
                    found.add(random(schema.getElementType()));
                }
                return found;
            }
            case MAP: {
                Map<String, Object> found = new LinkedHashMap<>();
                for (int count = number(3); count > 0; count--) {
                    found.put(TEXTS[number(TEXTS.length)], random(schema.getValueType()));
                }
                return found;
            }
            default: {
                GenericRecord found = new GenericData.Record(schema);
                schema.getFields().forEach(field -> found.put(field.pos(), random(field.schema())));
                return found;
            }
        }
    }

    private static Object shown(Schema schema, Object value) {
        switch (schema.getType()) {
            case STRING: case ENUM: return value.toString();
            case BYTES: return plain(bytes((ByteBuffer) value));
            case FIXED: return plain(((GenericFixed) value).bytes());
            case UNION: {
                Schema branch = schema.getTypes().get(GenericData.get().resolveUnion(schema, value));
                long real = schema.getTypes().stream().filter(one -> one.getType() != Schema.Type.NULL).count();
                return value == null || real == 1 ? shown(branch, value) : Map.of(branch.getName(), shown(branch, value));
            }
            case ARRAY: {
                List<Object> found = new ArrayList<>();
                ((List<?>) value).forEach(one -> found.add(shown(schema.getElementType(), one)));
                return found;
            }
            case MAP: {
                Map<String, Object> found = new LinkedHashMap<>();
                ((Map<?, ?>) value).forEach((key, one) -> found.put(key.toString(), shown(schema.getValueType(), one)));
                return found;
            }
            case RECORD: {
                Map<String, Object> found = new LinkedHashMap<>();
                schema.getFields().forEach(field -> found.put(field.name(), shown(field.schema(), ((IndexedRecord) value).get(field.pos()))));
                return found;
            }
            default: return plain(value);
        }
    }

    // Protobuf

    private static Object protobuf(JsonNode request) throws Exception {
        List<Descriptors.Descriptor> types = new ArrayList<>();
        List<Serializer<DynamicMessage>> registered = new ArrayList<>();
        for (JsonNode schema : request.get("schemas")) {
            FileDescriptorSet set = FileDescriptorSet.parseFrom(Base64.getDecoder().decode(schema.asText()));
            if (request.has("registry")) {
                registered.add(ProtobufSerializerFactory.serializer(settings(request, SerializationFormat.Protobuf), ProtobufSchema.of("Event", set)));
            }
            types.add(Descriptors.FileDescriptor.buildFrom(set.getFile(0), new Descriptors.FileDescriptor[0]).findMessageTypeByName("Event"));
        }
        Descriptors.Descriptor newest = types.get(types.size() - 1);
        List<Object> events = new ArrayList<>();
        for (int count = request.get("events").asInt(); count > 0; count--) {
            int of = number(types.size());
            DynamicMessage message = message(types.get(of));
            byte[] data = message.toByteArray();
            Object value = null;
            try {
                value = shown(DynamicMessage.parseFrom(newest, data));
            } catch (Exception error) {
                // the answer is that there is no value
            }
            events.add(event(of, registered.isEmpty() ? data : bytes(registered.get(of).serialize(message)), value, Map.of()));
        }
        return events;
    }

    private static DynamicMessage message(Descriptors.Descriptor type) {
        DynamicMessage.Builder found = DynamicMessage.newBuilder(type);
        for (FieldDescriptor field : type.getFields()) {
            if (field.isMapField()) {
                FieldDescriptor key = field.getMessageType().findFieldByNumber(1), value = field.getMessageType().findFieldByNumber(2);
                for (int count = number(3); count > 0; count--) {
                    found.addRepeatedField(field, DynamicMessage.newBuilder(field.getMessageType())
                        .setField(key, random(key)).setField(value, random(value)).build());
                }
            } else if (field.isRepeated()) {
                for (int count = number(3); count > 0; count--) {
                    found.addRepeatedField(field, random(field));
                }
            } else if (number(3) > 0) {
                found.setField(field, random(field));
            }
        }
        return found.build();
    }

    private static Object random(FieldDescriptor field) {
        switch (field.getJavaType()) {
            case INT: return (int) wide();
            case LONG: return wide();
            case FLOAT: return small();
            case DOUBLE: return real();
            case BOOLEAN: return random.nextBoolean();
            case STRING: return TEXTS[number(TEXTS.length)];
            case BYTE_STRING: return ByteString.copyFrom(number(2) == 0 ? bytes(number(4)) : TEXTS[number(TEXTS.length)].getBytes(StandardCharsets.UTF_8));
            case ENUM: return number(4) > 0 ? field.getEnumType().getValues().get(number(field.getEnumType().getValues().size()))
                : field.getEnumType().findValueByNumberCreatingIfUnknown(number(9));
            default: return message(field.getMessageType());
        }
    }

    private static Object shown(Message message) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            Object value = field.hasPresence() && !message.hasField(field) ? null : message.getField(field);
            if (field.isMapField()) {
                Map<String, Object> entries = new LinkedHashMap<>();
                for (Object entry : (List<?>) value) {
                    Message one = (Message) entry;
                    FieldDescriptor key = one.getDescriptorForType().findFieldByNumber(1), of = one.getDescriptorForType().findFieldByNumber(2);
                    entries.put(String.valueOf(shown(key, one.getField(key))), shown(of, one.getField(of)));
                }
                found.put(field.getName(), entries);
            } else if (field.isRepeated()) {
                List<Object> each = new ArrayList<>();
                ((List<?>) value).forEach(one -> each.add(shown(field, one)));
                found.put(field.getName(), each);
            } else {
                found.put(field.getName(), value == null ? null : shown(field, value));
            }
        }
        return found;
    }

    private static Object shown(FieldDescriptor field, Object value) {
        switch (field.getType()) {
            case UINT32: case FIXED32: return Integer.toUnsignedLong((Integer) value);
            case UINT64: case FIXED64: return new java.math.BigInteger(Long.toUnsignedString((Long) value));
            case BYTES: return plain(((ByteString) value).toByteArray());
            case MESSAGE: return shown((Message) value);
            case ENUM: {
                Descriptors.EnumValueDescriptor one = (Descriptors.EnumValueDescriptor) value;
                return field.getEnumType().findValueByNumber(one.getNumber()) == null ? String.valueOf(one.getNumber()) : one.getName();
            }
            default: return plain(value);
        }
    }

    // JSON: the texts are given, and go through the serializer's library

    private static Object json(JsonNode request) throws Exception {
        List<Object> events = new ArrayList<>();
        Serializer<JsonNode> registered = null;
        for (JsonNode schema : request.has("registry") ? request.get("schemas") : MAPPER.createArrayNode()) {
            registered = JsonSerializerFactory.serializer(settings(request, SerializationFormat.Json), JSONSchema.of("Event", schema.asText(), JsonNode.class));
        }
        for (JsonNode text : request.get("texts")) {
            JsonNode read = MAPPER.readTree(text.asText());
            byte[] data = MAPPER.writeValueAsBytes(read);
            events.add(event(0, registered == null ? data : bytes(registered.serialize(read)), shown(MAPPER.readTree(data)), Map.of()));
        }
        return events;
    }

    private static Object shown(JsonNode value) {
        if (value.isObject()) {
            Map<String, Object> found = new LinkedHashMap<>();
            value.fields().forEachRemaining(one -> found.put(one.getKey(), shown(one.getValue())));
            return found;
        } else if (value.isArray()) {
            List<Object> found = new ArrayList<>();
            value.forEach(one -> found.add(shown(one)));
            return found;
        }
        return value.isDouble() ? plain(value.asDouble()) : value;
    }
}
