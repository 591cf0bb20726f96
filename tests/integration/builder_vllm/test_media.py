"""What vLLM does with an address that a client names in place of an image, with the words of a replica."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from http import HTTPStatus

import pytest

from enginewright.core.manifests import deployment
from enginewright_builder.generate.packages import packages
from support.children import children_of
from support.http_server import Handler, answering
from support.language_model import vllm
from support.published_language_model import built_language_model

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
# vLLM's own reader of words, and what downloads images for its servers.
SCRIPT = """
import asyncio, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal.media import MediaConnector
from vllm.utils.argparse_utils import FlexibleArgumentParser
url, *words = sys.argv[1:]
given = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(words)
connector = MediaConnector(allowed_media_domains=given.allowed_media_domains)
try:
    asyncio.run(connector.fetch_image_async(url))
except ValueError as error:
    print(error)
"""


def words() -> list[str]:
    """Of a replica's command line, those that say what may be downloaded."""
    children = children_of("chat", {"source": {"uri": "pvc://models/tiny"}, "placement": {"accelerator": "cpu"}})
    record = replace(children.record, outcome=built_language_model(children.fingerprint))
    made = deployment(children.owner, children.spec, record, children.placement, children.config)
    return [one for one in made["spec"]["template"]["spec"]["containers"][0]["args"] if one.startswith("--allowed-")]


def test_it_is_not_asked_for_anything() -> None:
    vllm()
    asked: list[str] = []

    class Inside(Handler):
        def answer(self, body: bytes) -> None:
            asked.append(self.path)
            self.send(HTTPStatus.NOT_FOUND, b"", {})

    with answering(Inside) as port:
        ran = subprocess.run([sys.executable, "-s", "-S", "-c", SCRIPT, f"http://127.0.0.1:{port}/secret", *words()],
                             env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages()),
                                  "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False)
    assert asked == []
    assert "must be from one of the allowed domains" in ran.stdout, ran.stderr[-2000:]
