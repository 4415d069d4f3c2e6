"""The CRM on a port of its own, for when there is no site: `demo --exit`, and the tests."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from example_project.crm.service import FlakyCrm


@contextlib.contextmanager
def serving(crm: FlakyCrm) -> Iterator[str]:
    """Serve `crm` on a free port of 127.0.0.1; yields the value for `CRM_URL`, and stops serving at the end."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that says nothing does not keep its thread

        def do_PUT(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if match := re.fullmatch(r"/crm/customers/(\d+)/", self.path):
                status, text = crm.put(int(match[1]), self.rfile.read(length), self.headers.get("Idempotency-Key"))
            else:
                status, text = 404, "no such page"
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="crm", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/crm/"
        finally:
            server.shutdown()
            thread.join()
