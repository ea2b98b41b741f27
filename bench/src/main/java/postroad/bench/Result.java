package postroad.bench;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import org.HdrHistogram.Histogram;

/** The outcome of a run, printed as one line of JSON. */
final class Result {
  private final Map<String, Object> fields = new LinkedHashMap<>();

  void put(String name, Object value) {
    fields.put(name, value);
  }

  /** Percentiles in milliseconds; nothing if nothing was measured. */
  void latency(String name, Histogram histogram) {
    if (histogram.getTotalCount() == 0) {
      return;
    }
    put(name + "_p50_ms", histogram.getValueAtPercentile(50) / 1000.0);
    put(name + "_p99_ms", histogram.getValueAtPercentile(99) / 1000.0);
    put(name + "_p999_ms", histogram.getValueAtPercentile(99.9) / 1000.0);
    put(name + "_max_ms", histogram.getMaxValue() / 1000.0);
  }

  @Override
  public String toString() {
    StringJoiner json = new StringJoiner(", ", "{", "}");
    fields.forEach((name, value) -> json.add(quoted(name) + ": " + value(value)));
    return json.toString();
  }

  private static String value(Object value) {
    if (value instanceof Double number) {
      return Double.isFinite(number) ? String.format(Locale.ROOT, "%.4f", number) : "null";
    }
    return value instanceof Number || value instanceof Boolean ? value.toString() : quoted(String.valueOf(value));
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        quoted.append('\\');
      }
      quoted.append(c < ' ' ? ' ' : c);
    }
    return quoted.append('"').toString();
  }
}
