package cometmq.vectors;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** What this release's store can write beyond what every release writes. */
final class Release {
    private Release() {
    }

    /** Topics over 127 characters, which need a record of version 2. Only retry topics may be so long. */
    static void moreRecords(VectorFile file, Store store) throws Exception {
        for (int length : new int[] {128, 200, 255}) {
            RecordVectors.Input input = new RecordVectors.Input("retry topic of " + length + " characters");
            input.topic = "%RETRY%" + OddStrings.repeat("g", length - "%RETRY%".length());
            RecordVectors.add(file, store, input);
        }
        RecordVectors.Input both = new RecordVectors.Input("retry topic of 150 characters, both hosts IPv6");
        both.topic = "%RETRY%" + OddStrings.repeat("g", 143);
        both.bornHost = "2001:db8::1";
        both.storeHost = "2001:db8::2";
        both.keys = "k";
        RecordVectors.add(file, store, both);
    }

    static void recordsWithPropertyCrc(VectorFile file, Path scratch) throws Exception {
        try (Store store = new Store(scratch.resolve("crc"), true)) {
            RecordVectors.hosts(file, store);
            moreRecords(file, store);
            // Bodies that differ by one byte give checksums with fewer than ten digits here and there.
            for (int i = 0; i < 6; i++) {
                RecordVectors.Input input = new RecordVectors.Input("property checksum " + i);
                input.body = ("body " + i).getBytes(StandardCharsets.UTF_8);
                RecordVectors.add(file, store, input);
            }
        }
    }
}
