"""A data set through an engine, shard by shard: every row is answered once, in order, whatever is killed meanwhile.

A shard is a contiguous range of rows; it is cut into chunks, each of which becomes one file of answers. A file that is
there is whole and is never written again, so a shard that starts again goes on with the chunks that are missing
(docs/adr/0044-offline-runs.md).
"""
