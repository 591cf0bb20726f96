"""Other weights of a language model that the user lists, held against what the source is before a server is started.
Whether they are as good as its own the gate says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from enginewright_builder.contract import BuildRequest, CheckpointRequest
from enginewright_builder.errors import UserError
from enginewright_builder.generate.listed import Found, Listing
from enginewright_builder.sources import places
from enginewright_builder.sources.causal import Causal

MOST = 8


def resolve_checkpoints(request: BuildRequest, source: Causal, scratch: Path) -> Mapping[str, Found]:
    """Raises as :meth:`Listing.resolve` does, and :class:`UserError` ``CheckpointMismatch``."""
    assert request.generate is not None
    wishes = request.generate

    def check(model: Causal, one: CheckpointRequest, field: str) -> None:
        _check_same(model, source, wishes.context_tokens or source.context, one, field)

    return Listing(field="spec.engine.checkpoints", word="checkpoint", most=MOST, such_as="awq",
                   place=places.CHECKPOINTS, check=check).resolve(request, wishes.checkpoints, scratch)


def _check_same(model: Causal, source: Causal, context: int, one: CheckpointRequest, field: str) -> None:
    """Other weights, of the same model. A shorter context would serve less than was asked for."""
    if model.architecture != source.architecture:
        problem = f"its architecture is {model.architecture}, and the source's {source.architecture}"
    elif model.vocabulary != source.vocabulary:
        problem = f"its vocabulary has {model.vocabulary} tokens, and the source's {source.vocabulary}"
    elif model.context and context > model.context:
        problem = f"it was made for {model.context} tokens, and {context} are served"
    elif _other_ends(model, source):
        problem = f"its texts end at {_tokens(model)}, and the source's at {_tokens(source)}"
    else:
        return
    raise UserError("CheckpointMismatch", f"checkpoint {one.name} is of another model: {problem}", field=field,
                    value=one.uri, remedy="give other weights of the same model, such as quantised ones, with the "
                    "source's generation_config.json, or remove it")


def _other_ends(model: Causal, source: Causal) -> bool:
    """The gate decodes past the ends of texts, so it does not see that a server would not stop there. Where one of both
    names no token, its tokeniser names one."""
    if model.ends and source.ends:
        return model.ends != source.ends
    return len(model.ends | source.ends) > 1


def _tokens(model: Causal) -> str:
    return f"token {', '.join(map(str, sorted(model.ends)))}" if model.ends else "the tokeniser's own token"
