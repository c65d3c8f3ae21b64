package cometmq.support;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Standard JSON in ASCII, so that what we print never depends on the JSON library under test. A lone
 * surrogate survives as its escape; bytes become base64.
 */
public final class Json {
    private Json() {
    }

    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    /** An object with its members in the order given: name, value, name, value. */
    public static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> members = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            members.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return members;
    }

    /** The entries of a map as [key, value] pairs, in the map's own order. */
    public static List<Object> pairs(Map<?, ?> map) {
        List<Object> pairs = new ArrayList<>();
        map.forEach((key, value) -> pairs.add(Arrays.asList(key, value)));
        return pairs;
    }

    public static Map<String, String> sorted(Map<String, String> map) {
        return map == null ? null : new TreeMap<>(map);
    }

    private static void append(StringBuilder out, Object value) {
        if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long
            || value instanceof Short) {
            out.append(value);
        } else if (value instanceof byte[]) {
            appendText(out, Base64.getEncoder().encodeToString((byte[]) value));
        } else if (value instanceof Map) {
            appendObject(out, (Map<?, ?>) value);
        } else if (value instanceof Collection) {
            appendArray(out, (Collection<?>) value);
        } else if (value instanceof String) {
            appendText(out, (String) value);
        } else {
            throw new IllegalArgumentException("not for JSON: " + value.getClass());
        }
    }

    private static void appendObject(StringBuilder out, Map<?, ?> map) {
        String separator = "";
        out.append('{');
        for (Map.Entry<?, ?> member : map.entrySet()) {
            out.append(separator);
            appendText(out, (String) member.getKey());
            out.append(':');
            append(out, member.getValue());
            separator = ",";
        }
        out.append('}');
    }

    private static void appendArray(StringBuilder out, Collection<?> items) {
        String separator = "";
        out.append('[');
        for (Object item : items) {
            out.append(separator);
            append(out, item);
            separator = ",";
        }
        out.append(']');
    }

    private static void appendText(StringBuilder out, String text) {
        out.append('"');
        for (char unit : text.toCharArray()) {
            if (unit == '"' || unit == '\\') {
                out.append('\\').append(unit);
            } else if (unit < ' ' || unit > '~') {
                out.append(String.format("\\u%04x", (int) unit));
            } else {
                out.append(unit);
            }
        }
        out.append('"');
    }
}
