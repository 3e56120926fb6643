// Writes json_envelopes.jsonl: what Kafka's own JsonConverter makes of values with their schemas, a line each.
// Run: java -cp "<connect-json 3.7.1 and what it needs>/*" JsonEnvelopes.java > json_envelopes.jsonl
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

public class JsonEnvelopes {
    static final String AVRO = "io.confluent.connect.avro.";

    public static void main(String[] args) {
        Schema inner = SchemaBuilder.struct().name("shop.Inner").version(3).doc("told").parameter("a", "b")
            .field("n", Schema.INT32_SCHEMA).optional().build();
        Schema order = SchemaBuilder.struct().name("shop.Order")
            .field("i8", Schema.INT8_SCHEMA).field("i16", Schema.INT16_SCHEMA).field("i32", Schema.INT32_SCHEMA)
            .field("i64", Schema.INT64_SCHEMA).field("f32", Schema.FLOAT32_SCHEMA).field("f64", Schema.FLOAT64_SCHEMA)
            .field("yes", Schema.BOOLEAN_SCHEMA).field("text", Schema.STRING_SCHEMA).field("raw", Schema.BYTES_SCHEMA)
            .field("price", Decimal.schema(2))
            .field("day", org.apache.kafka.connect.data.Date.SCHEMA).field("at", Time.SCHEMA).field("when", Timestamp.SCHEMA)
            .field("many", SchemaBuilder.array(Schema.OPTIONAL_STRING_SCHEMA).build())
            .field("named", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT64_SCHEMA).build())
            .field("numbered", SchemaBuilder.map(Schema.INT32_SCHEMA, Schema.STRING_SCHEMA).build())
            .field("inner", inner).field("none", inner)
            .field("state", SchemaBuilder.string().name("shop.State").parameter(AVRO + "Enum", "shop.State")
                .parameter(AVRO + "Enum.NEW", "NEW").parameter(AVRO + "Enum.OLD", "OLD").build())
            .field("nan", Schema.FLOAT64_SCHEMA).field("far", Schema.FLOAT32_SCHEMA)
            .field("either", SchemaBuilder.struct().name(AVRO + "Union").optional()
                .field("int", Schema.OPTIONAL_INT32_SCHEMA).field("string", Schema.OPTIONAL_STRING_SCHEMA).build())
            .field("spare", SchemaBuilder.int64().parameter(AVRO + "field.default", "true").defaultValue(7L).build())
            .field("bits", SchemaBuilder.bytes().parameter(AVRO + "field.default", "true")
                .defaultValue(new byte[] {(byte) 255, 1}).build())
            .field("kept", SchemaBuilder.string().optional().defaultValue("x").build())
            .build();
        Map<String, Long> named = new HashMap<>();
        named.put("one", 1L);
        Map<Integer, String> numbered = new HashMap<>();
        numbered.put(1, "one");
        Struct value = new Struct(order)
            .put("i8", (byte) -8).put("i16", (short) 16).put("i32", 32).put("i64", 1L << 60).put("f32", 0.1f)
            .put("f64", 0.25).put("yes", true).put("text", "né \" \\ \n").put("raw", new byte[] {0, (byte) 255, 62, 63})
            .put("price", new BigDecimal("-12.34"))
            .put("day", new Date(18_322L * 86_400_000)).put("at", new Date(45_296_789L)).put("when", new Date(1_583_064_000_123L))
            .put("many", Arrays.asList("a", null)).put("named", named).put("numbered", numbered)
            .put("inner", new Struct(inner).put("n", 5)).put("none", null).put("state", "NEW")
            .put("nan", Double.NaN).put("far", Float.NEGATIVE_INFINITY)
            .put("either", new Struct(order.field("either").schema()).put("string", "s"))
            .put("spare", 8L).put("bits", new byte[] {1}).put("kept", null);
        for (String decimals : new String[] {"BASE64", "NUMERIC"}) {
            line(decimals, order, value);
        }
        line("BASE64", Schema.OPTIONAL_STRING_SCHEMA, "a");
        line("BASE64", Schema.OPTIONAL_BYTES_SCHEMA, new byte[] {1, 2});
        line("BASE64", SchemaBuilder.array(Schema.FLOAT32_SCHEMA).build(), Arrays.asList(1.5f));
        line("BASE64", null, Map.of("a", Arrays.asList(1L, "b")));
        line("BASE64", null, null);
    }

    static void line(String decimals, Schema schema, Object value) {
        JsonConverter converter = new JsonConverter();
        Map<String, String> config = new HashMap<>();
        config.put("schemas.enable", "true");
        config.put("decimal.format", decimals);
        config.put("replace.null.with.default", "false");
        converter.configure(config, false);
        byte[] made = converter.fromConnectData("t", schema, value);
        System.out.println(made == null ? "" : new String(made, StandardCharsets.UTF_8));
    }
}
