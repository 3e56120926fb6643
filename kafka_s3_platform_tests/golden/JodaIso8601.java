// Writes joda_iso8601.csv: what Joda-Time's ISODateTimeFormat.dateTimeParser(), which reads the texts of Connect's
// RecordField extractor, makes of them in a zone; empty where it refuses.
// Run: java -cp "<pyspark jars>/joda-time-2.14.1.jar" JodaIso8601.java > joda_iso8601.csv
import java.util.ArrayList;
import java.util.List;
import org.joda.time.DateTimeZone;
import org.joda.time.format.DateTimeFormatter;
import org.joda.time.format.ISODateTimeFormat;

public class JodaIso8601 {
    public static void main(String[] args) {
        List<String> texts = new ArrayList<>();
        String[] dates = {"2019-03-12", "2019-03", "2019", "2019-071", "2020-366", "2019-366", "2019-W11-2", "2019-W11",
            "2020-W53-7", "2019-W53-1", "2019-3-5", "2019-02-30", "2019-13-01", "2020-02-29", "19-03-12", "2019/03/12",
            "2019-03-", "2019-12-31", "0001-01-05", "9999-12-25", "2019-1234", "2019-00-10", "2019-W00", "2019-000"};
        String[] times = {"", "T", "T12", "T12:00", "T12:00:01", "T12:00:01.003", "T12:00:01,003", "T12:00:01.123456",
            "T12:00:01.123456789", "T12:00:01.1234567891", "T12.5", "T12:30.25", "T24:00", "T23:59:60", "T12:60", "T1:2:3",
            "T12:00:01.", " 12:00:01", "t12:00:01", "T00:00:00.9999", "T23:59:59.999", "T1200"};
        String[] offsets = {"", "Z", "z", "+01", "+01:00", "-0330", "+05:45", "-00:00", "+01:00:30", "+24:00", "+1:00",
            " Z", "[UTC]", "+01:00:30.5", "+01:60"};
        for (String date : dates) {
            for (String time : new String[] {"", "T12:00:01.003", "T12:00:01Z"}) {
                texts.add(date + time);
            }
        }
        for (String time : times) {
            texts.add("2019-03-12" + time);
            for (String offset : offsets) {
                texts.add("2019-03-12" + time + offset);
            }
        }
        texts.addAll(List.of("", "now", "null", "2019-03-31T00:00", "2019-10-27T02:30", " 2019-03-12"));
        for (String zone : new String[] {"UTC", "Europe/Paris"}) {
            DateTimeFormatter parser = ISODateTimeFormat.dateTimeParser().withZone(DateTimeZone.forID(zone));
            for (String text : texts) {
                String millis;
                try {
                    millis = Long.toString(parser.parseMillis(text));
                } catch (IllegalArgumentException refused) {
                    millis = "";
                }
                System.out.println(String.join("|", zone, text, millis));
            }
        }
    }
}
