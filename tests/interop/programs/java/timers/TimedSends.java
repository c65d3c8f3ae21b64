package cometmq.timers;

import cometmq.support.Json;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages with a time of delivery: NAMESRV TOPIC, then for each message BODY:WAY:MILLISECONDS,
 * where the way is "deliver", "delay" or "seconds"; with ":recall" behind it the message is taken back
 * as soon as it was sent. Prints one JSON object per message.
 */
public final class TimedSends {
    private static final int SEND_TIMEOUT_MS = 20_000;

    private TimedSends() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG_timers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        for (int number = 2; number < arguments.length; number++) {
            System.out.println(Json.write(send(producer, arguments[1], arguments[number].split(":"))));
        }
        System.exit(0);
    }

    private static Map<String, Object> send(DefaultMQProducer producer, String topic, String[] said)
        throws Exception {
        Message message = new Message(topic, said[0].getBytes(StandardCharsets.UTF_8));
        long millis = Long.parseLong(said[2]);
        long deliverMs = System.currentTimeMillis() + millis;
        if (said[1].equals("deliver")) {
            message.setDeliverTimeMs(deliverMs);
        } else if (said[1].equals("delay")) {
            message.setDelayTimeMs(millis);
        } else {
            message.setDelayTimeSec(millis / 1000);
        }
        String outcome;
        String messageId = null;
        String recalled = null;
        long answeredMs = 0;
        try {
            SendResult result = producer.send(message);
            answeredMs = System.currentTimeMillis();
            outcome = result.getSendStatus().name();
            messageId = result.getMsgId();
            if (said.length > 3) {
                recalled = producer.recallMessage(topic, result.getRecallHandle());
            }
        } catch (Exception failure) {
            outcome = String.valueOf(failure.getMessage());
        }
        // A broker counts a delay from when a message comes, which is before its client has the answer.
        long latestMs = said[1].equals("deliver") ? deliverMs : answeredMs + millis;
        return Json.object("event", "sent", "body", said[0], "deliverMs", deliverMs, "latestMs", latestMs,
            "outcome", outcome, "messageId", messageId, "recalled", recalled);
    }
}
