"""The level-triggered loop: a deduplicating queue, passes of observe → decide → act → report, and a full resync."""
