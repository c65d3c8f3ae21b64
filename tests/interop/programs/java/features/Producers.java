package cometmq.features;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/** Sends in every way the client has; producers are kept for the next command. */
final class Producers {
    private static final String USUAL_NAME = "main";
    private static final String USUAL_COMPRESSION = "ZLIB";
    // A send that is tried again on a busy machine would be stored twice.
    private static final int SEND_TIMEOUT_MS = 20_000;

    private final Map<List<String>, DefaultMQProducer> started = new HashMap<>();

    void send(Options options, Events events) throws Exception {
        List<Post> posts = new ArrayList<>();
        for (Object described : options.list("messages")) {
            posts.add(new Post(posts.size(), options.text("topic"), new Options(described)));
        }
        DefaultMQProducer producer = producer(options);
        switch (options.text("mode", "sync")) {
            case "sync":
                posts.forEach(post -> sendOne(producer, post, events));
                break;
            case "async":
                sendAll(producer, posts, events);
                break;
            case "oneway":
                posts.forEach(post -> sendOneway(producer, post, events));
                break;
            case "batch":
                sendBatch(producer, posts, events);
                break;
            default:
                throw new IllegalArgumentException("no such mode: " + options.text("mode"));
        }
    }

    void stop(String name) {
        for (Iterator<List<String>> keys = started.keySet().iterator(); keys.hasNext();) {
            List<String> key = keys.next();
            if (key.get(0).equals(name)) {
                started.get(key).shutdown();
                keys.remove();
            }
        }
    }

    private DefaultMQProducer producer(Options options) throws Exception {
        List<String> key = Arrays.asList(
            options.text("producer", USUAL_NAME),
            options.text("namesrv"),
            options.text("group", "PG_features"),
            String.valueOf(options.is("vip")),
            String.valueOf(options.number("maxMessageSize", -1)),
            String.valueOf(options.number("compressOver", -1)),
            options.text("compression", USUAL_COMPRESSION));
        if (!started.containsKey(key)) {
            started.put(key, start(options));
        }
        DefaultMQProducer producer = started.get(key);
        producer.setSendMsgTimeout(options.number("timeoutMs", SEND_TIMEOUT_MS));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 0));
        producer.setRetryTimesWhenSendAsyncFailed(options.number("retries", 0));
        return producer;
    }

    private static DefaultMQProducer start(Options options) throws Exception {
        // Read when a producer is made; 4.9 knows one way only.
        System.setProperty("rocketmq.message.compressType", options.text("compression", USUAL_COMPRESSION));
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group", "PG_features"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setVipChannelEnabled(options.is("vip"));
        if (options.has("maxMessageSize")) {
            producer.setMaxMessageSize(options.number("maxMessageSize", 0));
        }
        if (options.has("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(options.number("compressOver", 0));
        }
        producer.start();
        return producer;
    }

    private static void sendOne(DefaultMQProducer producer, Post post, Events events) {
        try {
            SendResult result = post.selector == null
                ? producer.send(post.message)
                : producer.send(post.message, post.selector, post.argument);
            printSent(events, post.index, result);
        } catch (Exception failure) {
            events.printRefused(post.index, failure);
        }
    }

    private static void sendAll(DefaultMQProducer producer, List<Post> posts, Events events) throws Exception {
        CountDownLatch missing = new CountDownLatch(posts.size());
        for (Post post : posts) {
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    printSent(events, post.index, result);
                    missing.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    events.printRefused(post.index, failure);
                    missing.countDown();
                }
            };
            if (post.selector == null) {
                producer.send(post.message, callback);
            } else {
                producer.send(post.message, post.selector, post.argument, callback);
            }
        }
        if (!missing.await(SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new TimeoutException(missing.getCount() + " callbacks did not come");
        }
    }

    private static void sendOneway(DefaultMQProducer producer, Post post, Events events) {
        try {
            if (post.selector == null) {
                producer.sendOneway(post.message);
            } else {
                producer.sendOneway(post.message, post.selector, post.argument);
            }
            events.print("sent", "index", post.index, "status", "ONEWAY");
        } catch (Exception failure) {
            events.printRefused(post.index, failure);
        }
    }

    private static void sendBatch(DefaultMQProducer producer, List<Post> posts, Events events) {
        List<Message> messages = new ArrayList<>();
        posts.forEach(post -> messages.add(post.message));
        try {
            SendResult result = producer.send(messages);
            events.print(
                "sent",
                "index", 0,
                "count", messages.size(),
                "status", result.getSendStatus().name(),
                "msgId", result.getMsgId(),
                "queueId", result.getMessageQueue().getQueueId(),
                "queueOffset", result.getQueueOffset());
        } catch (Exception failure) {
            events.printRefused(0, failure);
        }
    }

    private static void printSent(Events events, int index, SendResult result) {
        events.print(
            "sent",
            "index", index,
            "status", result.getSendStatus().name(),
            "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
    }

    /** A message and, where it matters, how its queue is chosen. */
    private static final class Post {
        final int index;
        final Message message;
        final MessageQueueSelector selector;
        final Object argument;

        Post(int index, String topic, Options described) throws Exception {
            this.index = index;
            byte[] body = described.has("bodyFile")
                ? Files.readAllBytes(Path.of(described.text("bodyFile")))
                : described.text("body").getBytes(StandardCharsets.UTF_8);
            message = new Message(topic, body);
            if (described.has("tags")) {
                message.setTags(described.text("tags"));
            }
            if (described.has("keys")) {
                message.setKeys(described.text("keys"));
            }
            described.texts("properties").forEach(message::putUserProperty);
            if (described.has("delayLevel")) {
                message.setDelayTimeLevel(described.number("delayLevel", 0));
            }
            if (described.has("hashKey")) {
                selector = new SelectMessageQueueByHash();
                argument = described.text("hashKey");
            } else if (described.has("queueId")) {
                selector = (queues, unused, queueId) -> queues.stream()
                    .filter(queue -> queueId.equals(queue.getQueueId()))
                    .findFirst().orElseThrow();
                argument = described.number("queueId", 0);
            } else {
                selector = null;
                argument = null;
            }
        }
    }
}
