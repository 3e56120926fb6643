import java.io.*;
import java.math.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.avro.Schema.Parser;
import org.apache.avro.generic.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.*;
import io.aiven.kafka.connect.common.config.*;
import io.aiven.kafka.connect.common.output.OutputWriter;
import io.confluent.connect.avro.*;
import io.confluent.connect.s3.S3SinkConnectorConfig;
import io.confluent.connect.s3.format.*;
import io.confluent.connect.s3.format.avro.AvroFormat;
import io.confluent.connect.s3.format.bytearray.ByteArrayFormat;
import io.confluent.connect.s3.format.json.JsonFormat;
import io.confluent.connect.s3.format.parquet.ParquetFormat;
import io.confluent.connect.s3.storage.S3Storage;
import io.confluent.connect.storage.format.*;

/** Writes the files of this folder by the sinks' own writers, see README.md. */
public final class WriteSinkFiles {
    static final String ORDER = """
        {"type":"record","name":"Order","namespace":"shop","fields":[
         {"name":"id","type":"long"},
         {"name":"region","type":{"type":"enum","name":"Region","symbols":["US","EU"]}},
         {"name":"other","type":["null","Region"],"default":null},
         {"name":"hash","type":{"type":"fixed","name":"Hash","size":4}},
         {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
         {"name":"exact","type":{"type":"fixed","name":"Exact","size":6,"logicalType":"decimal","precision":9,"scale":2}},
         {"name":"day","type":{"type":"int","logicalType":"date"}},
         {"name":"clock","type":{"type":"int","logicalType":"time-millis"}},
         {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
         {"name":"choice","type":["null","int","string"%s]},
         {"name":"tags","type":{"type":"array","items":["null","string"]}},
         {"name":"zones","type":{"type":"map","values":"Region"}},
         {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
           {"name":"sku","type":"string"},{"name":"where","type":"Region"}]}}},
         {"name":"raw","type":"bytes"}]}""";
    static final long[] OFFSETS = {10, 12, 13};
    static final long[] TIMES = {1577836801250L, 1577836802000L, 1577836803007L};
    static File folder;

    static byte[] b(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }

    static GenericRecord order(org.apache.avro.Schema s, long id, boolean nulls) {
        GenericRecord r = new GenericData.Record(s);
        java.util.function.Function<String, org.apache.avro.Schema> f = n -> s.getField(n).schema();
        String region = id % 2 == 0 ? "US" : "EU";
        GenericData.EnumSymbol e = new GenericData.EnumSymbol(f.apply("region"), region);
        r.put("id", id);
        r.put("region", e);
        r.put("other", id == 1 ? null : e);
        byte[] four = {(byte) 255, 0, 1, (byte) id};
        r.put("hash", new GenericData.Fixed(f.apply("hash"), four));
        r.put("price", ByteBuffer.wrap(BigInteger.valueOf(-1234 + id).toByteArray()));
        byte[] six = {0, 0, 0, 0, 4, (byte) (200 + id)};
        r.put("exact", new GenericData.Fixed(f.apply("exact"), six));
        r.put("day", 18262 + (int) id);
        r.put("clock", 3600000 + (int) id);
        r.put("at", 1577836800000L + id);
        Object[] choices = {7, "EU", new GenericData.EnumSymbol(f.apply("region"), "EU"), new GenericData.Fixed(f.apply("hash"), four)};
        boolean isLong = f.apply("choice").getTypes().size() > 3;
        r.put("choice", id == 4 ? null : choices[(int) id % (isLong ? 4 : 2)]);
        r.put("tags", id == 0 ? List.of() : Arrays.asList("a", nulls ? null : "b"));
        r.put("zones", new TreeMap<>(Map.of("z", e)));
        GenericRecord line = new GenericData.Record(f.apply("lines").getElementType());
        line.put("sku", "s" + id);
        line.put("where", e);
        r.put("lines", List.of(line, line));
        r.put("raw", ByteBuffer.wrap(new byte[] {(byte) 254, (byte) id}));
        return r;
    }

    static List<SchemaAndValue> orders(Map<String, String> config, int count, boolean nulls) {
        // Two branches that Connect takes for text make no union again without enhanced schemas.
        var s = new Parser().parse(String.format(ORDER, config.containsKey("enhanced.avro.schema.support") ? ",\"Region\",\"Hash\"" : ""));
        var data = new AvroData(new AvroDataConfig(config));
        List<SchemaAndValue> found = new ArrayList<>();
        for (int id = 0; id < count; id++) found.add(data.toConnectData(s, order(s, id, nulls)));
        return found;
    }

    static List<SchemaAndValue> by(Converter c, Map<String, ?> config, boolean key, String... texts) {
        c.configure(config, key);
        List<SchemaAndValue> found = new ArrayList<>();
        for (String t : texts) found.add(c.toConnectData("t", b(t)));
        return found;
    }

    static ConnectHeaders headers(HeaderConverter c, String... pairs) {
        c.configure(Map.of("converter.type", "header"));
        ConnectHeaders h = new ConnectHeaders();
        for (int i = 0; i < pairs.length; i += 2) h.add(pairs[i], c.toConnectHeader("t", pairs[i], b(pairs[i + 1])));
        return h;
    }

    static List<SinkRecord> records(List<SchemaAndValue> keys, List<SchemaAndValue> values, List<ConnectHeaders> headers) {
        List<SinkRecord> found = new ArrayList<>();
        for (int i = 0; i < values.size(); i++) {
            SchemaAndValue k = keys.get(i % keys.size()), v = values.get(i);
            long offset = i < 3 ? OFFSETS[i] : 11 + i;
            long time = i < 3 ? TIMES[i] : TIMES[2] + i;
            found.add(new SinkRecord("t", 0, k.schema(), k.value(), v.schema(), v.value(), offset, time, TimestampType.CREATE_TIME,
                headers.isEmpty() ? new ConnectHeaders() : headers.get(i % headers.size())));
        }
        return found;
    }

    static void aiven(String name, String type, String fields, boolean envelope, Map<String, String> more, List<SinkRecord> records) throws Exception {
        var encoding = OutputFieldEncodingType.forName(more.getOrDefault("format.output.fields.value.encoding", "base64"));
        List<OutputField> found = new ArrayList<>();
        for (String f : fields.split(",")) {
            var kind = OutputFieldType.forName(f);
            found.add(new OutputField(kind, kind == OutputFieldType.VALUE ? encoding : OutputFieldEncodingType.NONE));
        }
        var compression = CompressionType.forName(more.getOrDefault("file.compression.type", "none"));
        Map<String, String> external = new HashMap<>(more);
        external.put("file.compression.type", compression.name);
        try (var out = new FileOutputStream(new File(folder, "aiven-" + name));
            var writer = OutputWriter.builder().withExternalProperties(external).withOutputFields(found)
                .withCompressionType(compression).withEnvelopeEnabled(envelope).build(out, FormatType.forName(type))) {
            writer.writeRecords(records);
        }
        System.out.println("aiven-" + name);
    }

    static RecordWriterProvider<S3SinkConnectorConfig> provider(String kind, S3Storage storage, RecordView view) {
        RecordWriterProvider<S3SinkConnectorConfig> found = switch (kind) {
            case "avro" -> new AvroFormat(storage).getRecordWriterProvider();
            case "json" -> new JsonFormat(storage).getRecordWriterProvider();
            case "parquet" -> new ParquetFormat(storage).getRecordWriterProvider();
            default -> new ByteArrayFormat(storage).getRecordWriterProvider();
        };
        ((RecordViewSetter) found).setRecordView(view);
        return found;
    }

    static void confluent(String name, String value, String key, String headers, Map<String, String> more, List<SinkRecord> records) {
        var conf = new S3SinkConnectorConfig(more);
        var storage = new S3Storage(conf, folder);
        var writer = new KeyValueHeaderRecordWriterProvider(provider(value, storage, new RecordViews.ValueRecordView()),
            key == null ? null : provider(key, storage, new RecordViews.KeyRecordView()),
            headers == null ? null : provider(headers, storage, new RecordViews.HeaderRecordView()))
            .getRecordWriter(conf, "confluent-" + name);
        for (SinkRecord r : records) writer.write(r);
        writer.commit();
        writer.close();
        System.out.println("confluent-" + name);
    }

    static void tried(String what, Callable run) {
        try { run.call(); } catch (Throwable e) { System.out.println("FAILED " + what + ": " + e); e.printStackTrace(System.out); }
    }
    interface Callable { void call() throws Exception; }

    public static void main(String[] args) throws Exception {
        folder = new File(args[0]);
        folder.mkdirs();
        Map<String, Object> plain = Map.of("schemas.enable", false);
        String all = "key,value,offset,timestamp,headers";
        var bytesKeys = by(new ByteArrayConverter(), Map.of(), true, "k0", "", null);
        var stringKeys = by(new StringConverter(), Map.of(), true, "k0", "k1", "k2");
        var bytesHeaders = List.of(headers(new ByteArrayConverter(), "h", "x", "h", "", "id", "007"), new ConnectHeaders());
        var same = List.of(headers(new ByteArrayConverter(), "h", "x", "id", "007"));
        var stringHeaders = List.of(headers(new StringConverter(), "h", "x", "id", "007"));
        var simpleHeaders = List.of(headers(new SimpleHeaderConverter(), "h", "x", "id", "007"));
        var bytes = by(new ByteArrayConverter(), Map.of(), false, "v,0", "", null);
        var json = by(new JsonConverter(), plain, false, "{\"a\":1,\"b\":[\"x\",null]}", "\"text\"", null);
        var texts = by(new StringConverter(), Map.of(), false, "t0", "t,1", "t2");
        Map<String, String> none = Map.of();
        Map<String, String> enhanced = Map.of("enhanced.avro.schema.support", "true");
        Map<String, String> flat = Map.of("connect.meta.data", "false");

        tried("a", () -> aiven("all.csv", "csv", all, true, none, records(bytesKeys, bytes, bytesHeaders)));
        tried("a", () -> aiven("reordered.csv.gz", "csv", "timestamp,offset,value,headers,key", true,
            Map.of("file.compression.type", "gzip", "format.output.fields.value.encoding", "none"), records(bytesKeys, bytes, bytesHeaders)));
        tried("a", () -> aiven("value.csv", "csv", "value", true, none, records(bytesKeys, bytes, List.of())));
        tried("a", () -> aiven("value-plain.csv.zst", "csv", "value", true,
            Map.of("file.compression.type", "zstd", "format.output.fields.value.encoding", "none"), records(stringKeys, by(new ByteArrayConverter(), Map.of(), false, "a,b", "c", ""), List.of())));
        tried("a", () -> aiven("json.jsonl", "jsonl", all, true, none, records(stringKeys, json, bytesHeaders)));
        tried("a", () -> aiven("simple-headers.jsonl.gz", "jsonl", all, true, Map.of("file.compression.type", "gzip"), records(stringKeys, json, simpleHeaders)));
        tried("a", () -> aiven("bytes.jsonl", "jsonl", all, true, none, records(bytesKeys, bytes, bytesHeaders)));
        tried("a", () -> aiven("bare.jsonl", "jsonl", "value", false, none, records(stringKeys, json, List.of())));
        tried("a", () -> aiven("bare-bytes.jsonl", "jsonl", "value", false, none, records(bytesKeys, bytes, List.of())));
        tried("a", () -> aiven("json.json.zst", "json", all, true, Map.of("file.compression.type", "zstd"), records(stringKeys, json, bytesHeaders)));
        tried("a", () -> aiven("bare.json", "json", "value", false, none, records(stringKeys, json, List.of())));
        for (String kind : List.of("avro", "parquet")) {
            tried(kind, () -> aiven("orders." + kind, kind, all, true, enhanced, records(stringKeys, orders(enhanced, 5, kind.equals("avro")), stringHeaders)));
            tried(kind, () -> aiven("bytes-headers." + kind, kind, all, true, none, records(stringKeys, texts, same)));
            tried(kind, () -> aiven("no-headers." + kind, kind, all, true, none, records(stringKeys, texts, List.of())));
            tried(kind, () -> aiven("bare-orders." + kind, kind, "value", false, enhanced, records(stringKeys, orders(enhanced, 5, kind.equals("avro")), List.of())));
            tried(kind, () -> aiven("bare-texts." + kind, kind, "value", false, none, records(stringKeys, texts, List.of())));
            tried(kind, () -> aiven("value." + kind, kind, "value", true, none, records(stringKeys, texts, List.of())));
        }
        tried("a", () -> aiven("bytes.avro", "avro", all, true, Map.of("avro.codec", "deflate"), records(bytesKeys, bytes, stringHeaders)));
        tried("a", () -> aiven("bytes.parquet", "parquet", all, true, Map.of("file.compression.type", "gzip"), records(bytesKeys, bytes, stringHeaders)));

        tried("c", () -> confluent("orders", "avro", "avro", "avro", none, records(stringKeys, orders(none, 5, true), stringHeaders)));
        tried("c", () -> confluent("enhanced", "avro", "json", "json", enhanced, records(stringKeys, orders(enhanced, 5, true), same)));
        tried("c", () -> confluent("no-metadata", "avro", "avro", null, flat, records(stringKeys, orders(flat, 2, true), List.of())));
        tried("c", () -> confluent("orders", "parquet", "parquet", "parquet", none, records(stringKeys, orders(none, 5, true), stringHeaders)));
        tried("c", () -> confluent("enhanced", "parquet", "avro", "avro", enhanced, records(stringKeys, orders(enhanced, 5, true), same)));
        tried("c", () -> confluent("plain", "parquet", "avro", null, Map.of("parquet.codec", "gzip"), records(stringKeys, orders(none, 2, true), List.of())));
        tried("c", () -> confluent("orders", "json", "json", "json", none, records(stringKeys, orders(none, 5, true), stringHeaders)));
        tried("c", () -> confluent("values", "json", "json", "json", Map.of("s3.compression.type", "gzip"), records(stringKeys, json.subList(0, 2), same)));
        tried("c", () -> confluent("bytes", "json", "json", null, none, records(by(new ByteArrayConverter(), Map.of(), true, "k0", "k1"), bytes.subList(0, 2), List.of())));
        tried("c", () -> confluent("bytes", "bytes", "bytes", null, none, records(by(new ByteArrayConverter(), Map.of(), true, "k0", "k1"), bytes.subList(0, 2), List.of())));
        tried("c", () -> confluent("texts", "avro", "bytes", null, Map.of("avro.codec", "deflate"), records(by(new ByteArrayConverter(), Map.of(), true, "k0"), texts, List.of())));
        tried("c", () -> confluent("tombstone", "avro", "avro", "json", none, records(stringKeys, List.of(SchemaAndValue.NULL, SchemaAndValue.NULL), same)));
    }
}
