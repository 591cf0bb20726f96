"""Files copied into model repositories whose server has only Triton's Python backend."""
