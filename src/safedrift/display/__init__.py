"""What a picture of a world shows: representative episodes, and quantities that an expert knows.

A problem's module may define `display(world) -> Display`; otherwise `generic_display` is used.
"""

from safedrift.display.generic import (
    allowed_per_step,
    chosen,
    generic_display,
    last_peak,
    shares,
)
from safedrift.display.records import (
    Board,
    BoardFrames,
    Display,
    Drifting,
    Quantity,
    Snapshot,
    Snapshots,
)

__all__ = [
    "Board",
    "BoardFrames",
    "Display",
    "Drifting",
    "Quantity",
    "Snapshot",
    "Snapshots",
    "allowed_per_step",
    "chosen",
    "generic_display",
    "last_peak",
    "shares",
]
