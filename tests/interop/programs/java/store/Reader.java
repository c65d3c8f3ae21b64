package cometmq.store;

import cometmq.support.Json;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a broker's messages in every way a client can, and tells all that it learns of them. */
final class Reader {
    private static final int PULL_COUNT = 32;
    private static final int QUERY_COUNT = 64;

    private final Options options;
    private final StoreShell.Events events;

    Reader(Options options, StoreShell.Events events) {
        this.options = options;
        this.events = events;
    }

    /** Every message of the queues ("topic@id,..."), with the tag expression of the option "tags". */
    void pull() throws Exception {
        withConsumer(consumer -> {
            for (String queue : options.list("queues")) {
                pull(consumer, queue(queue));
            }
        });
    }

    /** The offset at each time: "topic@id@timestamp,...". */
    void search() throws Exception {
        withConsumer(consumer -> {
            for (String question : options.list("times")) {
                int end = question.lastIndexOf('@');
                MessageQueue queue = queue(question.substring(0, end));
                long timestamp = Long.parseLong(question.substring(end + 1));
                events.print(
                    "event", "offset",
                    "topic", queue.getTopic(),
                    "queueId", queue.getQueueId(),
                    "timestamp", timestamp,
                    "offset", consumer.searchOffset(queue, timestamp));
            }
        });
    }

    /** What each key finds: "topic@key,...". */
    void query() throws Exception {
        withConsumer(consumer -> {
            for (String question : options.list("keys")) {
                String[] parts = question.split("@");
                QueryResult result = consumer.queryMessage(parts[0], parts[1], QUERY_COUNT, 0, Long.MAX_VALUE);
                for (MessageExt message : result.getMessageList()) {
                    print("found", parts[1], message);
                }
            }
        });
    }

    /** The message with each id, unique or made of its offset: "topic@id,...". */
    void view() throws Exception {
        withConsumer(consumer -> {
            for (String question : options.list("ids")) {
                String[] parts = question.split("@");
                print("viewed", parts[1], consumer.viewMessage(parts[0], parts[1]));
            }
        });
    }

    private void pull(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long offset = 0;
        while (true) {
            PullResult result = consumer.pull(queue, options.text("tags"), offset, PULL_COUNT);
            switch (result.getPullStatus()) {
                case FOUND:
                    result.getMsgFoundList().forEach(message -> print("pulled", null, message));
                    break;
                case NO_NEW_MSG:
                    return;
                default:
                    if (result.getNextBeginOffset() <= offset) {
                        throw new IllegalStateException(queue + " at " + offset + ": " + result);
                    }
            }
            offset = result.getNextBeginOffset();
        }
    }

    private interface Work {
        void with(DefaultMQPullConsumer consumer) throws Exception;
    }

    private void withConsumer(Work work) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("GID_reader");
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.instance);
        consumer.start();
        try {
            // Learns the address of the broker, also for topics no name server tells of.
            consumer.fetchSubscribeMessageQueues(options.text("known"));
            work.with(consumer);
        } finally {
            consumer.shutdown();
        }
    }

    private MessageQueue queue(String name) {
        int at = name.lastIndexOf('@');
        return new MessageQueue(
            name.substring(0, at), options.text("broker"), Integer.parseInt(name.substring(at + 1)));
    }

    private void print(String event, String asked, MessageExt message) {
        events.print(
            "event", event,
            "asked", asked,
            "topic", message.getTopic(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "commitLogOffset", message.getCommitLogOffset(),
            "storeSize", message.getStoreSize(),
            "bodyCRC", message.getBodyCRC(),
            "flag", message.getFlag(),
            "sysFlag", message.getSysFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "bornHost", address(message.getBornHost()),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", address(message.getStoreHost()),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "properties", Json.sorted(message.getProperties()),
            "body", message.getBody());
    }

    private static String address(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }
}
