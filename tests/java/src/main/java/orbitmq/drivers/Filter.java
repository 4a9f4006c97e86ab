package orbitmq.drivers;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.TypeReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates SQL92 expressions as a broker does: --cases, a file whose first line is a JSON list of property maps and each
 * further one a JSON string, an expression. A row an expression: "compiled", and "results", one for each property map:
 * true, false, null (what anything else counts as), or "error".
 */
final class Filter {
    private Filter() {
    }

    static void run(Arguments arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments.text("cases")));
        List<Map<String, String>> sets = JSON.parseObject(lines.get(0), new TypeReference<>() { });
        for (String line : lines.subList(1, lines.size())) {
            evaluate(JSON.parseObject(line, String.class), sets);
        }
    }

    private static void evaluate(String text, List<Map<String, String>> sets) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Exception error) {
            Rows.print(Rows.row("expression", text, "compiled", false));
            return;
        }
        List<Object> results = new ArrayList<>();
        for (Map<String, String> properties : sets) {
            try {
                Object result = expression.evaluate(new MessageEvaluationContext(properties));
                results.add(result instanceof Boolean ? result : null);
            } catch (Throwable error) {
                results.add("error");
            }
        }
        Rows.print(Rows.row("expression", text, "compiled", true, "results", results));
    }
}
