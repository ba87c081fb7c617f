"""Official files as seqio data sources.

From the disk up: `storage` finds and opens files, `formats` divides a file into
rows and makes examples of them, `index` keeps what one pass over a file found,
and `source` is what seqio asks for a dataset. Which files a task reads and what
their rows mean is up to the families of tasks above this package.
"""
