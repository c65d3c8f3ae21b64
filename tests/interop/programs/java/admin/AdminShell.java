package cometmq.admin;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's admin tool in one JVM for many commands. A connection brings one command, an argument per
 * line, and takes everything the tool printed; commands run one after the other.
 *
 * <p>A first line {@code @within 1500} ends a command that would run for ever after so many milliseconds;
 * {@code @act} hands the rest to the clients that are kept online beside the tool.
 */
public final class AdminShell {
    private static final String WITHIN = "@within ";
    private static final String ACT = "@act";
    private static final long END_MS = 10_000;
    private static final long LOOK_MS = 10;

    private final Actors actors = new Actors();

    private AdminShell() {
    }

    public static void main(String[] arguments) throws Exception {
        AdminShell shell = new AdminShell();
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            System.out.println("admin shell listens on " + server.getLocalPort());
            while (true) {
                try (Socket connection = server.accept()) {
                    String command = new String(connection.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                    String[] words = command.isEmpty() ? new String[0] : command.split("\n", -1);
                    connection.getOutputStream().write(shell.answer(words));
                }
            }
        }
    }

    private byte[] answer(String[] command) throws Exception {
        String first = command.length == 0 ? "" : command[0];
        if (first.equals(ACT)) {
            return actors.answer(rest(command)).getBytes(StandardCharsets.UTF_8);
        }
        if (first.startsWith(WITHIN)) {
            long withinMs = Long.parseLong(first.substring(WITHIN.length()));
            forgetCommands();
            return run(rest(command), withinMs);
        }
        forgetCommands();
        return run(command, 0);
    }

    /** A command that is run a second time would go to the servers of the first: each run needs new ones. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static String[] rest(String[] command) {
        return Arrays.copyOfRange(command, 1, command.length);
    }

    /** What the command printed; one that is cut short prints of its end what nobody wants to read. */
    private static byte[] run(String[] command, long withinMs) throws InterruptedException {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            Thread thread = new Thread(() -> MQAdminStartup.main0(command, null));
            thread.start();
            waitFor(thread, withinMs > 0 ? withinMs : Long.MAX_VALUE);
            both.flush();
            byte[] answer = printed.toByteArray();
            thread.interrupt();
            waitFor(thread, END_MS);
            return answer;
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }

    private static void waitFor(Thread command, long withinMs) throws InterruptedException {
        long beginNs = System.nanoTime();
        while (command.isAlive() && (System.nanoTime() - beginNs) / 1_000_000 < withinMs) {
            command.join(LOOK_MS);
            wakeWhatItWaitsFor(command);
        }
    }

    /**
     * A tool of 5.x that ends waits for a thread that looks only every three seconds whether it shall end.
     * Woken, the thread looks at once; one that shall go on does so.
     */
    private static void wakeWhatItWaitsFor(Thread command) {
        boolean isEnding = Arrays.stream(command.getStackTrace())
            .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"));
        if (isEnding) {
            Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("NettyEventExecutor"))
                .forEach(Thread::interrupt);
        }
    }
}
