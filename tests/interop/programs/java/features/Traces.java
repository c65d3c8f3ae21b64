package cometmq.features;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A message sent and received by clients that write down what they do. */
final class Traces {
    private static final int RECEIVE_TIMEOUT_S = 30;

    private Traces() {
    }

    /** Sends one message and receives it; both clients have written their traces when this returns. */
    static void trace(Options options, Events events) throws Exception {
        // Without a name of its own the topic for traces is the usual one.
        DefaultMQProducer producer = new DefaultMQProducer(options.text("producerGroup"), true, null);
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"), true, null);
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), "*");
        CountDownLatch isReceived = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            isReceived.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        byte[] body = "traced".getBytes(StandardCharsets.UTF_8);
        SendResult sent = producer.send(new Message(options.text("topic"), "TagT", "key-t", body));
        consumer.start();
        if (!isReceived.await(RECEIVE_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new TimeoutException("the message was not received");
        }
        // Ending, they write what they have not written yet.
        consumer.shutdown();
        producer.shutdown();
        events.print("traced", "msgId", sent.getMsgId());
    }
}
