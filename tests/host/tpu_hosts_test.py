"""How many hosts a TPU slice has, by the environment or a metadata server."""

import http.server
import threading

import pytest
from jax._src import distributed

from synth_mtf.errors import UserError
from synth_mtf.host import tpu_hosts, tpu_runtime
from synth_mtf.pjrt import hosts

V5E = tpu_runtime.Chips('v5e', 8, [])


@pytest.fixture(autouse=True)
def chips(monkeypatch):
  """Makes this machine a TPU VM, whose environment names no hosts."""
  monkeypatch.setattr(tpu_runtime, 'chips', lambda: V5E)
  for name in ('TPU_SKIP_MDS_QUERY', 'TPU_WORKER_HOSTNAMES', 'http_proxy'):
    monkeypatch.delenv(name, raising=False)


@pytest.fixture
def metadata(monkeypatch):
  """Starts a metadata server that knows these attributes."""
  servers = []

  def start(attributes):
    class Handler(http.server.BaseHTTPRequestHandler):
      def do_GET(self):  # noqa: N802
        value = attributes.get(self.path.rpartition('/')[2])
        self.send_response(404 if value is None else 200)
        self.end_headers()
        self.wfile.write((value or '').encode())

      def log_message(self, *_):
        pass

    server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
    servers.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    monkeypatch.setenv('GCE_METADATA_IP', f'127.0.0.1:{port}')

  yield start
  for server in servers:
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
  'attributes, count',
  [
    ({}, 1),
    ({'worker-network-endpoints': '10.0.0.2'}, 1),
    ({'worker-network-endpoints': 'a:0:10.0.0.2,a:1:10.0.0.3'}, 2),
    (
      {
        'worker-network-endpoints': '10.0.0.2,10.0.0.3',
        'tpu-env': "ZONE: 'us'\nMEGASCALE_NUM_SLICES: '2'\nWORKER_ID: '0'\n",
      },
      4,
    ),
  ],
)
def test_the_metadata_server_counts(metadata, attributes, count):
  metadata(attributes)
  assert tpu_hosts.count() == count


def test_the_environment_counts(monkeypatch):
  monkeypatch.setenv('TPU_WORKER_HOSTNAMES', 'a,b')
  monkeypatch.setenv('MEGASCALE_NUM_SLICES', '3')
  assert tpu_hosts.count() == 6
  monkeypatch.setenv('MEGASCALE_NUM_SLICES', 'three')
  with pytest.raises(UserError, match="'three': expected the number"):
    tpu_hosts.count()


@pytest.mark.parametrize('server', ['127.0.0.1:1', 'not a name', '['])
def test_without_a_metadata_server_there_is_one_host(monkeypatch, server):
  monkeypatch.setenv('GCE_METADATA_IP', server)
  assert tpu_hosts.count() == 1


def test_a_host_alone_does_not_join(metadata):
  """JAX would take SIGTERM, and open a port."""
  metadata({'worker-network-endpoints': '127.0.0.1'})
  with hosts.joined('tpu', None) as found:
    assert found.is_alone
  with hosts.joined('cpu', ('localhost:1', hosts.Group(1, 0))) as found:
    assert found.is_alone
  assert distributed.global_state.client is None


def test_a_slice_that_jax_cannot_connect_is_named(metadata):
  metadata({'worker-network-endpoints': '10.0.0.2,10.0.0.3'})
  message = 'has 2 hosts, which JAX .* cannot'
  with pytest.raises(UserError, match=message), hosts.joined('tpu', None):
    pass
