"""``enginewright-build mlperf``: MLPerf's scenarios on an engine that is built."""
