// Writes json_nulls.jsonl: what Kafka's own JsonConverter reads where a field is null, absent or there, a line each.
// Run: java -cp "<connect-json 4.3.1 and what it needs>/*" JsonNulls.java > json_nulls.jsonl
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

public class JsonNulls {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String DECIMAL = "'type':'bytes','name':'org.apache.kafka.connect.data.Decimal','version':1,"
        + "'parameters':{'scale':'2'}";
    static final String[][] TYPES = {
        {"'type':'string'", "'x'", "''"},
        {"'type':'int32'", "41", "0"},
        {"'type':'boolean'", "true", "false"},
        {DECIMAL, "1.25", "0.5"},
        {"'type':'int64','name':'io.debezium.time.MicroTimestamp','version':1", "7", "9"},
        {"'type':'array','items':{'type':'int32','optional':true}", "[1,null]", "[2]"},
    };

    public static void main(String[] args) throws Exception {
        for (String replace : new String[] {"true", "false"}) {
            for (String[] type : TYPES) {
                for (String optional : new String[] {"true", "false"}) {
                    for (String dflt : new String[] {"", ",'default':" + type[2]}) {
                        String schema = "{" + type[0] + ",'optional':" + optional + dflt + ",'field':'f'}";
                        for (String payload : new String[] {"{}", "{'f':null}", "{'f':" + type[1] + "}"}) {
                            line(replace, schema, payload);
                        }
                    }
                }
            }
        }
    }

    static void line(String replace, String field, String payload) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true", "replace.null.with.default", replace), false);
        String text = ("{'schema':{'type':'struct','fields':[" + field + "]},'payload':" + payload + "}").replace('\'', '"');
        ObjectNode line = JSON.createObjectNode().put("replace", replace).put("text", text);
        try {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            Object value = ((Struct) converter.toConnectData("t", bytes).value()).getWithoutDefault("f");
            line.put("fails", false).set("value", JSON.valueToTree(value));
        } catch (DataException error) {
            line.put("fails", true);
        }
        System.out.println(JSON.writeValueAsString(line));
    }
}
