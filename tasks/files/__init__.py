"""Official files as seqio data sources.

`synth_mtf.storage.filesystem` finds and opens the files. From the bottom up:
`formats` splits a file into rows and converts them to examples, `index` caches
the result of one pass over a file, and `source` provides seqio's data sources.
The task modules above this package define which files a task reads and what
their rows mean.
"""
