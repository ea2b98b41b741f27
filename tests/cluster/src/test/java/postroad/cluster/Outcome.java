package postroad.cluster;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Removes the directories of nodes, which are large, after a test that has passed. */
public final class Outcome implements AfterEachCallback {
    private static final List<Path> LEFT = new CopyOnWriteArrayList<>();

    /** The processes in this directory have ended. */
    static void leaves(Path directory) {
        LEFT.add(directory);
    }

    @Override
    public void afterEach(ExtensionContext context) throws IOException {
        if (context.getExecutionException().isEmpty()) {
            for (Path directory : LEFT) {
                try (Stream<Path> files = Files.walk(directory)) {
                    for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                        Files.delete(file);
                    }
                }
            }
        }
        LEFT.clear();
    }
}
