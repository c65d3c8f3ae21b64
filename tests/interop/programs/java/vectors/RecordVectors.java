package cometmq.vectors;

import cometmq.support.Json;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Records as a message store in this process appends them, and as MessageDecoder reads them. */
final class RecordVectors {
    static final long STORE_TIME = 1_700_000_000_000L;
    static final long BORN_TIME = STORE_TIME - 15;

    private RecordVectors() {
    }

    /** What a vector varies; the rest is the same everywhere. */
    static final class Input {
        final String name;
        String topic = "Topic";
        byte[] body = "body".getBytes(StandardCharsets.UTF_8);
        String bornHost = "10.0.0.5";
        String storeHost = "127.0.0.1";
        String tags;
        String keys;
        int sysFlag;
        int queueId = 3;
        int reconsumeTimes;
        int flag;
        long preparedTransactionOffset;
        boolean noProperties;

        Input(String name) {
            this.name = name;
        }
    }

    static VectorFile make(Path scratch) throws Exception {
        VectorFile file = new VectorFile();
        try (Store store = new Store(scratch.resolve("plain"), false)) {
            hosts(file, store);
            values(file, store);
            Release.moreRecords(file, store);
        }
        Release.recordsWithPropertyCrc(file, scratch);
        return file;
    }

    static void hosts(VectorFile file, Store store) throws Exception {
        String[][] pairs = {
            {"10.0.0.5", "127.0.0.1"}, {"2001:db8::1", "127.0.0.1"}, {"10.0.0.5", "fe80::202:b3ff:fe1e:8329"},
            {"::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},
        };
        for (String[] pair : pairs) {
            Input input = new Input("born at " + pair[0] + ", stored at " + pair[1]);
            input.bornHost = pair[0];
            input.storeHost = pair[1];
            input.tags = "TagA";
            add(file, store, input);
        }
    }

    static void values(VectorFile file, Store store) throws Exception {
        Input none = new Input("no properties");
        none.noProperties = true;
        add(file, store, none);
        Input odd = new Input("every number set");
        odd.queueId = 7;
        odd.flag = -1;
        odd.reconsumeTimes = 16;
        odd.keys = "k1 k2";
        odd.tags = "\u6d88\ud83d\ude00";
        odd.sysFlag = 0x302;
        odd.preparedTransactionOffset = 1L << 40;
        add(file, store, odd);
        Input prepared = new Input("prepared");
        prepared.sysFlag = 0x4;
        add(file, store, prepared);
        Input longest = new Input("topic of 127 characters");
        longest.topic = OddStrings.repeat("t", 127);
        add(file, store, longest);
        Input binary = new Input("binary body");
        binary.body = new byte[] {0, (byte) 0xff, (byte) 0x80, 0x7f};
        add(file, store, binary);
    }

    static void add(VectorFile file, Store store, Input input) throws Exception {
        byte[] record = store.put(input);
        Map<String, Object> vector = Json.object(
            "name", input.name,
            "hasPropertyCrc", store.hasPropertyCrc,
            "record", record);
        VectorFile.result(vector, "fields", () -> fields(MessageDecoder.decode(ByteBuffer.wrap(record), true, false)));
        file.add(vector);
    }

    static void describe(MessageExt message, Input input) throws Exception {
        message.setTopic(input.topic);
        message.setBody(input.body);
        message.setFlag(input.flag);
        message.setSysFlag(input.sysFlag);
        message.setQueueId(input.queueId);
        message.setReconsumeTimes(input.reconsumeTimes);
        message.setPreparedTransactionOffset(input.preparedTransactionOffset);
        message.setBornTimestamp(BORN_TIME);
        message.setBornHost(new InetSocketAddress(InetAddress.getByName(input.bornHost), 54321));
        message.setStoreHost(new InetSocketAddress(InetAddress.getByName(input.storeHost), 10911));
        if (!input.noProperties) {
            message.putUserProperty("colour", "blue");
            if (input.tags != null) {
                message.setTags(input.tags);
            }
            if (input.keys != null) {
                message.setKeys(input.keys);
            }
        }
    }

    private static Map<String, Object> fields(MessageExt message) {
        InetSocketAddress born = (InetSocketAddress) message.getBornHost();
        InetSocketAddress store = (InetSocketAddress) message.getStoreHost();
        return Json.object(
            "size", message.getStoreSize(),
            "bodyCrc", message.getBodyCRC(),
            "queueId", message.getQueueId(),
            "flag", message.getFlag(),
            "queueOffset", message.getQueueOffset(),
            "physicalOffset", message.getCommitLogOffset(),
            "sysFlag", message.getSysFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "bornHost", born.getAddress().getHostAddress(),
            "bornPort", born.getPort(),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", store.getAddress().getHostAddress(),
            "storePort", store.getPort(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "body", message.getBody(),
            "topic", message.getTopic(),
            "properties", Json.sorted(message.getProperties()),
            "msgId", message.getMsgId());
    }
}
