"""What every training of benchmarks/claims.py imports."""

from synth_mtf.run import main

main.prepare()
