package cometmq.bench;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Messages as a broker hands them to its store, made before the clock runs; each has a key of its own. */
final class Messages {
    static final String[] TAGS = {"TagA", "TagB"};
    static final InetSocketAddress BORN_HOST = new InetSocketAddress("10.0.0.5", 40123);
    static final InetSocketAddress STORE_HOST = new InetSocketAddress("10.0.0.6", 10911);
    private static final int BATCH_HEAD_BYTES = 22;

    private long made;

    /** Messages of "body" bytes, or batches of "batch" of them, going round "queues" queues. */
    List<Object> make(StoreBench.Options options) {
        int count = options.number("count");
        int batch = options.number("batch");
        int queues = options.number("queues");
        byte[] body = new byte[options.number("body")];
        String[] topics = topics(queues);
        List<Object> messages = new ArrayList<>(count / batch);
        for (int i = 0; i < count / batch; i++) {
            int queue = (int) (made / batch % queues);
            String topic = topics[queue / StoreBench.QUEUES_PER_TOPIC];
            int queueId = queue % StoreBench.QUEUES_PER_TOPIC;
            if (batch == 1) {
                Map<String, String> properties = properties(queues);
                messages.add(Release.message(topic, queueId, body, properties, stringOf(properties)));
            } else {
                messages.add(Release.batch(topic, queueId, batchBody(body, batch, queues)));
            }
        }
        return messages;
    }

    static String[] topics(int queues) {
        String[] topics = new String[(queues + StoreBench.QUEUES_PER_TOPIC - 1) / StoreBench.QUEUES_PER_TOPIC];
        for (int i = 0; i < topics.length; i++) {
            topics[i] = String.format("bench-%04d", i);
        }
        return topics;
    }

    private Map<String, String> properties(int queues) {
        long number = made++;
        Map<String, String> properties = new HashMap<>();
        properties.put("UNIQ_KEY", String.format("0A00000510F330946E094CD1%08X", number));
        properties.put("WAIT", "true");
        properties.put("TAGS", TAGS[(int) (number / queues & 1)]); // in turn, in each queue
        properties.put("CLUSTER", "DefaultCluster");
        return properties;
    }

    private static String stringOf(Map<String, String> properties) {
        StringBuilder text = new StringBuilder();
        properties.forEach((name, value) -> text.append(name).append('\1').append(value).append('\2'));
        return text.toString();
    }

    private byte[] batchBody(byte[] body, int batch, int queues) {
        byte[][] properties = new byte[batch][];
        int size = 0;
        for (int i = 0; i < batch; i++) {
            properties[i] = stringOf(properties(queues)).getBytes(StandardCharsets.UTF_8);
            size += BATCH_HEAD_BYTES + body.length + properties[i].length;
        }
        ByteBuffer bytes = ByteBuffer.allocate(size);
        for (byte[] each : properties) {
            bytes.putInt(BATCH_HEAD_BYTES + body.length + each.length).putInt(0).putInt(0).putInt(0);
            bytes.putInt(body.length).put(body).putShort((short) each.length).put(each);
        }
        return bytes.array();
    }
}
