"""``enginewright simulate``: Triton replicas under a trace, scaled by the operator's own scaler and by its peers.

Nothing here runs in the operator. ``trace`` and ``curve`` are what goes in, ``server`` is one replica, ``fleet`` all of
them, ``run`` the loop over time, ``policies`` decide once a second from what production would see, and ``results``,
``table`` and ``page`` are what comes out.
"""
