"""Parts of what hack/generate.py writes, a file each."""
