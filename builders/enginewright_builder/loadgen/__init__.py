"""MLCommons' LoadGen on a Triton server: its scenarios, its logs, and what answers its queries."""
