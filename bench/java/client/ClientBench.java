package cometmq.bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Apache's Java client under measurement: a command per line on standard input, answered by one line of
 * JSON. The commands are those of bench/client_driver.py, which says what they measure.
 */
public final class ClientBench {
    private static final int SEND_TIMEOUT_MS = 20_000;
    private static final int LISTEN_MS_MAX = 60_000;
    private static final int POLL_MS = 5;
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Map<String, String> options = new HashMap<>();
    private final AtomicLong count = new AtomicLong();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final String topic;
    private final byte[] body;
    private volatile boolean isOver;

    private ClientBench(String line) {
        String[] words = line.trim().split(" ");
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            options.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        topic = options.get("topic");
        body = new byte[Integer.parseInt(options.getOrDefault("body", "0"))];
        Arrays.fill(body, (byte) 'x');
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // Whatever the client prints by itself is no answer.
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            answers.println(new ClientBench(line).answer(line.split(" ")[0]));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String command) {
        try {
            switch (command) {
                case "send":
                    return send();
                case "pace":
                    return pace();
                case "consume":
                    return consume();
                default:
                    throw new IllegalArgumentException("no such command: " + command);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            return "{\"error\": \"" + problem.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
        }
    }

    private String send() throws Exception {
        DefaultMQProducer producer = producer();
        Semaphore room = new Semaphore(number("in_flight"));
        Thread sender = new Thread(() -> keepSending(producer, room));
        sender.start();
        String figures = window(Long.MAX_VALUE);
        isOver = true;
        sender.join(SEND_TIMEOUT_MS);
        room.tryAcquire(number("in_flight"), SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        producer.shutdown();
        check();
        return figures;
    }

    private void keepSending(DefaultMQProducer producer, Semaphore room) {
        boolean isAsync = isAsync();
        try {
            while (!isOver && failure.get() == null) {
                if (isAsync) {
                    room.acquire();
                    producer.send(message(), new Counted(room));
                } else {
                    producer.send(message());
                    count.incrementAndGet();
                }
            }
        } catch (Throwable problem) {
            failure.compareAndSet(null, problem);
        }
    }

    private String pace() throws Exception {
        DefaultMQProducer producer = producer();
        // Routes and connections are there before the clock runs.
        producer.send(message());
        int messages = number("rate") * number("window_ms") / 1000;
        long stepNs = 1_000_000_000L / number("rate");
        long[] waits = new long[messages];
        Semaphore answered = new Semaphore(0);
        boolean isAsync = isAsync();
        long cpuBefore = SYSTEM.getProcessCpuTime();
        long begin = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            long since = wokenAt(begin + i * stepNs);
            if (isAsync) {
                producer.send(message(), new Timed(waits, i, since, answered));
            } else {
                producer.send(message());
                waits[i] = System.nanoTime() - since;
                answered.release();
            }
        }
        boolean isComplete = answered.tryAcquire(messages, SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        long elapsed = System.nanoTime() - begin;
        long cpu = SYSTEM.getProcessCpuTime() - cpuBefore;
        producer.shutdown();
        check();
        if (!isComplete) {
            throw new IllegalStateException("some sends were never answered");
        }
        Arrays.sort(waits);
        return "{\"count\": " + messages + ", \"elapsed_ns\": " + elapsed + ", \"window_cpu_ns\": " + cpu
            + ", \"p50_ns\": " + waits[messages / 2]
            + ", \"p99_ns\": " + waits[(int) (messages * 0.99)]
            + ", \"p999_ns\": " + waits[(int) (messages * 0.999)] + "}";
    }

    /** Sleep until a moment; gives the time of waking, or that moment when it was past already. */
    private static long wokenAt(long due) {
        long now = System.nanoTime();
        if (now >= due) {
            return due;
        }
        while (now < due) {
            LockSupport.parkNanos(due - now);
            now = System.nanoTime();
        }
        return now;
    }

    private String consume() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return window(number("backlog"));
        } finally {
            consumer.shutdown();
        }
    }

    /** Figures from a while after the first message until the window or the messages are at an end. */
    private String window(long messagesMax) throws Exception {
        long waited = 0;
        for (; count.get() == 0 && waited < LISTEN_MS_MAX; waited += POLL_MS) {
            check();
            Thread.sleep(POLL_MS);
        }
        Thread.sleep(number("settle_ms"));
        long before = count.get();
        long cpuBefore = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        long end = began + number("window_ms") * 1_000_000L;
        while (System.nanoTime() < end && count.get() < messagesMax) {
            Thread.sleep(POLL_MS);
        }
        long elapsed = System.nanoTime() - began;
        long cpu = SYSTEM.getProcessCpuTime() - cpuBefore;
        long done = count.get() - before;
        check();
        return "{\"count\": " + done + ", \"elapsed_ns\": " + elapsed + ", \"window_cpu_ns\": " + cpu + "}";
    }

    private void check() {
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        return producer;
    }

    private Message message() {
        return new Message(topic, "bench", body);
    }

    private boolean isAsync() {
        return options.get("mode").equals("async");
    }

    private int number(String name) {
        return Integer.parseInt(options.get(name));
    }

    /** Counts an acknowledged send and makes room for the next. */
    private final class Counted implements SendCallback {
        private final Semaphore room;

        Counted(Semaphore room) {
            this.room = room;
        }

        @Override
        public void onSuccess(SendResult result) {
            count.incrementAndGet();
            room.release();
        }

        @Override
        public void onException(Throwable problem) {
            failure.compareAndSet(null, problem);
            room.release();
        }
    }

    /** Notes how long a send took. */
    private final class Timed implements SendCallback {
        private final long[] waits;
        private final int place;
        private final long since;
        private final Semaphore answered;

        Timed(long[] waits, int place, long since, Semaphore answered) {
            this.waits = waits;
            this.place = place;
            this.since = since;
            this.answered = answered;
        }

        @Override
        public void onSuccess(SendResult result) {
            waits[place] = System.nanoTime() - since;
            answered.release();
        }

        @Override
        public void onException(Throwable problem) {
            failure.compareAndSet(null, problem);
            answered.release();
        }
    }
}
