package cometmq.store;

import cometmq.support.Json;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * Apache's client in one JVM for many commands. A connection brings one command: a verb, then a line
 * name=value for each option. It takes one event (a JSON object) per line, as they happen; a command
 * that failed says so with the event "failed". Commands run one after the other.
 */
public final class StoreShell {
    private StoreShell() {
    }

    public static void main(String[] arguments) throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            System.out.println("store shell listens on " + server.getLocalPort());
            while (true) {
                try (Socket connection = server.accept()) {
                    answer(connection);
                }
            }
        }
    }

    private static void answer(Socket connection) throws Exception {
        String command = new String(connection.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        String[] lines = command.split("\n");
        Events events = new Events(new PrintStream(connection.getOutputStream(), true, StandardCharsets.UTF_8));
        try {
            run(lines[0], new Options(lines), events);
        } catch (Throwable failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            events.print("event", "failed", "reason", trace.toString());
        }
    }

    private static void run(String verb, Options options, Events events) throws Exception {
        switch (verb) {
            case "fill":
                new Filler(options, events).fill();
                break;
            case "delay":
                new Filler(options, events).delay();
                break;
            case "storm":
                new Storm(options, events).rage();
                break;
            case "pull":
                new Reader(options, events).pull();
                break;
            case "search":
                new Reader(options, events).search();
                break;
            case "query":
                new Reader(options, events).query();
                break;
            case "view":
                new Reader(options, events).view();
                break;
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    /** Where events go; threads may print at the same time. */
    static final class Events {
        private final PrintStream out;

        private Events(PrintStream out) {
            this.out = out;
        }

        void print(Object... namesAndValues) {
            String line = Json.write(Json.object(namesAndValues));
            synchronized (out) {
                out.println(line);
            }
        }
    }
}
