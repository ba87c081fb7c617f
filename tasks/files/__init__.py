"""Official files as seqio data sources.

Here lives the way of a row, in this order: `streams` of bytes, `formats` that
cut them into records and examples, `blocks` of records, `scanning` of a whole
file, `loading` into tf.data, and the `source` that seqio asks. `rows` is what
they all handle. Which files a task has and what its rows mean is the business
of the families above this folder.
"""
