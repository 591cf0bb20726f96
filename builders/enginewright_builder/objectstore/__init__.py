"""Talks to object stores: ``s3://BUCKET`` and ``gs://BUCKET``, for sources and for engine stores."""
