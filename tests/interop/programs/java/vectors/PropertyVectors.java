package cometmq.vectors;

import cometmq.support.Json;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;

/** The property string of a message, written and read. */
final class PropertyVectors {
    private static final String[] TEXTS = {
        "", "a\u0001b\u0002", "a\u0001b", "a\u0001b\u0002c\u0001d", "a\u0001b\u0002c\u0001d\u0002",
        "\u0002a\u0001b\u0002", "\u0002\u0002\u0002", "a\u0001\u0002", "\u0001b\u0002", "\u0001\u0002", "a\u0002", "ab",
        "abc", "a\u0001b\u0001c\u0002", "\u0001a\u0001b\u0002", "a\u0001\u0001\u0002", "a\u0001b\u0002a\u0001c\u0002",
        "key\u0001", "\u0001\u0001\u0001\u0002", "ab\u0001\u0002x\u0001y", "a\u0001b\u0002\u0002c\u0001d\u0002",
        "\u6d88\u0001\u606f\u0002", "\ud83d\ude00\u0001\ud800\u0002", " \u0001 \u0002",
    };

    private PropertyVectors() {
    }

    static VectorFile make() {
        VectorFile file = new VectorFile();
        for (String text : TEXTS) {
            Map<String, Object> vector = Json.object("text", text);
            VectorFile.result(vector, "read", () -> Json.sorted(MessageDecoder.string2messageProperties(text)));
            file.add(vector);
        }
        write(file);
        write(file, "a", "b");
        write(file, "a", "b", "c", "d");
        write(file, "a", null, "c", "d");
        write(file, "a", "", "c", "d");
        write(file, "", "b");
        write(file, "\u6d88", "\ud83d\ude00");
        return file;
    }

    private static void write(VectorFile file, String... namesAndValues) {
        Map<String, String> properties = new TreeMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            properties.put(namesAndValues[i], namesAndValues[i + 1]);
        }
        file.add("properties", Json.pairs(properties), "written", MessageDecoder.messageProperties2String(properties));
    }
}
