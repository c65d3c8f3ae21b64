package cometmq.store;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Several threads that send until the broker is gone, and tell of every message it acknowledged. */
final class Storm {
    private static final int BATCH_EVERY = 10;
    private static final int BATCH_SIZE = 5;
    private static final int FILLER_BYTES = 400;
    private static final int COUNT_MAX = 50_000;
    private static final int REFUSALS_MAX = 500;
    private static final long REFUSED_MS = 20;

    private final Options options;
    private final StoreShell.Events events;

    Storm(Options options, StoreShell.Events events) {
        this.options = options;
        this.events = events;
    }

    void rage() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_storm");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName(options.instance);
        // What was sent again could be stored twice.
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < options.number("threads"); i++) {
            String name = "thread-" + i;
            threads.add(new Thread(() -> sendUntilFailure(producer, name)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        producer.shutdown();
    }

    private void sendUntilFailure(DefaultMQProducer producer, String name) {
        int refusals = 0;
        try {
            for (int i = 0; i < COUNT_MAX; i++) {
                int size = i % BATCH_EVERY == 0 ? BATCH_SIZE : 1;
                try {
                    send(producer, name + "-" + i, size);
                } catch (Exception refusal) {
                    // A broker that has just started may be too busy at first, but it is there.
                    if (!isAnswered(refusal) || ++refusals > REFUSALS_MAX) {
                        throw refusal;
                    }
                    Thread.sleep(REFUSED_MS);
                }
            }
        } catch (Exception failure) {
            events.print("event", "stopped", "thread", name, "reason", failure.toString());
        }
    }

    private static boolean isAnswered(Exception failure) {
        return failure instanceof MQBrokerException || failure.getCause() instanceof MQBrokerException;
    }

    private void send(DefaultMQProducer producer, String name, int size) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            byte[] body = Arrays.copyOf((name + "-" + i + " ").getBytes(StandardCharsets.UTF_8), FILLER_BYTES);
            messages.add(new Message(options.text("topic"), "storm", name, body));
        }
        SendResult result = size == 1 ? producer.send(messages.get(0)) : producer.send(messages);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < size; i++) {
            events.print(
                "event", "sent",
                "kind", "storm",
                "topic", options.text("topic"),
                "queueId", result.getMessageQueue().getQueueId(),
                "queueOffset", result.getQueueOffset() + i,
                "uniqueId", ids[i],
                "offsetId", offsetIds[i],
                "tags", "storm",
                "keys", name,
                "body", messages.get(i).getBody());
        }
    }
}
