"""Official files as seqio data sources.

From the disk up: `storage` opens and finds files, `formats` divides a file into
rows and makes examples of them, `index` remembers what one pass over a file
found, and `source` is what seqio asks for a dataset. `rows` holds the faults
that a row can have. Which files a task reads and what their rows mean is up to
the families of tasks above this package.
"""
