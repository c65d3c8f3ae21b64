package cometmq.vectors;

import java.nio.file.Path;

/** What this release's store can write beyond what every release writes: nothing. */
final class Release {
    private Release() {
    }

    static void moreRecords(VectorFile file, Store store) {
    }

    static void recordsWithPropertyCrc(VectorFile file, Path scratch) {
    }
}
