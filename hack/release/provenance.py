"""What a release was made of and by whom: an in-toto statement with SLSA's predicate, version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUILD_TYPE = "https://enginewright.io/make-release/v1"
BUILDER = "https://enginewright.io/make-release/by-hand"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
PAYLOAD = "application/vnd.in-toto+json"
Json = dict[str, Any]


def statement(subjects: Mapping[str, str], parameters: Mapping[str, Any], commit: str, locks: Mapping[str, str],
              builder: str, source: str) -> Json:
    """Without times, so that the same commit gives the same statement.

    Args:
        subjects: SHA-256 (hex) by the name of a file or an image.
        parameters: what ``make release`` was given.
        locks: SHA-256 (hex) by path of what the packages of the release were locked by.
        builder: an address that says whose machine made it.
        source: the repository's address, https://….
    """
    materials = [{"uri": f"git+{source}", "digest": {"gitCommit": commit}}]
    materials += [{"uri": path, "digest": {"sha256": digest}} for path, digest in sorted(locks.items())]
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {"buildType": BUILD_TYPE, "externalParameters": dict(parameters),
                                "resolvedDependencies": materials},
            "runDetails": {"builder": {"id": builder}},
        },
    }
