"""An endpoint for push queues: remembers each request, and answers as it is told."""

import http.server
import threading
import time
import types


class Receiver:
    """Serves on a free port; `answer(request)` gives a status, or a status and headers."""

    def __init__(self, answer=lambda request: 200):
        self.requests = []
        self.changed = threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                request = types.SimpleNamespace(
                    path=self.path, headers=self.headers, body=body, at=time.monotonic()
                )
                with receiver.changed:
                    receiver.requests.append(request)
                    receiver.changed.notify_all()
                answer = answering(request)
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                text = b"" if status < 300 else f"no: {status}".encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(text)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass

            def log_message(self, *arguments):
                pass

        answering = answer
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.server.server_address[1]}{path}"

    def wait_for(self, count, seconds=30):
        """The first `count` requests."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= count, seconds), (
                f"{len(self.requests)} of {count} requests in {seconds} s"
            )
            return list(self.requests)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
