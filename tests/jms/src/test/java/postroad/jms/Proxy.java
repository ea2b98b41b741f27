package postroad.jms;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A TCP relay on loopback that can stop relaying while its sockets stay open, as a lost network does. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> sockets = new CopyOnWriteArrayList<>();
    private final String host;
    private final int port;
    private volatile boolean frozen;
    private volatile boolean mute;

    Proxy(String host, int port) throws IOException {
        this.host = host;
        this.port = port;
        daemon(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    /** From now on nothing passes, in either direction. */
    void freeze() {
        frozen = true;
    }

    /** From now on the client's words pass, and the answers to them are lost. */
    void holdAnswers() {
        mute = true;
    }

    /** Ends all connections; those that come later pass everything again. */
    void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
        mute = false;
    }

    private void accept() {
        try {
            while (true) {
                join(listener.accept());
            }
        } catch (IOException closed) {
            return;
        }
    }

    private void join(Socket client) throws IOException {
        Socket server;
        try {
            server = new Socket(host, port);
        } catch (IOException notThere) {
            client.close();
            return;
        }
        sockets.add(client);
        sockets.add(server);
        daemon(() -> relay(client, server, false));
        daemon(() -> relay(server, client, true));
    }

    private void relay(Socket from, Socket to, boolean answers) {
        byte[] buffer = new byte[16384];
        try (InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                if (!frozen && !(answers && mute)) {
                    out.write(buffer, 0, count);
                }
            }
        } catch (IOException closed) {
            return;
        }
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work, "proxy");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }
}
