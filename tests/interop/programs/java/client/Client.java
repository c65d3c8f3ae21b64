package cometmq.client;

import cometmq.support.Json;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Apache's Java client on a command line: a verb, then --name value pairs; prints one event per line. */
public final class Client {
    // A send that is tried again on a busy machine would be stored twice.
    private static final int SEND_TIMEOUT_MS = 20_000;

    private final Map<String, String> options = new HashMap<>();

    private Client(String[] arguments) {
        for (int i = 1; i < arguments.length; i += 2) {
            options.put(arguments[i].substring("--".length()), arguments[i + 1]);
        }
    }

    public static void main(String[] arguments) {
        boolean isComplete = false;
        try {
            isComplete = new Client(arguments).run(arguments[0]);
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        // The client leaves threads behind that would keep this process alive.
        System.out.flush();
        Runtime.getRuntime().halt(isComplete ? 0 : 1);
    }

    private boolean run(String verb) throws Exception {
        switch (verb) {
            case "send":
                return send();
            case "consume":
                return consume();
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    private boolean send() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group"));
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setMqClientApiTimeout(SEND_TIMEOUT_MS);
        producer.start();
        for (int i = 0; i < number("count"); i++) {
            String body = options.get("prefix") + i;
            Message message = new Message(
                options.get("topic"), options.get("tag"), "key-" + i, body.getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message);
            print(
                "event", "sent",
                "body", body,
                "status", result.getSendStatus().name(),
                "messageId", result.getMsgId(),
                "queueId", result.getMessageQueue().getQueueId(),
                "queueOffset", result.getQueueOffset());
        }
        producer.shutdown();
        return true;
    }

    private boolean consume() throws Exception {
        CountDownLatch missing = new CountDownLatch(number("count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), options.get("tag"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                printReceived(message);
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean isComplete = missing.await(number("timeout"), TimeUnit.SECONDS);
        consumer.shutdown();
        return isComplete;
    }

    private int number(String option) {
        return Integer.parseInt(options.get(option));
    }

    private static void printReceived(MessageExt message) {
        print(
            "event", "received",
            "body", new String(message.getBody(), StandardCharsets.UTF_8),
            "messageId", message.getMsgId(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "tags", message.getTags(),
            "keys", message.getKeys());
    }

    private static void print(Object... namesAndValues) {
        System.out.println(Json.write(Json.object(namesAndValues)));
    }
}
