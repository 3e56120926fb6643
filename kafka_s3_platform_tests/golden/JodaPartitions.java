// Writes joda_partitions.csv: what Joda-Time makes of Connect's time-based encoding (zone, duration, pattern).
// Run: java -cp "<pyspark jars>/joda-time-2.14.1.jar" JodaPartitions.java > joda_partitions.csv
import java.util.Arrays;
import java.util.Random;
import org.joda.time.DateTime;
import org.joda.time.DateTimeZone;
import org.joda.time.format.DateTimeFormat;

public class JodaPartitions {
    static final String HOURLY = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH";
    static final long HOUR = 3_600_000L;

    public static void main(String[] args) {
        String[] zones = {"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe",
            "America/Sao_Paulo", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"};
        String[][] patterns = {
            {HOURLY, "3600000"}, {"'year'=YYYY/'month'=MM/'day'=dd", "86400000"}, {HOURLY, "7200000"},
            {"yyyy-MM-dd'T'HH:mm:ss.SSS", "900000"}, {"yy/M/d/H/m/s/SSSSS", "250"}, {"x/ww/e DDD D", "86400000"},
            {"YY 'o''clock' k K h kk KK hh '' y Y x", "1800000"}, {"YYYYYY/'unclosed", "1000"}};
        long[] edges = {0, 1, 951_782_400_000L, 1_356_998_400_000L, 1_364_691_600_000L, 1_382_835_600_000L,
            1_362_898_800_000L, 1_383_458_400_000L, 1_365_260_400_000L, 1_380_988_800_000L, 1_539_486_000_000L,
            1_319_945_460_000L, 1_300_000_260_000L, 1_325_239_200_000L, 4_102_444_800_000L};
        Random random = new Random(7);
        for (String zone : zones) {
            boolean every = zone.equals("UTC") || zone.equals("America/New_York");
            for (String[] pattern : every ? patterns : Arrays.copyOf(patterns, 4)) {
                for (long edge : edges) {
                    row(zone, pattern, edge);
                    row(zone, pattern, Math.max(0, edge + (long) (random.nextDouble() * 4 * HOUR) - 2 * HOUR));
                }
                if (zone.equals("UTC")) {
                    row(zone, pattern, -1);
                    row(zone, pattern, -86_400_000L);
                    row(zone, pattern, -12_345_678_901L);
                }
            }
        }
    }

    static void row(String zoneId, String[] pattern, long timestamp) {
        DateTimeZone zone = DateTimeZone.forID(zoneId);
        long duration = Long.parseLong(pattern[1]);
        long local = zone.convertUTCToLocal(timestamp);
        long start = zone.convertLocalToUTC(local / duration * duration, false);
        String encoded = DateTimeFormat.forPattern(pattern[0]).withZone(zone).print(new DateTime(start));
        System.out.println(String.join("|", zoneId, pattern[1], pattern[0], Long.toString(timestamp), encoded));
    }
}
