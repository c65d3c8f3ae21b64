package cometmq.vectors;

import cometmq.support.Json;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageId;

/** Offset ids (store address and position) and the unique ids a client makes. */
final class MessageIdVectors {
    private static final String[] UNIQUE_IDS = {
        "7F00000100002A139A5D0AE4D1A30000", "0A0000050D6F18B4AAC20A3B6F2E0001",
        "FFFFFFFFFFFF2A139A5D7FFFFFFFFFFF",
        "FE800000000000000202B3FFFE1E832900002A139A5D0AE4D1A3FFFF",
        "20010DB800000000000000000000000112342A139A5D0AE4D1A30007",
    };

    private MessageIdVectors() {
    }

    static VectorFile make() throws Exception {
        VectorFile file = new VectorFile();
        String[] hosts = {"127.0.0.1", "255.255.255.255", "10.0.0.5", "::1", "2001:db8::1", "fe80::202:b3ff:fe1e:8329"};
        long[] offsets = {0, 1, 1L << 40, Long.MAX_VALUE};
        for (int i = 0; i < hosts.length; i++) {
            addOffsetId(file, new InetSocketAddress(InetAddress.getByName(hosts[i]), 10911 + i), offsets[i % 4]);
        }
        for (String id : UNIQUE_IDS) {
            addUniqueId(file, id);
        }
        return file;
    }

    private static void addOffsetId(VectorFile file, InetSocketAddress host, long offset) throws Exception {
        String id = MessageDecoder.createMessageId(host, offset);
        MessageId read = MessageDecoder.decodeMessageId(id);
        InetSocketAddress address = (InetSocketAddress) read.getAddress();
        file.add(
            "kind", "offset",
            "id", id,
            "host", address.getAddress().getHostAddress(),
            "port", address.getPort(),
            "offset", read.getOffset());
    }

    private static void addUniqueId(VectorFile file, String id) {
        Map<String, Object> vector = Json.object("kind", "unique", "id", id);
        VectorFile.result(vector, "host", () -> MessageClientIDSetter.getIPStrFromID(id));
        VectorFile.result(vector, "pid", () -> MessageClientIDSetter.getPidFromID(id));
        file.add(vector);
    }

    /** Ids made now, with the clock before and after: no two runs give the same. */
    static VectorFile makeNow() {
        VectorFile file = new VectorFile();
        for (int i = 0; i < 5; i++) {
            long before = System.currentTimeMillis();
            String id = MessageClientIDSetter.createUniqID();
            long after = System.currentTimeMillis();
            file.add(
                "id", id,
                "madeAfter", before,
                "madeBefore", after,
                "pid", MessageClientIDSetter.getPidFromID(id),
                "processId", ProcessHandle.current().pid());
        }
        return file;
    }
}
