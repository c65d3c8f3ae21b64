package cometmq.store;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends messages of every kind that a store keeps, and tells where each of them went. */
final class Filler {
    // "Aa" and "BB" have the same hash.
    private static final String[] TAGS = {"red", "Aa", "BB", null, "\u6807\u7b7e"};
    private static final int PACKED_BODY_BYTES = 10_000;
    private static final int BIG_BODY_BYTES = 16_000;

    private final Options options;
    private final StoreShell.Events events;
    private final Random random = new Random(7);

    Filler(Options options, StoreShell.Events events) {
        this.options = options;
        this.events = events;
    }

    void fill() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("PG_filler");
        producer.setTransactionListener(new Decider());
        start(producer);
        try {
            plain(producer);
            tagged(producer);
            keyed(producer);
            batches(producer);
            transactions(producer);
            delayed(producer, 1, 2);
            delayed(producer, 3, 1);
            packed(producer);
            big(producer);
        } finally {
            producer.shutdown();
        }
    }

    /** One message with the delay level of the option "level". */
    void delay() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_filler");
        start(producer);
        try {
            delayed(producer, options.number("level"), 1);
        } finally {
            producer.shutdown();
        }
    }

    private void start(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName(options.instance);
        producer.setSendMsgTimeout(20_000);
        producer.start();
    }

    private void plain(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 40; i++) {
            Message message = new Message("Plain", text("plain " + i));
            message.putUserProperty("number", "n\u00b0 " + i);
            message.setFlag(i);
            report("plain", message, producer.send(message));
        }
    }

    private void tagged(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 60; i++) {
            Message message = new Message("Tags", text("tagged " + i));
            String tag = TAGS[i % TAGS.length];
            if (tag != null) {
                message.setTags(tag);
            }
            report("tagged", message, producer.send(message));
        }
    }

    /** All in one queue, so that a small queue file is filled. */
    private void keyed(DefaultMQProducer producer) throws Exception {
        MessageQueue queue = new MessageQueue("Keys", options.text("broker"), 0);
        for (int i = 0; i < 230; i++) {
            Message message = new Message("Keys", "tag" + i % 4, "group-" + i % 10 + " key-" + i, text("keyed " + i));
            report("keyed", message, producer.send(message, queue));
        }
    }

    private void batches(DefaultMQProducer producer) throws Exception {
        for (int size : new int[] {1, 10, 30}) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < size; i++) {
                String name = "batch-" + size + "-" + i;
                batch.add(new Message("Batch", "even" + i % 2, name, text(name)));
            }
            SendResult result = producer.send(batch);
            String[] ids = result.getMsgId().split(",");
            String[] offsetIds = result.getOffsetMsgId().split(",");
            for (int i = 0; i < size; i++) {
                report("batch", batch.get(i), result, result.getQueueOffset() + i, ids[i], offsetIds[i]);
            }
        }
    }

    private void transactions(TransactionMQProducer producer) throws Exception {
        for (LocalTransactionState end : LocalTransactionState.values()) {
            if (end == LocalTransactionState.UNKNOW) {
                continue;
            }
            for (int i = 0; i < 2; i++) {
                Message message = new Message("Tran", "tran", "tran-" + end + "-" + i, text(end + " " + i));
                SendResult result = producer.sendMessageInTransaction(message, end);
                report("transaction " + end, message, result);
            }
        }
    }

    private void delayed(DefaultMQProducer producer, int level, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            String name = "delay-" + level + "-" + i;
            Message message = new Message("Delay", "late", name, text(name));
            message.setDelayTimeLevel(level);
            report("delayed " + level, message, producer.send(message));
        }
    }

    /** Bodies that the client compresses. */
    private void packed(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < 5; i++) {
            byte[] body = new byte[PACKED_BODY_BYTES];
            for (int place = 0; place < body.length; place++) {
                body[place] = (byte) ("packed " + i).charAt(place % 8);
            }
            Message message = new Message("Big", "packed", "packed-" + i, body);
            report("packed", message, producer.send(message));
        }
    }

    /** Bodies that cannot be made smaller: enough of them to fill small log files. */
    private void big(DefaultMQProducer producer) throws Exception {
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int i = 0; i < 40; i++) {
            byte[] body = new byte[BIG_BODY_BYTES + i];
            random.nextBytes(body);
            Message message = new Message("Big", "big", "big-" + i, body);
            report("big", message, producer.send(message));
        }
    }

    private void report(String kind, Message message, SendResult result) {
        report(kind, message, result, result.getQueueOffset(), result.getMsgId(), result.getOffsetMsgId());
    }

    private void report(
        String kind, Message message, SendResult result, long queueOffset, String uniqueId, String offsetId) {
        events.print(
            "event", "sent",
            "kind", kind,
            "status", result.getSendStatus().name(),
            "topic", message.getTopic(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", queueOffset,
            "uniqueId", uniqueId,
            "offsetId", offsetId,
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "body", message.getBody());
    }

    private static byte[] text(String body) {
        return body.getBytes(StandardCharsets.UTF_8);
    }

    /** Ends each transaction as the sender wished. */
    private static final class Decider implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object wish) {
            return (LocalTransactionState) wish;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }
}
