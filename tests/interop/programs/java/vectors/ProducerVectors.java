package cometmq.vectors;

import cometmq.support.Json;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;

/** What a producer decides before it sends: refusals, wrapped names, queues by key, bans, properties. */
final class ProducerVectors {
    private static final int[] NAME_LENGTHS = {1, 119, 120, 121, 126, 127, 128, 254, 255, 256};
    private static final String[] NAMES = {
        "", " ", "\t\n", "orders", "Orders_1-2", "a b", "a.b", "a/b", "a\\b", "a:b", "a@b", "a#b", "a$b", "%", "|",
        "%RETRY%orders", "%DLQ%orders", "ns%orders", "a|b", "\u6d88\u606f", "\u00e9", "a\u0000b", "a\nb", "-", "_",
        "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_x", "CID_ONSAPI_PULL", "rmq_sys_x", "RMQ_SYS_x",
        "rmq_sys_wheel_timer", "CHECKPOINT_TOPIC", "DefaultCluster_REPLY_TOPIC", "SELF_TEST_C_GROUP",
    };
    private static final String[] NAMESPACES = {"", "ns", "MQ_INST_1_2"};
    private static final String[] WRAPPED = {
        "ns%", "ns", "%ns%orders", "other%orders", "%RETRY%ns%g", "%DLQ%ns%g", "%RETRY%other%g",
        "%RETRY%g", "%DLQ%g", "%RETRY%", "%RETRY%CID_RMQ_SYS_TRANS", "MQ_INST_1_2%orders",
        "ns%TBW102", "%RETRY%ns%TOOLS_CONSUMER", "a%b%c",
    };
    private static final long[] LATENCIES = {
        0, 1, 49, 50, 99, 100, 549, 550, 999, 1000, 1799, 1800, 1999, 2000, 2999, 3000, 4999, 5000, 10000, 14999,
        15000, 30000, 600000,
    };

    private ProducerVectors() {
    }

    static VectorFile checks() {
        VectorFile file = new VectorFile();
        for (String name : names()) {
            check(file, "group", name, () -> {
                Validators.checkGroup(name);
                return null;
            });
            check(file, "topic", name, () -> {
                Validators.checkTopic(name);
                Validators.isNotAllowedSendTopic(name);
                return null;
            });
        }
        DefaultMQProducer producer = new DefaultMQProducer("vectors");
        for (int length : new int[] {-1, 0, 1, 4_194_303, 4_194_304, 4_194_305}) {
            byte[] body = length < 0 ? null : new byte[length];
            check(file, "body", length, () -> {
                Validators.checkMessage(new Message("orders", body), producer);
                return null;
            });
        }
        for (String[] pair : propertyPairs()) {
            Map<String, Object> vector = Json.object("check", "property", "value", pair[0], "text", pair[1]);
            vector.put("refused", isRefused(() -> {
                new Message("orders", new byte[1]).putUserProperty(pair[0], pair[1]);
                return null;
            }));
            file.add(vector);
        }
        return file;
    }

    static VectorFile namespaces() {
        VectorFile file = new VectorFile();
        List<String> names = new ArrayList<>(names());
        names.addAll(List.of(WRAPPED));
        for (String namespace : NAMESPACES) {
            for (String name : names) {
                if (name.length() < 100) {
                    file.add(
                        "namespace", namespace,
                        "name", name,
                        "wrapped", ProducerParts.wrap(namespace, name),
                        "unwrapped", ProducerParts.unwrap(namespace, name),
                        "retry", ProducerParts.retry(namespace, name));
                }
            }
        }
        return file;
    }

    /** Which of n queues Java's own selector takes for a key. */
    static VectorFile queues() {
        VectorFile file = new VectorFile();
        for (int count : new int[] {1, 2, 3, 4, 7, 8, 16, 1000}) {
            for (Map.Entry<String, String> odd : OddStrings.all().entrySet()) {
                file.add("kind", "text", "key", odd.getValue(), "queues", count, "index", chosen(count, odd.getValue()));
            }
            for (int key : new int[] {0, 1, -1, 7, -7, 65536, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
                file.add("kind", "int", "key", key, "queues", count, "index", chosen(count, key));
            }
            for (long key : new long[] {0, -1, 1L << 32, (1L << 32) + 5, -5, Long.MAX_VALUE, Long.MIN_VALUE}) {
                file.add("kind", "long", "key", key, "queues", count, "index", chosen(count, key));
            }
        }
        return file;
    }

    /** How long a broker is left out after a send that took so long. */
    static VectorFile bans() throws Exception {
        VectorFile file = new VectorFile();
        MQFaultStrategy strategy = ProducerParts.strategy();
        Method duration = MQFaultStrategy.class.getDeclaredMethod("computeNotAvailableDuration", long.class);
        duration.setAccessible(true);
        for (long latency : LATENCIES) {
            file.add("latency", latency, "ban", duration.invoke(strategy, latency));
        }
        return file;
    }

    /** The property text of messages as a producer makes them; the id is given. */
    static VectorFile properties() {
        String id = "7F00000100002A139A5D0AE4D1A30000";
        VectorFile file = new VectorFile();
        addProperties(file, "plain", new Message("orders", new byte[1]), id);
        addProperties(file, "tag", new Message("orders", "TagA", new byte[1]), id);
        addProperties(file, "tag and keys", new Message("orders", "TagA", "k1 k2", new byte[1]), id);
        addProperties(file, "does not wait", new Message("orders", "TagA", "k1", 7, new byte[1], false), id);
        Message delayed = new Message("orders", "TagA", "k1", new byte[1]);
        delayed.setDelayTimeLevel(3);
        addProperties(file, "delay level", delayed, id);
        Message keys = new Message("orders", new byte[1]);
        keys.setKeys(List.of("k1", "k2"));
        addProperties(file, "list of keys", keys, id);
        Message user = new Message("orders", "TagA", new byte[1]);
        user.putUserProperty("color", "red");
        addProperties(file, "user property", user, id);
        Message half = new Message("orders", "TagA", new byte[1]);
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(half, MessageConst.PROPERTY_PRODUCER_GROUP, "vectors");
        addProperties(file, "half", half, id);
        Message instance = new Message("orders", new byte[1]);
        instance.setInstanceId("ns");
        addProperties(file, "namespace", instance, id);
        return file;
    }

    private static void addProperties(VectorFile file, String name, Message message, String id) {
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, id);
        file.add(
            "name", name,
            "properties", Json.sorted(new TreeMap<>(message.getProperties())),
            "text", MessageDecoder.messageProperties2String(message.getProperties()));
    }

    private static int chosen(int count, Object key) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            queues.add(new MessageQueue("orders", "broker-a", i));
        }
        return new SelectMessageQueueByHash().select(queues, null, key).getQueueId();
    }

    private static List<String> names() {
        Set<String> names = new LinkedHashSet<>(List.of(NAMES));
        names.addAll(new TreeSet<>(TopicValidator.getSystemTopicSet()));
        names.addAll(new TreeSet<>(TopicValidator.getNotAllowedSendTopicSet()));
        for (int length : NAME_LENGTHS) {
            names.add(OddStrings.repeat("x", length));
        }
        names.add("%RETRY%" + OddStrings.repeat("x", 121));
        names.add("%DLQ%" + OddStrings.repeat("x", 123));
        return new ArrayList<>(names);
    }

    private static List<String[]> propertyPairs() {
        List<String[]> pairs = new ArrayList<>();
        String[] others = {
            "color", "keys", "KEYS ", "__SHARDINGKEY", "SHARDING_KEY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
            "TIMER_DELIVER_MS", "REDIRECT", "EXTEND_UNIQ_INFO", "__transactionId__", "__RMQ.TRANSIENT.x", "\u6d88",
        };
        TreeSet<String> names = new TreeSet<>(List.of(others));
        names.addAll(MessageConst.STRING_HASH_SET);
        for (String name : names) {
            pairs.add(new String[] {name, "x"});
        }
        pairs.add(new String[] {"", "x"});
        pairs.add(new String[] {" ", "x"});
        pairs.add(new String[] {"color", ""});
        pairs.add(new String[] {"color", " \t"});
        pairs.add(new String[] {"color", " red "});
        pairs.add(new String[] {"color", null});
        pairs.add(new String[] {"a\u0001b", "x"});
        pairs.add(new String[] {"color", "a\u0002b"});
        return pairs;
    }

    private static void check(VectorFile file, String check, Object value, Callable<?> action) {
        file.add("check", check, "value", value, "refused", isRefused(action));
    }

    private static boolean isRefused(Callable<?> action) {
        try {
            action.call();
            return false;
        } catch (Exception refusal) {
            return true;
        }
    }
}
