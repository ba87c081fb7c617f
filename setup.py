"""Packaging of synth_mtf."""

import pathlib

import setuptools

README = pathlib.Path(__file__).parent / 'README.md'

setuptools.setup(
  name='synth-mtf',
  version='0.1.0',
  description='Synthesizer (arXiv 2005.00743) as a Mesh-TensorFlow T5 plugin.',
  long_description=README.read_text() if README.exists() else '',
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  python_requires='>=3.9,<3.12',
  # By name: `tests`, `tasks` and `gin` must not become top-level packages.
  packages=[
    'synth_mtf',
    'synth_mtf.cli',
    'synth_mtf.demo',
    'synth_mtf.demo.samples',
    *(
      'synth_mtf.' + name
      for name in ('analysis', 'baselines', 'synthesizers')
      if pathlib.Path('synth_mtf', name).is_dir()
    ),
    'synth_mtf.gin',
    'synth_mtf.tasks',
  ],
  package_dir={'synth_mtf.gin': 'gin', 'synth_mtf.tasks': 'tasks'},
  package_data={'synth_mtf.gin': ['**/*.gin']},
  install_requires=[
    'gin-config>=0.5',
    'mesh-tensorflow[transformer]>=0.1.21',
    'numpy',
    'sentencepiece',
    'seqio-nightly',
    't5>=0.9.4',
    'tensorflow>=2.12,<2.16',
    'tensorflow-text>=2.12,<2.16',
  ],
  extras_require={
    't5-cli': ['torch'],
    'metrics': ['nltk', 'pycocoevalcap'],
    'cache': ['apache-beam'],
    'dev': ['hypothesis', 'pytest', 'ruff'],
  },
  entry_points={'console_scripts': ['synth-mtf = synth_mtf.cli:main']},
)
