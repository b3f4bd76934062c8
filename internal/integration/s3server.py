"""An S3 service in memory with an empty bucket named "bucket", for the tests.

It prints its port and serves until its standard input ends, which is when the test
process does, however that ends. It answers one request at a time: moto looks at the
condition of a write and writes then, which two at once could come between.
"""

import os
import sys
import threading


from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_request(self, *args):
        pass


server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False, request_handler=Quiet)


def end_with_parent():
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=end_with_parent, daemon=True).start()
print(server.port, flush=True)
server.serve_forever()
