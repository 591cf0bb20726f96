"""Bills of materials: SPDX 2.3 as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from release.contents import Package

Json = dict[str, Any]
# Of what the project states of itself; addresses of namespaces, under which nothing needs to lie.
NAMESPACE = "https://enginewright.io/spdx"
_NO_WORD = "NOASSERTION"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a bill is of.

    Attributes:
        file: its name among the release's files, or of what the release has no file of, a name for this bill.
        purpose: SPDX's ``primaryPackagePurpose``.
        sha256: of the file, hex, or of what the packages were read from.
        purl: where it has one.
        read_from: where the release has no such file, what its packages were read from instead.
    """

    name: str
    version: str
    file: str
    purpose: str
    sha256: str
    purl: str = ""
    read_from: str = ""


def document(subject: Subject, packages: Sequence[Package], created: str) -> Json:
    """``created`` is RFC 3339 in UTC, to the second."""
    root = {
        **_package("SPDXRef-release", subject.name, subject.version, "Apache-2.0", subject.purl),
        "primaryPackagePurpose": subject.purpose,
        **_origin(subject),
    }
    parts = [_package(f"SPDXRef-{index}-{_plain(package.name)}", package.name, package.version, package.licence,
                      package.purl) for index, package in enumerate(packages)]
    contains = [_relation("SPDXRef-release", "CONTAINS", part["SPDXID"]) for part in parts]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": subject.file,
        "documentNamespace": f"{NAMESPACE}/{subject.file}-{subject.sha256}",
        "creationInfo": {"created": created, "creators": [f"Tool: enginewright-release-{subject.version}"]},
        "packages": [root, *parts],
        "relationships": [_relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-release"), *contains],
        "hasExtractedLicensingInfos": _own_licences(packages),
    }


def _origin(subject: Subject) -> Json:
    if subject.read_from:
        return {"sourceInfo": subject.read_from}
    return {"packageFileName": subject.file,
            "checksums": [{"algorithm": "SHA256", "checksumValue": subject.sha256}]}


def _own_licences(packages: Sequence[Package]) -> list[Json]:
    """Licences that are not in SPDX's list; a document has to say what they are."""
    names = sorted({name for package in packages for name in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", package.licence)})
    return [{"licenseId": name, "extractedText": "The package brings its text."} for name in names]


def _package(identifier: str, name: str, version: str, licence: str, purl: str) -> Json:
    found: Json = {
        "SPDXID": identifier, "name": name, "versionInfo": version, "downloadLocation": _NO_WORD,
        "filesAnalyzed": False, "licenseConcluded": _NO_WORD, "licenseDeclared": licence or _NO_WORD,
        "copyrightText": _NO_WORD,
    }
    if purl:
        found["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": purl}]
    return found


def _relation(element: str, kind: str, other: str) -> Json:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)
