"""kopf watches; these handlers translate its arguments into keys of the work queue, and do nothing else."""
