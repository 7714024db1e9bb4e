"""A program that starts as Prefect's server does, answers that it is well, and writes down the environment that it
got.
"""

FAKE = """
import json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_):
        pass

assert sys.argv[1:4] == ["server", "start", "--host"], sys.argv
pathlib.Path("mlruns/prefect/environ.json").write_text(json.dumps(dict(os.environ)))
HTTPServer((sys.argv[4], int(sys.argv[6])), Answer).serve_forever()
"""
