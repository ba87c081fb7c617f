"""A stand-in for Google Cloud Storage that refuses every request.

The name of a bucket begins with the status that it answers with: every request
for `gs://401-bucket/...` is answered with 401. Others answer with 403.
"""

import contextlib
import json
import pathlib
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator

STATUSES = (401, 403, 404)
_SECONDS = 60  # for a request


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[dict[str, str]]:
  """Yields environment variables with which TensorFlow asks the stand-in."""
  certificate, key = folder / 'certificate.pem', folder / 'key.pem'
  _make_certificate(certificate, key)
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.load_cert_chain(certificate, key)
  with socket.create_server(('127.0.0.1', 0)) as listener:
    threading.Thread(
      target=_serve, args=(listener, context), daemon=True
    ).start()
    yield {
      'https_proxy': f'http://127.0.0.1:{listener.getsockname()[1]}',
      'CURL_CA_BUNDLE': str(certificate),
      'NO_GCE_CHECK': 'true',
    }


def _make_certificate(certificate: pathlib.Path, key: pathlib.Path) -> None:
  subprocess.run(
    [
      *('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes'),
      *('-subj', '/CN=made-up', '-days', '2'),
      *('-addext', 'subjectAltName=DNS:*.googleapis.com'),
      *('-keyout', str(key), '-out', str(certificate)),
    ],
    check=True,
    capture_output=True,
  )


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
  with contextlib.suppress(OSError):  # the listener is closed at the end
    while True:
      connection, _ = listener.accept()
      threading.Thread(
        target=_answer, args=(connection, context), daemon=True
      ).start()


def _answer(connection: socket.socket, context: ssl.SSLContext) -> None:
  """Answers the requests of a connection, to which a proxy is asked for."""
  connection.settimeout(_SECONDS)
  with contextlib.suppress(OSError):
    _head(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
    with context.wrap_socket(connection, server_side=True) as secure:
      while head := _head(secure):
        secure.sendall(_refusal(head))


def _head(connection: socket.socket) -> bytes:
  """Returns the head of a request, or nothing at the end."""
  data = b''
  while b'\r\n\r\n' not in data:
    more = connection.recv(1 << 16)
    if not more:
      return b''
    data += more
  return data


def _refusal(head: bytes) -> bytes:
  named = re.search(rb'/b/(\d+)', head)
  status = int(named[1]) if named else 403
  error = {'code': status, 'message': 'The caller has no access.'}
  body = json.dumps({'error': error}).encode()
  lines = (
    f'HTTP/1.1 {status} Refused',
    'Content-Type: application/json',
    f'Content-Length: {len(body)}',
  )
  return '\r\n'.join(lines).encode() + b'\r\n\r\n' + body
