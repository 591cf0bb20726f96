"""``make streams-study``: are streams of a language model cut when replicas come and go?"""
