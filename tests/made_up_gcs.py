"""A stand-in for Google Cloud Storage.

TensorFlow reaches it as its proxy: a process that is given the variables of
`running` asks it for each path that begins with `gs://`. A function answers:
`refused` refuses everything, and `Objects` keeps what it is sent.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

STATUSES = (401, 403, 404)
needs_openssl = pytest.mark.skipif(
  not shutil.which('openssl'), reason='openssl makes its certificate'
)


class Request(NamedTuple):
  """What is asked.

  Attributes:
    method: such as GET.
    path: of the URL, still quoted.
    query: of the URL.
    headers: by their names.
    body: what is sent.
  """

  method: str
  path: str
  query: Mapping[str, str]
  headers: Mapping[str, str]
  body: bytes


class Answer(NamedTuple):
  """What is answered."""

  body: bytes = b''
  status: int = 200
  headers: Mapping[str, str] = {}


Answering = Callable[[Request], Answer]


def refused(status: int) -> Answer:
  """Refuses a request as storage does."""
  error = {'code': status, 'message': f'no access, status {status}'}
  return Answer(json.dumps({'error': error}).encode(), status)


def refused_by_name(request: Request) -> Answer:
  """Refuses with the number that a bucket's name begins with, else with 403."""
  named = re.search(r'/b/(\d+)', request.path)
  return refused(int(named[1]) if named else 403)


@contextlib.contextmanager
def running(
  folder: pathlib.Path, answering: Answering
) -> Iterator[dict[str, str]]:
  """Yields environment variables with which TensorFlow asks the stand-in.

  Args:
    folder: for its certificate.
    answering: answers each request, in a thread of this process.
  """
  certificate, key = folder / 'certificate.pem', folder / 'key.pem'
  _make_certificate(certificate, key)
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  context.load_cert_chain(certificate, key)

  class Handler(_Handler):
    tls = context
    answer_to = staticmethod(answering)

  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
      'https_proxy': f'http://127.0.0.1:{server.server_address[1]}',
      'CURL_CA_BUNDLE': str(certificate),
      'NO_GCE_CHECK': 'true',
    }
    server.shutdown()


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


class _Handler(http.server.BaseHTTPRequestHandler):
  """Answers the requests of a connection, to which a proxy is asked for."""

  protocol_version = 'HTTP/1.1'
  tls: ssl.SSLContext
  answer_to: Answering

  def do_CONNECT(self) -> None:  # noqa: N802
    self.send_response(200)
    self.end_headers()
    self.connection = self.tls.wrap_socket(self.connection, server_side=True)
    self.rfile = self.connection.makefile('rb')
    self.wfile = self.connection.makefile('wb', 0)
    self.close_connection = False

  def _answer(self) -> None:
    url = urllib.parse.urlsplit(self.path)
    query = dict(urllib.parse.parse_qsl(url.query))
    headers = dict(self.headers.items())
    request = Request(self.command, url.path, query, headers, self._body())
    answer = self.answer_to(request)
    self.send_response(answer.status)
    for name, value in answer.headers.items():
      self.send_header(name, value)
    self.send_header('Content-Length', str(len(answer.body)))
    self.end_headers()
    if self.command != 'HEAD':
      self.wfile.write(answer.body)

  def _body(self) -> bytes:
    if self.headers.get('Transfer-Encoding') != 'chunked':
      return self.rfile.read(int(self.headers.get('Content-Length', 0)))
    chunks = []
    while size := int(self.rfile.readline(), 16):
      chunks.append(self.rfile.read(size))
      self.rfile.readline()
    self.rfile.readline()
    return b''.join(chunks)

  do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

  def handle(self) -> None:
    with contextlib.suppress(OSError):  # the process that asked has ended
      super().handle()

  def log_message(self, *_: object) -> None:
    pass


class Objects:
  """Buckets, and the objects in them; also what TensorFlow asks of them.

  An object is a name and bytes, as in storage: there are no folders, and
  neither links nor permissions.
  """

  def __init__(self, folder: pathlib.Path) -> None:
    """Takes the folder for the objects, which other processes may share."""
    self._folder = folder

  def create(self, bucket: str) -> None:
    (self._folder / bucket).mkdir(parents=True)

  def names(self, bucket: str, prefix: str = '') -> list[str]:
    """Returns the names in a bucket that begin with a prefix."""
    files = os.listdir(self._folder / bucket)
    names = (urllib.parse.unquote(file) for file in files)
    return sorted(name for name in names if name.startswith(prefix))

  def read(self, bucket: str, name: str) -> bytes:
    return self._file(bucket, name).read_bytes()

  def write(self, bucket: str, name: str, content: bytes) -> None:
    """Writes an object as a whole, which readers see at once."""
    file = self._file(bucket, name)
    part = self._folder / f'part-{threading.get_ident()}-{os.getpid()}'
    part.write_bytes(content)
    part.replace(file)

  def _file(self, bucket: str, name: str) -> pathlib.Path:
    return self._folder / bucket / urllib.parse.quote(name, safe='')

  def answer(self, request: Request) -> Answer:
    """Answers a request of TensorFlow's."""
    try:
      return self._answer(request)
    except FileNotFoundError:
      return refused(404)

  def _answer(self, request: Request) -> Answer:
    split = request.path.removeprefix('/storage/v1').split('/')
    parts = [urllib.parse.unquote(part) for part in split[1:]]
    if not request.path.startswith('/storage/v1/'):
      return self._content(request, parts)
    match request.method, parts:
      case 'GET', ['b', bucket]:
        (self._folder / bucket).stat()
        return Answer(b'{}')
      case 'GET', ['b', bucket, 'o']:
        return self._listed(bucket, request.query)
      case 'GET', ['b', bucket, 'o', name]:
        return self._described(bucket, name)
      case 'DELETE', ['b', bucket, 'o', name]:
        self._file(bucket, name).unlink()
        return Answer()
      case 'POST', ['b', bucket, 'o', name, 'rewriteTo', 'b', to, 'o', new]:
        self.write(to, new, self.read(bucket, name))
        return Answer(b'{"done": true}')
    raise NotImplementedError(request)

  def _content(self, request: Request, parts: list[str]) -> Answer:
    """Sends a part of an object, or takes one as a whole."""
    match request.method, parts:
      case 'POST', ['upload', 'storage', 'v1', 'b', bucket, 'o']:
        (self._folder / bucket).stat()
        name = request.query['name']
        if request.query['uploadType'] == 'media':
          self.write(bucket, name, request.body)
          return Answer()
        name = urllib.parse.quote(name, safe='')
        url = f'https://storage.googleapis.com/{bucket}/{name}'
        return Answer(headers={'Location': url})
      case 'PUT', [bucket, name]:
        self.write(bucket, name, request.body)
        return Answer()
      case 'HEAD', [bucket, *names]:
        return Answer(self.read(bucket, '/'.join(names)))
      case 'GET', [bucket, *names]:
        content = self.read(bucket, '/'.join(names))
        return _part(content, request.headers['Range'])
    raise NotImplementedError(request)

  def _listed(self, bucket: str, query: Mapping[str, str]) -> Answer:
    """What begins with a prefix, up to the next delimiter."""
    prefix, delimiter = query.get('prefix', ''), query.get('delimiter')
    items, prefixes = [], set()
    for name in self.names(bucket, prefix):
      head, found, _ = name[len(prefix) :].partition(delimiter or '\0')
      if found:
        prefixes.add(f'{prefix}{head}{found}')
      else:
        items.append({'name': name})
    most = int(query.get('maxResults', 1000))
    found_all = {'items': items[:most], 'prefixes': sorted(prefixes)[:most]}
    return Answer(json.dumps(found_all).encode())

  def _described(self, bucket: str, name: str) -> Answer:
    status = self._file(bucket, name).stat()
    updated = time.strftime(
      '%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(status.st_mtime)
    )
    description = {
      'size': str(status.st_size),
      'generation': str(status.st_mtime_ns),
      'updated': updated,
    }
    return Answer(json.dumps(description).encode())


def _part(content: bytes, asked: str) -> Answer:
  first, last = (int(each) for each in re.findall(r'\d+', asked))
  if first >= len(content):
    return refused(416)
  return Answer(content[first : last + 1], 206)
