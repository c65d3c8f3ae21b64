package cometmq.vectors;

import cometmq.support.Json;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;

/** One kind of vectors: a JSON array with one vector on each line, so that a change shows as lines. */
final class VectorFile {
    private final List<String> lines = new ArrayList<>();

    void add(Object... namesAndValues) {
        add(Json.object(namesAndValues));
    }

    void add(Map<String, Object> vector) {
        lines.add(Json.write(vector));
    }

    void write(Path folder, String kind) throws IOException {
        String text = "[\n" + String.join(",\n", lines) + "\n]\n";
        Files.write(folder.resolve(kind + ".json"), text.getBytes(StandardCharsets.US_ASCII));
    }

    /** Puts what the action gives under the name, or the name of what it throws under "error". */
    static void result(Map<String, Object> vector, String name, Callable<?> action) {
        try {
            vector.put(name, action.call());
        } catch (Throwable failure) {
            vector.put("error", failure.getClass().getSimpleName());
        }
    }
}
