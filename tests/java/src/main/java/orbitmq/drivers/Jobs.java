package orbitmq.drivers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/**
 * Drivers one after the other in one process: a JVM takes longer to start than most of them to run. Each line of
 * standard input is one, its words separated by tabs. Behind its rows comes one with "job": null, or what it threw.
 */
final class Jobs {
    private Jobs() {
    }

    static void run() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Rows.print(Rows.row("job", failure(line.split("\t", -1))));
        }
    }

    private static String failure(String[] words) {
        try {
            Main.run(words);
            return null;
        } catch (Throwable error) {
            StringWriter stack = new StringWriter();
            error.printStackTrace(new PrintWriter(stack));
            return stack.toString();
        }
    }
}
