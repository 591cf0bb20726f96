"""What following the traffic with Triton's queue delay and preferred sizes is worth."""
