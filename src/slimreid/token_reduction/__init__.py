"""Token reduction: many patches become a few tokens, selected by a score and guided by other modalities.

Pure functions (`score`, `select`, `merge`, `estimators`), two thin modules around them (`after_backbone`,
`in_backbone`) and the versions of SEPS (`seps`). It knows nothing of what the tokens are used for.
"""

from slimreid.token_reduction.after_backbone import AfterBackboneReducer
from slimreid.token_reduction.in_backbone import InBackboneReducer
from slimreid.token_reduction.merge import ReducedTokens
from slimreid.token_reduction.modality_packing import Packing, pack_all, pack_present
from slimreid.token_reduction.select import Selection
from slimreid.token_reduction.seps import SEPS, SepsReducer

__all__ = [
    "SEPS",
    "AfterBackboneReducer",
    "InBackboneReducer",
    "Packing",
    "ReducedTokens",
    "Selection",
    "SepsReducer",
    "pack_all",
    "pack_present",
]
