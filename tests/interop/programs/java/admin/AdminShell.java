package cometmq.admin;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's admin tool in one JVM for many commands. A connection brings one command, an argument per
 * line, and takes everything the tool printed; commands run one after the other.
 */
public final class AdminShell {
    private AdminShell() {
    }

    public static void main(String[] arguments) throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            System.out.println("admin shell listens on " + server.getLocalPort());
            while (true) {
                try (Socket connection = server.accept()) {
                    String command = new String(connection.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                    connection.getOutputStream().write(run(command.split("\n", -1)));
                }
            }
        }
    }

    private static byte[] run(String[] command) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main0(command, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        both.flush();
        return printed.toByteArray();
    }
}
