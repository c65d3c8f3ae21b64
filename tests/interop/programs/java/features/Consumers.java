package cometmq.features;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers by name, each telling what it receives until it is stopped. */
final class Consumers {
    private static final int USUAL_THREADS = 4;
    private static final int USUAL_SUSPEND_MS = 100;
    // A consumer of 5.x that may not send its heartbeat after a rebalance, because another one is on its
    // way, is refused by its broker until the next one.
    private static final int HEARTBEAT_MS = 1000;

    private final Map<String, DefaultMQPushConsumer> started = new HashMap<>();

    void start(Options options, Events events) throws Exception {
        String name = options.text("name");
        DefaultMQPushConsumer consumer = consumer(options);
        Handler handler = new Handler(options, consumer, events);
        // A batch is one message: each has an outcome of its own.
        if (options.is("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                handler.isDone(messages.get(0))
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                handler.isDone(messages.get(0))
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        started.put(name, consumer);
    }

    /** Gives what shuts the consumer down. */
    Runnable remove(String name) {
        DefaultMQPushConsumer consumer = started.remove(name);
        return consumer == null ? () -> { } : consumer::shutdown;
    }

    private static DefaultMQPushConsumer consumer(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setVipChannelEnabled(options.is("vip"));
        consumer.setInstanceName(options.text("name"));
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(options.text("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        if (options.text("model", "clustering").equals("broadcasting")) {
            // The type is in another package in each release; this way it needs no name.
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
        }
        consumer.setConsumeThreadMin(options.number("threads", USUAL_THREADS));
        consumer.setConsumeThreadMax(options.number("threads", USUAL_THREADS));
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setSuspendCurrentQueueTimeMillis(options.number("suspendMs", USUAL_SUSPEND_MS));
        if (options.has("maxReconsumeTimes")) {
            consumer.setMaxReconsumeTimes(options.number("maxReconsumeTimes", -1));
        }
        consumer.subscribe(options.text("topic"), options.text("expression", "*"));
        return consumer;
    }

    /** What a consumer does with a message: tell of it, and fail as often as it was asked to. */
    private static final class Handler {
        private final String name;
        private final DefaultMQPushConsumer consumer;
        private final Events events;
        private final int holdMs;
        private final boolean mayFail;
        private final int failures;
        private final String failingBody;
        private final Map<String, Integer> failed = new ConcurrentHashMap<>();

        Handler(Options options, DefaultMQPushConsumer consumer, Events events) {
            this.name = options.text("name");
            this.consumer = consumer;
            this.events = events;
            this.holdMs = options.number("holdMs", 0);
            this.mayFail = options.has("fail");
            this.failures = options.inner("fail").number("times", 0);
            this.failingBody = options.inner("fail").text("body", null);
        }

        boolean isDone(MessageExt message) {
            long beginUs = Events.nowUs();
            hold();
            boolean isDone = !isToFail(message);
            String clientId = consumer.buildMQClientId();
            events.printReceived(name, clientId, message, isDone ? "ok" : "later", beginUs);
            return isDone;
        }

        private boolean isToFail(MessageExt message) {
            if (!mayFail || (failingBody != null && !failingBody.equals(new String(message.getBody())))) {
                return false;
            }
            int before = failed.merge(message.getMsgId(), 1, Integer::sum) - 1;
            return failures < 0 || before < failures;
        }

        private void hold() {
            try {
                Thread.sleep(holdMs);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
