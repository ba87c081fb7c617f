"""Tests of synth_mtf; they mirror its folders."""
