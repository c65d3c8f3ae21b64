package cometmq.features;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Apache's Java client kept running for many commands: a JSON object per line on standard input, events as
 * JSON objects, one per line, on standard output. Commands run one after the other; consumers that were
 * started tell what they receive at any time.
 */
public final class Features {
    private final Producers producers = new Producers();
    private final Consumers consumers = new Consumers();
    private final LiteConsumers liteConsumers = new LiteConsumers();
    private final Requests requests = new Requests();

    private Features() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        // Whatever the client prints by itself is not an event.
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Features features = new Features();
        new Events(out, 0).print("ready");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            features.answer(line, out);
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(String line, PrintStream out) {
        Map<?, ?> command = (Map<?, ?>) JsonText.read(line);
        Events events = new Events(out, (Long) command.get("id"));
        try {
            run((String) command.get("verb"), new Options(command.get("options")), events);
            events.print("done");
        } catch (Throwable failure) {
            events.printFailed(failure);
        }
        if ("exit".equals(command.get("verb"))) {
            Runtime.getRuntime().halt(0);
        }
    }

    private void stop(String name, boolean isInBackground) {
        producers.stop(name);
        liteConsumers.stop(name);
        requests.stop(name);
        // A consumer of 5.x has left its broker at once, but may take three seconds to end its threads.
        Runnable shutdown = consumers.remove(name);
        if (isInBackground) {
            new Thread(shutdown).start();
        } else {
            shutdown.run();
        }
    }

    private void run(String verb, Options options, Events events) throws Exception {
        switch (verb) {
            case "send":
                producers.send(options, events);
                break;
            case "consume":
                consumers.start(options, events);
                break;
            case "lite-open":
                liteConsumers.open(options);
                break;
            case "lite-poll":
                liteConsumers.poll(options, events);
                break;
            case "lite-commit":
                liteConsumers.commit(options);
                break;
            case "lite-committed":
                liteConsumers.printCommitted(options, events);
                break;
            case "lite-seek":
                liteConsumers.seek(options);
                break;
            case "request":
                requests.send(options, events);
                break;
            case "answer":
                requests.answer(options, events);
                break;
            case "trace":
                Traces.trace(options, events);
                break;
            case "stop":
                stop(options.text("name"), options.is("inBackground"));
                break;
            case "exit":
                break;
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }
}
