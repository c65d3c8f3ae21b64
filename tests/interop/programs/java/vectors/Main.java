package cometmq.vectors;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Writes every kind of vector for the release on the class path: arguments folder, scratch folder. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Files.createDirectories(Paths.get(arguments[0]));
        Path scratch = Files.createDirectories(Paths.get(arguments[1]));
        HashVectors.make().write(folder, "hashes");
        CommandVectors.make().write(folder, "commands");
        JsonVectors.make().write(folder, "json");
        BatchVectors.make().write(folder, "batches");
        PropertyVectors.make().write(folder, "properties");
        MessageIdVectors.make().write(folder, "message-ids");
        MessageIdVectors.makeNow().write(folder, "made-message-ids");
        // Before the store, which adds topics of its own to those that are the system's.
        ProducerVectors.checks().write(folder, "client-producer-checks");
        ProducerVectors.namespaces().write(folder, "client-producer-namespaces");
        ProducerVectors.queues().write(folder, "client-producer-queues");
        ProducerVectors.bans().write(folder, "client-producer-bans");
        ProducerVectors.properties().write(folder, "client-producer-properties");
        ExtensionVectors.make(scratch.resolve("extension")).write(folder, "queue-extension");
        RecordVectors.make(scratch.resolve("store")).write(folder, "records");
        // The store leaves threads behind that are no daemons.
        System.exit(0);
    }
}
