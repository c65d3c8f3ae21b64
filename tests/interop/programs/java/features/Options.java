package cometmq.features;

import java.util.List;
import java.util.Map;

/** What a command asks for; an option that is missing or null has its default. */
final class Options {
    private final Map<String, Object> values;

    @SuppressWarnings("unchecked")
    Options(Object values) {
        this.values = values == null ? Map.of() : (Map<String, Object>) values;
    }

    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new IllegalArgumentException("option missing: " + name);
        }
        return value;
    }

    String text(String name, String byDefault) {
        Object value = values.get(name);
        return value == null ? byDefault : (String) value;
    }

    int number(String name, int byDefault) {
        Object value = values.get(name);
        return value == null ? byDefault : ((Long) value).intValue();
    }

    boolean is(String name) {
        return Boolean.TRUE.equals(values.get(name));
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    Options inner(String name) {
        return new Options(values.get(name));
    }

    List<?> list(String name) {
        return (List<?>) values.get(name);
    }

    @SuppressWarnings("unchecked")
    Map<String, String> texts(String name) {
        Object value = values.get(name);
        return value == null ? Map.of() : (Map<String, String>) value;
    }
}
