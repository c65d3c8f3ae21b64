package cometmq.features;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers by name: nothing is received but by a poll. */
final class LiteConsumers {
    private static final int USUAL_POLL_MS = 1000;
    private static final int ONE_POLL_MS = 100;
    private static final int BEGIN = -1;
    private static final int END = -2;

    private final Map<String, DefaultLitePullConsumer> started = new HashMap<>();
    private final Map<String, Collection<MessageQueue>> queues = new HashMap<>();

    void open(Options options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group"));
        String topic = options.text("topic");
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setInstanceName(options.text("name"));
        consumer.setAutoCommit(options.is("autoCommit"));
        consumer.setConsumeFromWhere(options.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        if (!options.is("assign")) {
            consumer.subscribe(topic, options.text("expression", "*"));
        }
        consumer.start();
        started.put(options.text("name"), consumer);
        Collection<MessageQueue> all = consumer.fetchMessageQueues(topic);
        queues.put(options.text("name"), all);
        if (options.is("assign")) {
            consumer.assign(all);
        }
    }

    void poll(Options options, Events events) {
        DefaultLitePullConsumer consumer = consumer(options);
        int missing = options.number("count", 1);
        long end = System.nanoTime() + options.number("timeoutMs", USUAL_POLL_MS) * 1_000_000L;
        while (missing > 0 && System.nanoTime() < end) {
            for (MessageExt message : consumer.poll(ONE_POLL_MS)) {
                long nowUs = Events.nowUs();
                events.printReceived(options.text("name"), consumer.buildMQClientId(), message, "ok", nowUs);
                missing--;
            }
        }
    }

    void commit(Options options) {
        consumer(options).commitSync();
    }

    void printCommitted(Options options, Events events) throws Exception {
        DefaultLitePullConsumer consumer = consumer(options);
        for (MessageQueue queue : queues.get(options.text("name"))) {
            events.print("committed", "queueId", queue.getQueueId(), "offset", consumer.committed(queue));
        }
    }

    void seek(Options options) throws Exception {
        DefaultLitePullConsumer consumer = consumer(options);
        int offset = options.number("offset", BEGIN);
        for (MessageQueue queue : queues.get(options.text("name"))) {
            if (queue.getQueueId() != options.number("queueId", 0)) {
                continue;
            }
            if (offset == BEGIN) {
                consumer.seekToBegin(queue);
            } else if (offset == END) {
                consumer.seekToEnd(queue);
            } else {
                consumer.seek(queue, offset);
            }
        }
    }

    void stop(String name) {
        DefaultLitePullConsumer consumer = started.remove(name);
        queues.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
    }

    private DefaultLitePullConsumer consumer(Options options) {
        DefaultLitePullConsumer consumer = started.get(options.text("name"));
        if (consumer == null) {
            throw new IllegalArgumentException("no such consumer: " + options.text("name"));
        }
        return consumer;
    }
}
