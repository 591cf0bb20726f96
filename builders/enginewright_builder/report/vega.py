"""The library that draws the page's charts, as one script.

Vega-Lite with Vega and Vega-Embed (© University of Washington Interactive Data Lab, BSD 3-Clause), out of
``vl-convert-python``, which the Vega project itself packs: 0.9 MB, 0.3 MB compressed, and nothing is fetched.
"""

from __future__ import annotations

import functools

import vl_convert

VERSION = "6.4"
EXPORT = "window.vegaEmbed = vegaEmbed;"


@functools.cache
def script() -> str:
    """Sets ``window.vegaEmbed``. Safe between script tags."""
    return vl_convert.javascript_bundle(EXPORT, vl_version=VERSION).replace("</script", "<\\/script")
