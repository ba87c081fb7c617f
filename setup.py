"""Packaging of synth_mtf."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
README = (HERE / 'README.md').read_text(encoding='utf-8')
(VERSION,) = re.findall(
  r"^__version__ = '(.*)'$", (HERE / 'synth_mtf/__init__.py').read_text(), re.M
)

setuptools.setup(
  name='synth-mtf',
  version=VERSION,
  description='Synthesizer (arXiv 2005.00743) as a Mesh-TensorFlow T5 plugin.',
  long_description=README,
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  project_urls={
    'Paper': 'https://arxiv.org/abs/2005.00743',
    'T5': 'https://github.com/google-research/text-to-text-transfer-transformer',
    'Mesh TensorFlow': 'https://github.com/tensorflow/mesh',
  },
  classifiers=[
    'Development Status :: 5 - Production/Stable',
    'Environment :: Console',
    'Intended Audience :: Science/Research',
    'Operating System :: MacOS',
    'Operating System :: POSIX :: Linux',
    'Programming Language :: Python :: 3',
    'Programming Language :: Python :: 3.10',
    'Programming Language :: Python :: 3.11',
    'Programming Language :: Python :: 3.12',
    'Programming Language :: Python :: 3.13',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
    'Typing :: Typed',
  ],
  python_requires='>=3.10,<3.14',
  # In the checkout, synth_mtf/tasks and synth_mtf/gin are links to the folders
  # of these names at the top; `tests` is not installed.
  packages=setuptools.find_packages(include=['synth_mtf', 'synth_mtf.*']),
  package_data={
    'synth_mtf': [
      'py.typed',
      'cli/*.json',
      'gin/**/*.gin',
      'report/figures.js',
      'report/page.css',
      'report/page.html',
      'report/page.js',
      'results/layouts.json',
      'results/paper_tables.json',
      'demo/samples/**/*',
      'tasks/released.json',
    ]
  },
  install_requires=[
    'absl-py',
    'gin-config>=0.5',
    'jinja2',
    'markupsafe',
    'mesh-tensorflow[transformer]>=0.1.21',
    'numpy',
    'pandas',
    'pyyaml',
    'scipy',
    'sentencepiece',
    'seqio-nightly',  # also brings JAX, for `synth_mtf.pjrt`
    't5>=0.9.4',
    'tabulate',
    'tensorboard',
    'tensorflow>=2.12,<2.22',
    'tensorflow-datasets',
    'tensorflow-estimator',
    'tensorflow-text>=2.12,<2.22',
    'typing-extensions',
  ],
  extras_require={
    'hf': ['accelerate', 'safetensors', 'torch', 'transformers>=5.1,<5.25'],
    't5-cli': ['torch'],
    'metrics': ['gensim', 'pycocoevalcap'],
    'cache': ['apache-beam[tfrecord]'],
    'plot': ['matplotlib'],
    'completion': ['argcomplete'],
    'dev': [
      'argcomplete',
      'hypothesis',
      'import-linter',
      'matplotlib',
      'mypy',
      'pytest',
      'pytest-xdist',
      'ruff',
      'selenium',
      'uv',
    ],
  },
  entry_points={'console_scripts': ['synth-mtf = synth_mtf.cli:main']},
)
