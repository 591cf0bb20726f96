"""Prompts for a small chat model: short tasks over everyday topics, no two alike."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

_TASKS = (
    "Explain {} to a child in two sentences.", "List three facts about {}.", "Write a short poem about {}.",
    "What are the advantages and disadvantages of {}?", "Write the first paragraph of a story about {}.",
    "Give me a title and a summary for an article about {}.", "How has {} changed over the last hundred years?",
    "Ask me five questions about {}.", "Describe {} without naming it.", "Why do people care about {}?",
    "Write an e-mail that invites a friend to a talk about {}.", "Compare {} with something similar.",
    "What should a beginner know about {}?", "Write a dialogue between two people who disagree about {}.",
    "Name a common mistake that concerns {}, and how to avoid it.")
_TOPICS = (
    "the sea", "bread", "rivers", "winter", "music", "the moon", "glass", "bridges", "salt", "paper", "iron", "gardens",
    "sleep", "maps", "bees", "rain", "clocks", "harbours", "wool", "light", "trains", "coffee", "chess", "mountains",
    "painting", "bicycles", "libraries", "volcanoes", "markets", "forests", "money", "cats", "theatre", "electricity",
    "swimming", "tea", "windows", "languages", "farming", "stars")


def prompts(count: int, max_tokens: int) -> Iterator[str]:
    """Lines of a file of prompts, the same each time. Raises ``ValueError`` where there are not so many."""
    pairs = list(itertools.product(_TASKS, _TOPICS))
    for task, topic in random.Random(0).sample(pairs, count):  # noqa: S311 - not a secret
        yield json.dumps({"messages": [{"role": "user", "content": task.format(topic)}], "max_tokens": max_tokens})
