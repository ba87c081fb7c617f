"""Packaging of synth_mtf."""

import pathlib

import setuptools

README = pathlib.Path(__file__).parent / 'README.md'

setuptools.setup(
  name='synth-mtf',
  version='0.1.0',
  description='Synthesizer (arXiv 2005.00743) as a Mesh-TensorFlow T5 plugin.',
  long_description=README.read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  python_requires='>=3.9,<3.12',
  # By name: `tests`, `tasks` and `gin` must not become top-level packages.
  packages=[
    *setuptools.find_packages(include=['synth_mtf', 'synth_mtf.*']),
    'synth_mtf.gin',
    'synth_mtf.tasks',
  ],
  package_dir={'synth_mtf.gin': 'gin', 'synth_mtf.tasks': 'tasks'},
  package_data={
    'synth_mtf': ['py.typed'],
    'synth_mtf.gin': ['**/*.gin'],
  },
  install_requires=[
    'absl-py',
    'gin-config>=0.5',
    'mesh-tensorflow[transformer]>=0.1.21',
    'numpy',
    'pandas',
    'sentencepiece',
    'seqio-nightly',
    't5>=0.9.4',
    'tensorflow>=2.12,<2.16',
    'tensorflow-datasets',
    'tensorflow-text>=2.12,<2.16',
    'typing-extensions',
  ],
  extras_require={
    't5-cli': ['torch'],
    'metrics': ['gensim', 'pycocoevalcap'],
    'cache': ['apache-beam[tfrecord]'],
    'dev': ['hypothesis', 'pytest', 'pytest-xdist', 'ruff'],
  },
  entry_points={'console_scripts': ['synth-mtf = synth_mtf.cli:main']},
)
