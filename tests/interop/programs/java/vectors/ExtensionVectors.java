package cometmq.vectors;

import cometmq.support.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.ConsumeQueueExt.CqExtUnit;

/** Whole extension files of a consume queue, and the units read back from them by address. */
final class ExtensionVectors {
    private static final int FILE_SIZE = 200;
    private static final int BITMAP_BITS = 128;
    private static final long STORE_TIME = 1_700_000_000_000L;

    private ExtensionVectors() {
    }

    static VectorFile make(Path scratch) throws Exception {
        VectorFile file = new VectorFile();
        ConsumeQueueExt queue = new ConsumeQueueExt("T", 3, scratch.toString(), FILE_SIZE, BITMAP_BITS);
        List<Object> units = new ArrayList<>();
        put(queue, units, unit(0, 0, null));
        put(queue, units, unit("TagA".hashCode(), 1, new byte[] {1}));
        put(queue, units, unit(-1, 2, new byte[] {0, 1, 2, 3, (byte) 0xff}));
        put(queue, units, unit(Integer.MIN_VALUE, 3, bitmap(16)));
        put(queue, units, unit(Integer.MAX_VALUE, 4, bitmap(40)));
        // What is left of the first file cannot hold this one: the file ends with a marker.
        put(queue, units, unit(5, 5, bitmap(100)));
        put(queue, units, unit(6, 6, bitmap(16)));
        put(queue, units, unit(7, 7, bitmap(9)));
        queue.flush(0);
        queue = reopened(scratch);
        for (Object unit : units) {
            file.add("unit", unit);
        }
        try (java.util.stream.Stream<Path> files = Files.walk(scratch)) {
            files.filter(Files::isRegularFile).sorted().forEach(path -> addFile(file, scratch, path));
        }
        file.add("minAddress", queue.getMinAddress(), "maxAddress", queue.getMaxAddress());
        for (long address : new long[] {0, -1, Integer.MIN_VALUE, Integer.MIN_VALUE - 1L, Long.MIN_VALUE,
            Long.MIN_VALUE + 20, Long.MAX_VALUE}) {
            file.add(
                "tagsCode", address,
                "isAddress", ConsumeQueueExt.isExtAddr(address),
                "offset", queue.unDecorate(address));
        }
        queue.destroy();
        return file;
    }

    private static ConsumeQueueExt reopened(Path scratch) {
        ConsumeQueueExt queue = new ConsumeQueueExt("T", 3, scratch.toString(), FILE_SIZE, BITMAP_BITS);
        queue.load();
        queue.recover();
        return queue;
    }

    private static void put(ConsumeQueueExt queue, List<Object> units, CqExtUnit unit) {
        long address = queue.put(unit);
        CqExtUnit read = queue.get(address);
        units.add(Json.object(
            "address", address,
            "offset", queue.unDecorate(address),
            "size", read.getSize(),
            "tagsCode", read.getTagsCode(),
            "storeTime", read.getMsgStoreTime(),
            "bitmap", read.getFilterBitMap()));
    }

    private static void addFile(VectorFile file, Path scratch, Path path) {
        try {
            file.add("file", scratch.relativize(path).toString(), "bytes", Files.readAllBytes(path));
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
    }

    private static CqExtUnit unit(long tagsCode, int number, byte[] bitmap) {
        return new CqExtUnit(tagsCode, STORE_TIME + number, bitmap);
    }

    private static byte[] bitmap(int size) {
        byte[] bitmap = new byte[size];
        for (int i = 0; i < size; i++) {
            bitmap[i] = (byte) (i * 37 + 1);
        }
        return bitmap;
    }
}
