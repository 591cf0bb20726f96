"""Where engines are kept: folders of a volume, or a bucket; what is whole, what counts, what goes."""
