package cometmq.consumers;

import cometmq.support.Json;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/** Files with the offsets of a broadcasting consumer: what is written, and what is read from layouts. */
final class OffsetFileVectors {
    private static final String CLIENT = "10.0.0.1@DEFAULT";
    private static final MessageQueue[] QUEUES = {
        new MessageQueue("orders", "broker-a", 0),
        new MessageQueue("orders", "broker-a", 1),
        new MessageQueue("ns%\u6d88\u606f", "broker \"b\"", 0),
    };

    /** Layouts that a reader may meet: of fastjson 1, of fastjson 2, on one line, with what is not known. */
    private static final String[] LAYOUTS = {
        "{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"b\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"t\"\n\t\t}:17\n\t}\n}",
        "{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"b\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"t\"\n\t\t}:17,{\n"
            + "\t\t\t\"brokerName\":\"b\",\n\t\t\t\"queueId\":1,\n\t\t\t\"topic\":\"t\"\n\t\t}:18\n\t}\n}",
        "{\n\t\"offsetTable\":{\n\t\t{\n\t\t\t\"brokerName\":\"b\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"t\"\n\t\t}:17,\n"
            + "\t\t{\n\t\t\t\"brokerName\":\"b\",\n\t\t\t\"queueId\":1,\n\t\t\t\"topic\":\"t\"\n\t\t}:18\n\t}\n}",
        "{\"offsetTable\":{{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}:17}}",
        "{\"offsetTable\":{},\"more\":1}",
        "{}",
    };

    private OffsetFileVectors() {
    }

    static List<Map<String, Object>> make() throws Exception {
        List<Map<String, Object>> vectors = new ArrayList<>();
        vectors.add(written("none", 0));
        vectors.add(written("one", 1));
        vectors.add(written("three", 3));
        vectors.add(merged());
        for (int i = 0; i < LAYOUTS.length; i++) {
            vectors.add(read("layout" + i, LAYOUTS[i]));
        }
        return vectors;
    }

    private static Map<String, Object> written(String group, int count) throws Exception {
        LocalFileOffsetStore store = store(group);
        MessageQueue[] some = Arrays.copyOf(QUEUES, count);
        for (int i = 0; i < count; i++) {
            store.updateOffset(some[i], 10 + i, false);
        }
        store.persistAll(new HashSet<>(Arrays.asList(some)));
        return Json.object("case", "written", "offsets", shown(store), "file", text(group, ""), "backup",
            text(group, ".bak"));
    }

    /** A queue that is in the file and not among those persisted. */
    private static Map<String, Object> merged() throws Exception {
        LocalFileOffsetStore store = store("merged");
        store.updateOffset(QUEUES[0], 1, false);
        store.persistAll(new HashSet<>(Arrays.asList(QUEUES[0])));
        LocalFileOffsetStore next = store("merged");
        next.updateOffset(QUEUES[1], 2, false);
        next.persistAll(new HashSet<>(Arrays.asList(QUEUES[1])));
        LocalFileOffsetStore last = store("merged");
        last.load();
        return Json.object("case", "merged", "offsets", shown(last), "file", text("merged", ""), "backup",
            text("merged", ".bak"));
    }

    private static Map<String, Object> read(String group, String text) throws Exception {
        Path file = path(group, "");
        Files.createDirectories(file.getParent());
        Files.write(file, text.getBytes(StandardCharsets.UTF_8));
        LocalFileOffsetStore store = store(group);
        store.load();
        return Json.object("case", "read", "offsets", shown(store), "file", text);
    }

    private static LocalFileOffsetStore store(String group) {
        return new LocalFileOffsetStore(new MQClientInstance(new ClientConfig(), 0, CLIENT), group);
    }

    /** [topic, broker, queue id, offset] of each queue, sorted. */
    private static List<Object> shown(LocalFileOffsetStore store) {
        Map<MessageQueue, Long> offsets = new TreeMap<>(store.cloneOffsetTable(""));
        List<Object> shown = new ArrayList<>();
        offsets.forEach((queue, offset) -> shown.add(
            Arrays.asList(queue.getTopic(), queue.getBrokerName(), queue.getQueueId(), offset)));
        return shown;
    }

    private static String text(String group, String suffix) throws Exception {
        Path file = path(group, suffix);
        return Files.exists(file) ? new String(Files.readAllBytes(file), StandardCharsets.UTF_8) : null;
    }

    private static Path path(String group, String suffix) {
        return Paths.get(LocalFileOffsetStore.LOCAL_OFFSET_STORE_DIR, CLIENT, group, "offsets.json" + suffix);
    }
}
