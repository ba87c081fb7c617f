"""The paper's tables, made of a user's own runs.

`layouts` says which columns a table has, `columns` what stands in one,
`checkpoints` at which step it is taken; `table` puts the runs of one model
together. `grid` makes texts of the numbers, which `formats` lays out; `data`
writes the numbers themselves.
"""
