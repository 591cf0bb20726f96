"""How much speed the race of candidates gives away, and how much time it saves, on recorded and made-up timings.

``python -m competition record`` times real engines on this machine; ``python -m competition replay`` prints the table
of ``docs/adr/0006-competing-candidates.md``.
"""
