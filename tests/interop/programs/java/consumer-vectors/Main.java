package cometmq.consumers;

import cometmq.support.Json;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Writes what the consumer classes of the release on the class path decide: argument folder. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Files.createDirectories(Paths.get(arguments[0]));
        write(folder, "client-strategies", StrategyVectors.make());
        write(folder, "client-subscriptions", SubscriptionVectors.make());
        write(folder, "client-process-queues", ProcessQueueVectors.make());
        write(folder, "client-local-offsets", OffsetFileVectors.make());
        // Client instances leave threads behind that are no daemons.
        System.exit(0);
    }

    private static void write(Path folder, String kind, List<Map<String, Object>> vectors) throws Exception {
        List<String> lines = new ArrayList<>();
        vectors.forEach(vector -> lines.add(Json.write(vector)));
        String text = "[\n" + String.join(",\n", lines) + "\n]\n";
        Files.write(folder.resolve(kind + ".json"), text.getBytes(StandardCharsets.US_ASCII));
    }
}
