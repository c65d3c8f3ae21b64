package cometmq.consumers;

import cometmq.support.Json;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Random but repeatable lives of process queues: each step with its result and the state after it. */
final class ProcessQueueVectors {
    private static final int STEPS = 60;

    private final Random random;
    private final ProcessQueue queue = new ProcessQueue();
    private final TreeMap<Long, MessageExt> handedOver = new TreeMap<>();
    private final List<Object> steps = new ArrayList<>();
    private long next = 5;

    private ProcessQueueVectors(long seed) {
        random = new Random(seed);
    }

    static List<Map<String, Object>> make() {
        List<Map<String, Object>> vectors = new ArrayList<>();
        for (long seed = 0; seed < 12; seed++) {
            boolean isOrderly = seed % 2 == 1;
            ProcessQueueVectors life = new ProcessQueueVectors(seed);
            for (int i = 0; i < STEPS; i++) {
                if (isOrderly) {
                    life.orderlyStep();
                } else {
                    life.concurrentStep();
                }
            }
            vectors.add(Json.object("seed", seed, "orderly", isOrderly, "steps", life.steps));
        }
        return vectors;
    }

    private void concurrentStep() {
        int choice = random.nextInt(10);
        if (choice < 4) {
            put(random.nextInt(6) == 0);
        } else if (choice < 9) {
            remove();
        } else if (random.nextInt(4) == 0) {
            clear();
        } else {
            put(false);
        }
    }

    private void orderlyStep() {
        int choice = random.nextInt(12);
        if (choice < 4) {
            put(false);
        } else if (choice < 7) {
            int count = 1 + random.nextInt(4);
            List<MessageExt> taken = queue.takeMessages(count);
            taken.forEach(message -> handedOver.put(message.getQueueOffset(), message));
            step("take", count, offsets(taken));
        } else if (choice < 9) {
            // Without anything handed over it throws.
            if (!handedOver.isEmpty()) {
                step("commit", null, queue.commit());
                handedOver.clear();
            }
        } else if (choice < 10) {
            queue.rollback();
            handedOver.clear();
            step("roll back", null, null);
        } else if (choice < 11) {
            again();
        } else if (random.nextInt(4) == 0) {
            clear();
        }
    }

    /** Mostly what follows, with gaps; now and then from further back, so that some are there already. */
    private void put(boolean isBackwards) {
        if (isBackwards) {
            next = Math.max(0, next - random.nextInt(8));
        }
        List<MessageExt> messages = new ArrayList<>();
        int count = 1 + random.nextInt(4);
        for (int i = 0; i < count; i++) {
            messages.add(message(next, next + 10));
            next += random.nextInt(5) == 0 ? 7 : 1;
        }
        step("put", offsets(messages), queue.putMessage(messages));
    }

    private void remove() {
        List<MessageExt> some = new ArrayList<>();
        for (MessageExt message : queue.getMsgTreeMap().values()) {
            if (random.nextInt(3) == 0) {
                some.add(message);
            }
        }
        if (random.nextInt(8) == 0) {
            some.add(message(1_000_000, 0));
        }
        step("remove", offsets(some), queue.removeMessage(some));
    }

    private void again() {
        if (handedOver.isEmpty()) {
            return;
        }
        long from = handedOver.firstKey() + random.nextInt(3);
        List<MessageExt> some = new ArrayList<>(handedOver.tailMap(from).values());
        queue.makeMessageToConsumeAgain(some);
        some.forEach(message -> handedOver.remove(message.getQueueOffset()));
        step("again", offsets(some), null);
    }

    private void clear() {
        queue.clear();
        handedOver.clear();
        step("clear", null, null);
    }

    private void step(String name, Object argument, Object result) {
        steps.add(Arrays.asList(name, argument, result, queue.getMsgCount().get(), queue.getMsgSize().get(),
            queue.getMaxSpan(), queue.getMsgAccCnt(), queue.hasTempMessage(), Release.queueInfo(queue)));
    }

    /** As many bytes as the offset and 1: sums tell which ones are there. */
    private static MessageExt message(long offset, long maxOffset) {
        MessageExt message = new MessageExt();
        message.setQueueOffset(offset);
        message.setBody(new byte[(int) Math.min(offset + 1, 4096)]);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_MAX_OFFSET, Long.toString(maxOffset));
        return message;
    }

    private static List<Object> offsets(List<MessageExt> messages) {
        List<Object> offsets = new ArrayList<>();
        messages.forEach(message -> offsets.add(message.getQueueOffset()));
        return offsets;
    }
}
