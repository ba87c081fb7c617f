"""A stand-in for Google Cloud Storage, which answers every request alike.

TensorFlow reaches it as its proxy: a process that is given `variables` asks it
for each path that begins with `gs://`.
"""

import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

_MOST_BYTES = 65536
_END = b'\r\n\r\n'
needs_openssl = pytest.mark.skipif(
  not shutil.which('openssl'), reason='openssl makes its certificate'
)


class Bucket:
  """Answers requests, in threads of this process.

  Attributes:
    variables: of the environment of a process that asks it.
  """

  def __init__(self, folder: pathlib.Path, status: int) -> None:
    """Takes a folder for its certificate, and the status of each answer."""
    key, certificate = folder / 'key.pem', folder / 'certificate.pem'
    subprocess.run(
      [
        *('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes'),
        *('-keyout', key, '-out', certificate, '-subj', '/CN=made up'),
        *('-addext', 'subjectAltName=DNS:*.googleapis.com'),
      ],
      check=True,
      capture_output=True,
    )
    self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    self._tls.load_cert_chain(certificate, key)
    message = f'somebody has no access, status {status}'
    body = json.dumps({'error': {'code': status, 'message': message}}).encode()
    self._answer = (
      b'HTTP/1.1 %d X\r\nContent-Length: %d' % (status, len(body)) + _END + body
    )
    self._socket = socket.create_server(('127.0.0.1', 0))
    port = self._socket.getsockname()[1]
    self.variables = {
      'CURL_CA_BUNDLE': str(certificate),
      'NO_GCE_CHECK': 'true',
      'https_proxy': f'http://127.0.0.1:{port}',
    }
    threading.Thread(target=self._accept, daemon=True).start()

  def _accept(self) -> None:
    while True:
      connection, _ = self._socket.accept()
      args = (connection,)
      threading.Thread(target=self._serve, args=args, daemon=True).start()

  def _serve(self, connection: socket.socket) -> None:
    _head(connection)  # CONNECT, to the proxy
    connection.sendall(b'HTTP/1.1 200 OK' + _END)
    with self._tls.wrap_socket(connection, server_side=True) as secured:
      while _head(secured):
        secured.sendall(self._answer)


def _head(connection: socket.socket) -> bytes:
  """Returns the head of a request, or what there is at the end."""
  data = b''
  while _END not in data:
    more = connection.recv(_MOST_BYTES)
    if not more:
      return b''
    data += more
  return data
