"""Serves steps of layers of a checkout; see `_server`.

python -m benchmarks._serve_layer '{"batch": 4, "length": 512}' random ...
"""

import json
import logging
import os
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.argv[0] = 'synth-mtf'  # whose processes import what few runs need late

from synth_mtf.run import process

process.load_plugin()

import tensorflow.compat.v1 as tf

from benchmarks import _steps
from benchmarks._contestants import contestants
from benchmarks._server import serve

if __name__ == '__main__':
  logging.disable(logging.CRITICAL)  # gin reports each folder that it searches
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  shape = _steps.Shape(**json.loads(sys.argv[1]))
  known = contestants()
  serve({n: _steps.layer(known[n], shape).run for n in sys.argv[2:]})
