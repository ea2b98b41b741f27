package postroad.jms;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.launcher.PostDiscoveryFilter;

/** Tests that are not run, each with its reason: {@code left-out.txt}. */
public final class LeftOut implements PostDiscoveryFilter {
    private static final Pattern LINE = Pattern.compile("(\\w+#\\w+) {2,}(\\S.*)");
    /** The last part of a test's id, as in {@code testBrowse {isUseCache=true}(org.apache.activemq.JmsQueueBrowserTest)}. */
    private static final Pattern TEST = Pattern.compile("(\\w+)[^(]*\\((?:\\w+\\.)*(\\w+)[^)]*\\)");

    private static final Map<String, String> REASONS = read(Path.of(System.getProperty("left.out")));

    @Override
    public FilterResult apply(TestDescriptor descriptor) {
        String reason = reason(descriptor.getUniqueId().getLastSegment().getValue());
        return reason == null ? FilterResult.included("it is not left out") : FilterResult.excluded(reason);
    }

    /** Why this test, {@code method(Class)}, is left out; null if it is not. */
    static String reason(String id) {
        Matcher test = TEST.matcher(id);
        return test.matches() ? REASONS.get(test.group(2) + "#" + test.group(1)) : null;
    }

    private static Map<String, String> read(Path file) {
        try (var lines = Files.lines(file)) {
            return lines.filter(line -> !line.isBlank() && !line.startsWith("#")).map(LeftOut::parse)
                    .collect(Collectors.toMap(line -> line.group(1), line -> line.group(2)));
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static Matcher parse(String line) {
        Matcher matcher = LINE.matcher(line);
        if (!matcher.matches()) {
            throw new IllegalArgumentException("left-out.txt: not 'Class#method  reason': " + line);
        }
        return matcher;
    }
}
