"""Engines in a bucket: ``s3://BUCKET/PREFIX`` and ``gs://BUCKET/PREFIX`` as engine stores."""
