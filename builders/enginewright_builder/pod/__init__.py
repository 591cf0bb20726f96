"""What runs in serving pods: the checks of a replica, and its Python model. Files are copied there one by one, so that
none of them imports anything of this package but ``device`` and ``libraries``, which are copied with those that do."""
