package cometmq.vectors;

import cometmq.support.Json;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;

/** The body of a batch send, as the client encodes it and the broker's side reads it back. */
final class BatchVectors {
    private final VectorFile file = new VectorFile();

    private BatchVectors() {
    }

    static VectorFile make() {
        BatchVectors vectors = new BatchVectors();
        Message plain = message("body", 0);
        Message keyed = message("\u00e9\ud83d\ude00", 7);
        keyed.setKeys("k1 k2");
        keyed.setTags("TagA");
        Message negative = message("x", -1);
        negative.putUserProperty("city", "\u6771\u4eac");
        vectors.add("one", Collections.singletonList(plain));
        vectors.add("three", Arrays.asList(plain, keyed, negative));
        vectors.add("empty body", Arrays.asList(message("", 0), plain));
        Message astral = message("x", 0);
        astral.putUserProperty("astral", "\ud83d\ude00");
        astral.putUserProperty("lone", "\ud800");
        vectors.add("surrogates in a property", Collections.singletonList(astral));
        vectors.add("none", Collections.emptyList());
        return vectors.file;
    }

    private void add(String name, List<Message> messages) {
        List<Object> written = described(messages);
        byte[] encoded = MessageDecoder.encodeMessages(messages);
        Map<String, Object> vector = Json.object("name", name, "messages", written, "encoded", encoded);
        VectorFile.result(vector, "decoded", () -> described(MessageDecoder.decodeMessages(ByteBuffer.wrap(encoded))));
        file.add(vector);
    }

    private static List<Object> described(List<Message> messages) {
        List<Object> all = new ArrayList<>();
        for (Message message : messages) {
            all.add(Json.object(
                "flag", message.getFlag(),
                "body", message.getBody(),
                "properties", Json.pairs(message.getProperties())));
        }
        return all;
    }

    private static Message message(String body, int flag) {
        Message message = new Message("T", body.getBytes(StandardCharsets.UTF_8));
        message.setFlag(flag);
        return message;
    }
}
