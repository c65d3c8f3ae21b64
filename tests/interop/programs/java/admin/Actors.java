package cometmq.admin;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Producers and consumers, with trace, that stay online while the tool looks at them. Each has a name, which
 * is the second half of its client id.
 */
final class Actors {
    private static final String CLIENT_IP = "127.0.0.1";
    private static final int HEARTBEAT_MS = 1000;
    private static final int COMMIT_MS = 200;
    private static final int SEND_TIMEOUT_MS = 20_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, AtomicInteger> received = new HashMap<>();

    /** What came of it, a result per line; of a failure the stack trace. */
    String answer(String[] command) {
        try {
            switch (command[0]) {
                case "produce":
                    return produce(command[1], command[2], command[3]);
                case "send":
                    return send(producers.get(command[1]), command);
                case "consume":
                    return consume(command[1], command[2], command[3], command[4]);
                case "received":
                    return String.valueOf(received.get(command[1]).get());
                default:
                    throw new IllegalArgumentException("no such act: " + command[0]);
            }
        } catch (Exception failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace, true));
            return trace.toString();
        }
    }

    private String produce(String name, String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, true, null);
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP(CLIENT_IP);
        producer.setInstanceName(name);
        producer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        producers.put(name, producer);
        return "";
    }

    /** The topic, then of each message the queue, tags, keys and body, with tabs between them. */
    private static String send(DefaultMQProducer producer, String[] command) throws Exception {
        StringBuilder results = new StringBuilder();
        for (int line = 3; line < command.length; line++) {
            String[] facts = command[line].split("\t", -1);
            Message message = new Message(command[2], facts[1], facts[2], facts[3].getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", String.valueOf(line - 3));
            MessageQueueSelector selector = (queues, unused, queueId) -> queues.stream()
                .filter(queue -> queueId.equals(queue.getQueueId()))
                .findFirst().orElseThrow();
            SendResult result = producer.send(message, selector, Integer.valueOf(facts[0]));
            results.append(result.getMsgId()).append('\t').append(result.getOffsetMsgId()).append('\n');
        }
        return results.toString();
    }

    private String consume(String name, String namesrv, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, true, null);
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP(CLIENT_IP);
        consumer.setInstanceName(name);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setPersistConsumerOffsetInterval(COMMIT_MS);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(topic, "*");
        AtomicInteger count = new AtomicInteger();
        received.put(name, count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(name, consumer);
        return "";
    }
}
