package orbitmq.drivers;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes rows as JSON objects, one a line, each visible to the reader at once. */
public final class Rows {
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);

    private Rows() {
    }

    /** Names and values in turn. */
    public static Map<String, Object> row(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            row.put((String) pairs[i], pairs[i + 1]);
        }
        return row;
    }

    public static void event(String name, Object... pairs) {
        Map<String, Object> row = row("event", name);
        row.putAll(row(pairs));
        print(row);
    }

    public static void print(Map<String, Object> row) {
        StringBuilder text = new StringBuilder();
        write(text, row);
        byte[] line = text.append('\n').toString().getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            try {
                OUT.write(line);
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map<?, ?> map) {
            char separator = '{';
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                quote(out.append(separator), String.valueOf(entry.getKey()));
                write(out.append(':'), entry.getValue());
                separator = ',';
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Collection<?> items) {
            char separator = '[';
            for (Object item : items) {
                write(out.append(separator), item);
                separator = ',';
            }
            out.append(items.isEmpty() ? "[]" : "]");
        } else {
            quote(out, value.toString());
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
