package cometmq.bench;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Apache's message store without a broker around it, driven by lines on standard input: a command and its
 * options as name=value. Each is answered by one line of JSON on standard output. The program that measures
 * our store understands the same lines.
 */
public final class StoreBench {
    static final int QUEUES_PER_TOPIC = 100;
    private static final int READ_COUNT = 32;
    private static final long DISPATCH_POLL_NS = 100_000;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final Messages messages = new Messages();
    private DefaultMessageStore store;
    private List<Object> prepared = new ArrayList<>();

    private StoreBench() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // Apache's logging talks to standard output
        StoreBench bench = new StoreBench();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Options options = new Options(line);
            String answer;
            try {
                answer = bench.obey(options);
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = "{\"error\": \"" + failure.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
            }
            answers.println(answer);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String obey(Options options) throws Exception {
        switch (options.command) {
            case "open":
                return open(options);
            case "prepare":
                prepared = messages.make(options);
                return "{}";
            case "append":
                return append();
            case "read":
                return read(options);
            case "sync":
                return sync(options);
            case "close":
                store.shutdown();
                return "{}";
            case "destroy":
                store.shutdown();
                store.destroy();
                return "{}";
            default:
                throw new IllegalArgumentException("no such command: " + options.command);
        }
    }

    private String open(Options options) throws Exception {
        File root = new File(options.text("root"));
        long began = System.nanoTime();
        store = Release.open(root, options);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        awaitDispatched();
        long wall = System.nanoTime() - began;
        return "{\"wall_ns\": " + wall + ", \"log_end\": " + store.getMaxPhyOffset() + "}";
    }

    private String append() {
        List<Object> taken = prepared;
        prepared = new ArrayList<>();
        long began = System.nanoTime();
        long cpuBegan = THREADS.getCurrentThreadCpuTime();
        for (Object message : taken) {
            Release.put(store, message);
        }
        long cpu = THREADS.getCurrentThreadCpuTime() - cpuBegan;
        awaitDispatched();
        long wall = System.nanoTime() - began;
        return "{\"wall_ns\": " + wall + ", \"put_ns\": " + cpu + ", \"log_end\": " + store.getMaxPhyOffset() + "}";
    }

    private void awaitDispatched() {
        while (store.dispatchBehindBytes() > 0) {
            LockSupport.parkNanos(DISPATCH_POLL_NS);
        }
    }

    /** Reads of 32 messages that go round the queues and, in each, walk from 0 to span and begin again. */
    private String read(Options options) {
        int reads = options.number("count");
        int queues = options.number("queues");
        int step = options.number("step");
        long span = options.number("span");
        boolean isCopied = options.number("copied") == 1;
        MessageFilter filter = options.number("tag") == 1 ? Release.tagFilter(Messages.TAGS[0]) : null;
        String[] topics = Messages.topics(queues);
        byte[] copy = new byte[1 << 16];
        long found = 0;
        long began = System.nanoTime();
        long cpuBegan = THREADS.getCurrentThreadCpuTime();
        for (int i = 0; i < reads; i++) {
            int queue = i % queues;
            long offset = (long) (i / queues) * step % span;
            GetMessageResult result = store.getMessage(
                "bench", topics[queue / QUEUES_PER_TOPIC], queue % QUEUES_PER_TOPIC, offset, READ_COUNT, filter);
            found += result.getMessageCount();
            if (isCopied) {
                copyOut(result, copy);
            }
            result.release();
        }
        long cpu = THREADS.getCurrentThreadCpuTime() - cpuBegan;
        long wall = System.nanoTime() - began;
        return "{\"wall_ns\": " + wall + ", \"read_ns\": " + cpu + ", \"found\": " + found + "}";
    }

    private static void copyOut(GetMessageResult result, byte[] copy) {
        for (SelectMappedBufferResult part : result.getMessageMapedList()) {
            ByteBuffer bytes = part.getByteBuffer();
            bytes.get(copy, 0, bytes.remaining());
        }
    }

    /** Senders that each have one message on its way and send the next when it is on disk. */
    private String sync(Options options) throws Exception {
        int senders = options.number("senders");
        int count = options.number("count");
        List<Object> all = messages.make(options);
        BlockingQueue<Integer> idle = new ArrayBlockingQueue<>(senders);
        AtomicInteger refused = new AtomicInteger();
        for (int sender = 0; sender < senders; sender++) {
            idle.add(sender);
        }
        long began = System.nanoTime();
        for (Object message : all) {
            Integer sender = idle.take();
            Release.putAsync(store, message).whenComplete((isStored, failure) -> {
                if (failure != null || !isStored) {
                    refused.incrementAndGet();
                }
                idle.add(sender);
            });
        }
        for (int sender = 0; sender < senders; sender++) {
            idle.take();
        }
        long wall = System.nanoTime() - began;
        if (refused.get() > 0) {
            throw new IllegalStateException(refused + " of " + count + " messages were not flushed");
        }
        return "{\"wall_ns\": " + wall + "}";
    }

    /** A command with its options. */
    static final class Options {
        final String command;
        private final Map<String, String> values = new HashMap<>();

        Options(String line) {
            String[] words = line.trim().split(" ");
            command = words[0];
            for (int i = 1; i < words.length; i++) {
                int equals = words[i].indexOf('=');
                values.put(words[i].substring(0, equals), words[i].substring(equals + 1));
            }
        }

        String text(String name) {
            String value = values.get(name);
            if (value == null) {
                throw new IllegalArgumentException(command + " needs " + name);
            }
            return value;
        }

        int number(String name) {
            return Integer.parseInt(text(name));
        }
    }
}
