// Writes joda_texts.csv: what Joda-Time (and Java's CLDR below it) makes of patterns with names, by language.
// Dutch is left out: since Java 17's, CLDR has dropped the dots of its short months.
// Run: java -cp "<pyspark jars>/joda-time-2.14.1.jar" JodaTexts.java > joda_texts.csv
import java.util.Locale;
import org.joda.time.DateTime;
import org.joda.time.DateTimeZone;
import org.joda.time.format.DateTimeFormat;

public class JodaTexts {
    public static void main(String[] args) {
        String[] locales = {"en", "en-US", "fr", "fr-FR", "de", "de-DE", "it", "pt", "pt-BR", "sv", "pl", "ja"};
        String[] patterns = {"MMM", "MMMM", "MMMMM", "E", "EEE", "EEEE", "a", "YYYY/MMM/dd EEE", "C CCC"};
        String[] zoned = {"Z", "ZZ", "ZZZ", "ZZZZ"};
        DateTime start = new DateTime(2019, 1, 31, 1, 0, DateTimeZone.UTC);
        for (String locale : locales) {
            for (int month = 0; month < 12; month++) {
                for (String pattern : patterns) {
                    row(locale, "UTC", pattern, start.plusMonths(month).plusHours(11 * (month % 2)).plusDays(month));
                }
            }
        }
        row("en", "UTC", "G GG", start);
        String[] zones = {"UTC", "Europe/Paris", "America/St_Johns", "Australia/Lord_Howe", "America/Sao_Paulo"};
        for (String zone : zones) {
            for (String pattern : zoned) {
                row("en", zone, pattern, start);
                row("en", zone, pattern, start.plusMonths(6));
            }
        }
    }

    static void row(String locale, String zone, String pattern, DateTime time) {
        String encoded = DateTimeFormat.forPattern(pattern).withZone(DateTimeZone.forID(zone))
            .withLocale(Locale.forLanguageTag(locale)).print(time);
        System.out.println(String.join("|", locale, zone, pattern, Long.toString(time.getMillis()), encoded));
    }
}
