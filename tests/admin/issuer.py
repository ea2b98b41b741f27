"""An identity provider: serves its keys over HTTP, and signs tokens with `openssl`."""

import base64
import http.server
import json
import os
import subprocess
import threading
import time


def text(data):
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """An RSA key."""

    def __init__(self, folder, name):
        self.name, self.file = name, os.path.join(folder, f"{name}.pem")
        subprocess.run(["openssl", "genrsa", "-out", self.file, "2048"], check=True, capture_output=True)
        said = subprocess.run(["openssl", "rsa", "-in", self.file, "-noout", "-modulus"], check=True, capture_output=True)
        self.modulus = bytes.fromhex(said.stdout.decode().strip().split("=")[1])
        public = ["openssl", "rsa", "-in", self.file, "-pubout"]
        self.pem = subprocess.run(public, check=True, capture_output=True).stdout

    def jwk(self):
        return {"kty": "RSA", "use": "sig", "kid": self.name, "n": text(self.modulus), "e": "AQAB"}

    def sign(self, message):
        command = ["openssl", "dgst", "-sha256", "-sign", self.file]
        return subprocess.run(command, input=message, check=True, capture_output=True).stdout


class Issuer:
    """At a free port of this machine. `keys` are those that it publishes."""

    def __init__(self, folder):
        self.folder, self.requests = folder, []
        self.keys = [Key(folder, "first")]
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.requests.append(self.path)
                documents = {
                    "/.well-known/openid-configuration": {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"},
                    "/keys": {"keys": [key.jwk() for key in issuer.keys]},
                }
                body = json.dumps(documents.get(self.path, {})).encode()
                self.send_response(200 if self.path in documents else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def token(self, user, groups=(), key=None, header=None, sign=None, **changed):
        """A token of this user, good unless something is changed."""
        key, now = key or self.keys[0], int(time.time())
        header = {"alg": "RS256", "kid": key.name, "typ": "JWT", **(header or {})}
        claims = {"iss": self.url, "aud": "postroad", "sub": user, "groups": list(groups), "exp": now + 600, "nbf": now - 5, **changed}
        message = ".".join(text(json.dumps(part).encode()) for part in (header, claims))
        return f"{message}.{text((sign or key.sign)(message.encode()))}"
