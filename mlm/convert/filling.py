"""Foreign weights straight into a rank's part of a model."""

from __future__ import annotations

import torch
from torch import nn

from mlm.config.schema import ModelConfig
from mlm.convert.heads import Heads
from mlm.convert.source import Source
from mlm.convert.walk import Match, match, one
from mlm.parallel.mesh import Axis
from mlm.parallel.parameter import named_declarations


@torch.no_grad()
def fill_from(source: Source, config: ModelConfig, model: nn.Module, tp: Axis, heads: Heads) -> Match:
    """Copy this rank's slice of every tensor into the model; every rank reads the files for itself.

    Memory: one full tensor beyond the files' maps. Parameters that the source lacks and heads allows, the
    `fresh` of what is returned, keep their values. Raises ConfigError when anything else does not match.
    """
    declared = {name: (parameter, declaration) for name, parameter, declaration in named_declarations(model)}
    shapes = {name: declaration.shape for name, (_, declaration) in declared.items()}
    found = match(source, config, shapes, fresh=heads.fresh, dropped=heads.dropped)
    for name, entry in found.entries.items():
        parameter, declaration = declared[name]
        parameter.copy_(declaration.local_part(one(source, config, entry), tp))
    return found
