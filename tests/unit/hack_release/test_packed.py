"""The Python packages that an archive of the kubectl plugin holds, for its bill of materials."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from release.contents import Package
from release.make import _packed

METADATA = b"Metadata-Version: 2.4\nName: PyYAML\nVersion: 6.0.3\n"
FILES = {"kubectl-optimisedmodel": b"#!/bin/sh\n", "lib/yaml/__init__.py": b"",
         "lib/pyyaml-6.0.3.dist-info/METADATA": METADATA, "lib/pyyaml-6.0.3.dist-info/RECORD": b""}


def as_tar() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        folder = tarfile.TarInfo("lib")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def as_zip() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return written.getvalue()


@pytest.mark.parametrize(("name", "content"), [("plugin.tar.gz", as_tar()), ("plugin.zip", as_zip())])
def test_packages_are_found_in_either_kind_of_archive(name: str, content: bytes) -> None:
    (found,) = _packed(content, name)
    assert isinstance(found, Package)
    assert (found.name, found.version) == ("PyYAML", "6.0.3")
