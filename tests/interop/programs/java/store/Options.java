package cometmq.store;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/** The options of one command. */
final class Options {
    private static final AtomicInteger COMMANDS = new AtomicInteger();

    /** A client of its own for each command: routes of brokers that are gone are not kept. */
    final String instance = "store-shell-" + COMMANDS.incrementAndGet();
    private final Map<String, String> values = new HashMap<>();

    Options(String[] lines) {
        for (int i = 1; i < lines.length; i++) {
            String[] parts = lines[i].split("=", 2);
            values.put(parts[0], parts[1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing option: " + name);
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    String[] list(String name) {
        String value = text(name);
        return value.isEmpty() ? new String[0] : value.split(",");
    }
}
