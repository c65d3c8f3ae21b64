package cometmq.features;

import cometmq.support.Json;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** The events of one command; threads may print at the same time. */
final class Events {
    // Longer bodies are told by their size and hash only.
    private static final int SHOWN_BODY_BYTES = 4096;

    private final PrintStream out;
    private final long id;

    Events(PrintStream out, long id) {
        this.out = out;
        this.id = id;
    }

    void print(String event, Object... namesAndValues) {
        print(event, Json.object(namesAndValues));
    }

    void print(String event, Map<String, Object> members) {
        Map<String, Object> all = Json.object("id", id, "event", event);
        all.putAll(members);
        String line = Json.write(all);
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    void printFailed(Throwable failure) {
        StringWriter trace = new StringWriter();
        failure.printStackTrace(new PrintWriter(trace));
        print("failed", "error", trace.toString());
    }

    void printRefused(int index, Throwable failure) {
        Integer code = null;
        if (failure instanceof MQBrokerException) {
            code = ((MQBrokerException) failure).getResponseCode();
        } else if (failure instanceof MQClientException) {
            code = ((MQClientException) failure).getResponseCode();
        }
        print("refused", "index", index, "error", failure.toString(), "code", code);
    }

    /** A message whose handling began at {@code beginUs} and ends now with {@code outcome}. */
    void printReceived(String name, String clientId, MessageExt message, String outcome, long beginUs) {
        Map<String, Object> members = Json.object("name", name, "clientId", clientId, "outcome", outcome);
        members.putAll(facts(message));
        members.put("beginUs", beginUs);
        members.put("endUs", nowUs());
        print("received", members);
    }

    private static Map<String, Object> facts(MessageExt message) {
        byte[] body = message.getBody();
        Map<String, Object> facts = Json.object(
            "topic", message.getTopic(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "size", body.length,
            "sha256", sha256(body),
            "storeSize", message.getStoreSize(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "msgId", message.getMsgId(),
            "properties", Json.sorted(message.getProperties()),
            "bornHost", String.valueOf(message.getBornHost()).replace("/", ""),
            "bornMs", message.getBornTimestamp(),
            "storeMs", message.getStoreTimestamp());
        if (message instanceof MessageClientExt) {
            facts.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        if (body.length <= SHOWN_BODY_BYTES) {
            facts.put("body", new String(body, StandardCharsets.UTF_8));
        }
        return facts;
    }

    static long nowUs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte part : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(String.format("%02x", part));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
