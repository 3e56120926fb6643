import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** Checks what brokers of MSK check of a token: its shape, region and action, its expiry, its signature (AWS's version 4). */
public class MskValidator implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    private Map<String, ?> options;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        options = entries.get(0).getOptions();
    }

    @Override
    public void close() {}

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback asked) {
                try {
                    asked.token(check(asked.tokenValue()));
                } catch (Exception err) {
                    System.out.println("MskValidator: " + err);
                    asked.error("invalid_token", null, null);
                }
            }
        }
    }

    private OAuthBearerToken check(String value) throws Exception {
        URI url = new URI(new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8));
        TreeMap<String, String> query = new TreeMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            query.put(pair.split("=")[0], pair.split("=")[1]);
        }
        String signature = query.remove("X-Amz-Signature");
        query.remove("User-Agent");
        String region = (String) options.get("region");
        String[] scope = URLDecoder.decode(query.get("X-Amz-Credential"), StandardCharsets.UTF_8).split("/");
        Object secret = options.get("secret_" + scope[0]);
        require(url.getHost().equals("kafka." + region + ".amazonaws.com"), "host " + url.getHost());
        require(query.get("Action").equals("kafka-cluster%3AConnect"), "action " + query.get("Action"));
        require(scope[2].equals(region) && scope[3].equals("kafka-cluster"), "scope " + String.join("/", scope));
        require(secret != null, "access key " + scope[0]);
        String canonical = query.entrySet().stream()
            .map(entry -> entry.getKey() + "=" + entry.getValue()).collect(Collectors.joining("&"));
        String request = String.join("\n", "GET", "/", canonical, "host:" + url.getHost(), "", "host", hash(""));
        String place = String.join("/", scope[1], scope[2], scope[3], scope[4]);
        String signed = String.join("\n", "AWS4-HMAC-SHA256", query.get("X-Amz-Date"), place, hash(request));
        byte[] key = ("AWS4" + secret).getBytes(StandardCharsets.UTF_8);
        for (String part : List.of(scope[1], scope[2], scope[3], scope[4])) {
            key = mac(key, part);
        }
        require(HexFormat.of().formatHex(mac(key, signed)).equals(signature), "signature");
        long start = Instant.from(TIME.parse(query.get("X-Amz-Date"))).toEpochMilli();
        long end = start + 1000 * Long.parseLong(query.get("X-Amz-Expires"));
        require(System.currentTimeMillis() < end, "expiry");
        return new Token(value, start, end, (String) options.get("user_" + scope[0]));
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException(what);
        }
    }

    private static String hash(String text) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        return HexFormat.of().formatHex(digest.digest(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static byte[] mac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private record Token(String value, Long startTimeMs, long lifetimeMs, String principalName)
        implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }
    }
}
