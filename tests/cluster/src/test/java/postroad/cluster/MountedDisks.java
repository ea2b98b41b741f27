package postroad.cluster;

import java.io.IOException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Data directories on disks of their own, in memory, which get full when a test says so. Needs the right to mount. */
final class MountedDisks implements AutoCloseable {
    private static final String SIZE = "size=4g";

    private final List<Path> mounted = new ArrayList<>();

    /** Whether this user can mount a disk. */
    static boolean areAllowed() throws IOException {
        Path probe = Files.createTempDirectory("postroad-mount-");
        try {
            return mount("-t", "tmpfs", "postroad-test", probe.toString()) && run("umount", probe.toString());
        } finally {
            Files.delete(probe);
        }
    }

    private static boolean mount(String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of("mount"));
        command.addAll(List.of(arguments));
        return run(command.toArray(String[]::new));
    }

    private static boolean run(String... command) throws IOException {
        try {
            return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()
                    .waitFor() == 0;
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    /** The data directory of a node that has not started yet is a disk from now on. */
    void prepare(Node node) throws IOException {
        Path disk = Files.createDirectories(node.data());
        if (!mount("-t", "tmpfs", "-o", SIZE, "postroad-test", disk.toString())) {
            throw new IOException("cannot mount " + disk);
        }
        mounted.add(disk);
    }

    boolean has(Node node) {
        return mounted.contains(node.data());
    }

    /** Nothing more than this fits on the disk of a node from now on. */
    void fill(Node node, long moreBytes) throws IOException {
        FileStore disk = Files.getFileStore(node.data());
        long usedBytes = disk.getTotalSpace() - disk.getUsableSpace();
        remount(node, "size=" + (usedBytes + moreBytes) / 1024 + "k");
    }

    /** The same once more, if the node has freed space meanwhile. */
    void fillAgain(Node node, long moreBytes) throws IOException {
        if (moreBytes < Files.getFileStore(node.data()).getUsableSpace()) {
            fill(node, moreBytes);
        }
    }

    void giveSpace(Node node) throws IOException {
        remount(node, SIZE);
    }

    private static void remount(Node node, String size) throws IOException {
        if (!mount("-o", "remount," + size, node.data().toString())) {
            throw new IOException("cannot change the size of " + node.data());
        }
    }

    @Override
    public void close() throws IOException {
        for (Path disk : mounted) {
            if (!run("umount", "-l", disk.toString())) {
                throw new IOException("cannot unmount " + disk);
            }
        }
    }
}
