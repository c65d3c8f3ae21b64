package cometmq.features;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Both ends of request and reply: a producer that waits for replies, a consumer that gives them. */
final class Requests {
    private static final int TIMEOUT_MS = 20_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();

    /** Sends requests and tells the reply to each. */
    void send(Options options, Events events) throws Exception {
        DefaultMQProducer producer = producer(options.text("namesrv"), "asking");
        int timeoutMs = options.number("timeoutMs", TIMEOUT_MS);
        List<?> bodies = options.list("bodies");
        CountDownLatch missing = new CountDownLatch(bodies.size());
        for (int index = 0; index < bodies.size(); index++) {
            Message request = new Message(options.text("topic"), bytes((String) bodies.get(index)));
            if (options.text("mode", "sync").equals("async")) {
                producer.request(request, new Telling(events, index, missing), timeoutMs);
            } else {
                try {
                    printReplied(events, index, producer.request(request, timeoutMs));
                } catch (Exception failure) {
                    events.printRefused(index, failure);
                }
                missing.countDown();
            }
        }
        if (!missing.await(2L * timeoutMs, TimeUnit.MILLISECONDS)) {
            throw new TimeoutException("not every callback came");
        }
    }

    /** Starts a consumer that replies to every message with its body in capitals. */
    void answer(Options options, Events events) throws Exception {
        DefaultMQProducer producer = producer(options.text("namesrv"), "answering");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> reply(producer, message, events));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(options.text("name"), consumer);
    }

    void stop(String name) {
        DefaultMQPushConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
    }

    private DefaultMQProducer producer(String namesrv, String name) throws Exception {
        String key = namesrv + " " + name;
        if (!producers.containsKey(key)) {
            DefaultMQProducer producer = new DefaultMQProducer("PG_" + name);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName(name);
            producer.start();
            producers.put(key, producer);
        }
        return producers.get(key);
    }

    private static void reply(DefaultMQProducer producer, MessageExt request, Events events) {
        try {
            String text = new String(request.getBody(), StandardCharsets.UTF_8).toUpperCase();
            SendResult result = producer.send(MessageUtil.createReplyMessage(request, bytes(text)));
            events.print("answered", "status", result.getSendStatus().name(), "body", text);
        } catch (Exception failure) {
            events.printRefused(0, failure);
        }
    }

    private static void printReplied(Events events, int index, Message reply) {
        events.print("replied", "index", index, "body", new String(reply.getBody(), StandardCharsets.UTF_8),
            "properties", reply.getProperties());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /**
     * Counts one reply. Java calls back with none when the request is stored; and a reply comes again
     * when its sender has not heard in time that it came.
     */
    private static final class Telling implements RequestCallback {
        private final Events events;
        private final int index;
        private final CountDownLatch missing;
        private final AtomicBoolean isFirst = new AtomicBoolean(true);

        Telling(Events events, int index, CountDownLatch missing) {
            this.events = events;
            this.index = index;
            this.missing = missing;
        }

        @Override
        public void onSuccess(Message reply) {
            if (reply != null && isFirst.getAndSet(false)) {
                printReplied(events, index, reply);
                missing.countDown();
            }
        }

        @Override
        public void onException(Throwable failure) {
            if (isFirst.getAndSet(false)) {
                events.printRefused(index, failure);
                missing.countDown();
            }
        }
    }
}
