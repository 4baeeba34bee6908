"""A world in one picture: what drifts, what safety costs, and what happens in a few episodes.

Everything that is drawn is computed before, by `sd.describe` and `experiments.snapshots`.
"""

from __future__ import annotations

from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from safedrift._check import FloatArray
from safedrift.display.records import Board, Drifting, Quantity, Snapshots
from safedrift.reports.plots import BLACK, BLUE, FAINT, GREEN, GREY, ORANGE, PURPLE, SKY, downsample
from safedrift.results import Description

__all__ = ["draw_world"]

SIZE, DPI = (12.0, 8.0), 100  # inches, and pixels per inch
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
AREAS = ("#BFD9EA", "#F2CDB0", "#BFE3D6", "#EBD3E0", "#DDDDDD")  # pale versions of COLOURS
RARE = 0.01  # fewer visits per episode are drawn as none
WIDE = 45  # a legend with more letters has two rows
STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "axes.titlesize": 12.0,
    "axes.labelsize": 11.0,
    "legend.fontsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": BLACK,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def draw_world(description: Description, snapshots: Snapshots, path: str | Path) -> Path:
    """Draw a world as a PNG and return its path.

    Parameters
    ----------
    description
        From `sd.describe(world)`.
    snapshots
        From `experiments.snapshots.representative_snapshots(world)`. Policies of a learner, if any,
        are drawn dashed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure: Any = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08, hspace=0.04)
        above, below = figure.subfigures(2, 1, height_ratios=(1.0, 1.15))
        left, right = above.subfigures(1, 2, wspace=0.03)
        _draw_drift(left, snapshots, description)
        _draw_price(right, description)
        if snapshots.display.board is None:
            _draw_lines(below, snapshots)
        else:
            _draw_boards(below, snapshots, snapshots.display.board)
        _save(figure, path)
    return Path(path)


def _save(figure: Any, path: str | Path) -> None:
    """Write a PNG with 256 colours, a third of the size of one with full colours."""
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(path, format="PNG", optimize=True)


# ---------------------------------------------------------------- over the episodes


def _draw_drift(figure: Any, snapshots: Snapshots, description: Description) -> None:
    """What drifts, and where the representative episodes are."""
    drifts = snapshots.display.drifts
    axes = np.atleast_1d(figure.subplots(len(drifts), 1, sharex=True))
    for ax, drift in zip(axes, drifts, strict=True):
        _draw_shares(ax, drift) if drift.shares else _draw_levels(ax, drift)
        ax.set_xlim(0, max(description.sizes.known_M() - 1, 1))
        for snapshot, colour in zip(snapshots.display.snapshots, cycle(COLOURS), strict=False):
            ax.axvline(snapshot.episode, color=colour, lw=1.6, ls=(0, (1, 1.2)))
    title = f"{description.name}: what drifts" if description.name else "What drifts"
    figure.suptitle(title, x=0.02, ha="left", fontsize=12)
    _episode_axis(axes[-1])


def _draw_shares(ax: Any, drift: Drifting) -> None:
    kept = np.unique(np.concatenate([downsample(column, 600) for column in drift.values.T]))
    ax.stackplot(kept, drift.values[kept].T, labels=drift.names, colors=AREAS, step="post", lw=0)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1], ["0", "", "1"])
    ax.set_ylabel(drift.label)
    wide = len("".join(drift.names)) > WIDE
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2 if wide else len(drift.names),
        handlelength=1.2,
        columnspacing=1.2,
        borderaxespad=0.1,
    )


def _draw_levels(ax: Any, drift: Drifting) -> None:
    for name, column, colour in zip(drift.names, drift.values.T, cycle((BLACK, GREY))):
        kept = downsample(column, 600)
        ax.plot(kept, column[kept], color=colour, label=name)
    ax.set_ylabel(drift.label)
    if len(drift.names) > 1:
        ax.legend()


def _draw_price(figure: Any, description: Description) -> None:
    """The multipliers above, the Slater gap below."""
    mu_axes, gap_axes = figure.subplots(2, 1, sharex=True)
    x = description.episodes
    shares = ", ".join(f"{share:.0%}" for share in description.binding)
    mu = np.where(np.isfinite(description.multipliers), description.multipliers, np.nan)
    for k, (column, share) in enumerate(zip(mu.T, description.binding, strict=True)):
        label = f"{description.constraint(k)} ({share:.0%})"
        mu_axes.step(x, column, where="post", color=COLOURS[k % len(COLOURS)], label=label)
    title = f"What safety costs: the constraint binds in {shares} of episodes"
    if len(mu.T) > 1:
        title = "What safety costs (and in how many episodes)"
    figure.suptitle(title, x=0.02, ha="left", fontsize=12)
    mu_axes.set_ylabel("μ*, reward\nper utility")
    if len(mu.T) > 1:
        mu_axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(mu.T),
            handlelength=1.2,
            columnspacing=1.2,
            borderaxespad=0.1,
        )
    gap_axes.step(x, description.gamma, where="post", color=BLACK)
    gap_axes.set_ylabel("Slater gap γ,\nutility")
    for ax in (mu_axes, gap_axes):
        top = ax.dataLim.ymax
        ax.set_ylim(min(0.0, ax.dataLim.ymin), 1.12 * top if top > 0 else 1.0)
        ax.set_xlim(0, max(description.sizes.known_M() - 1, 1))
    _episode_axis(gap_axes)


def _episode_axis(ax: Any) -> None:
    ax.set_xlabel("episode")
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    ax.xaxis.get_major_locator().set_params(nbins=5, integer=True)


# ---------------------------------------------------------------- over the steps


def _draw_lines(figure: Any, snapshots: Snapshots) -> None:
    """One panel per quantity: the best safe policy solid, the learner dashed."""
    seen = snapshots.display
    times = np.arange(snapshots.best.shape[1]) if seen.times is None else seen.times
    panels = np.atleast_1d(figure.subplots(1, len(seen.quantities)))
    policies = [(snapshots.best_quantities, "-")]
    if snapshots.learned_quantities is not None:
        policies.append((snapshots.learned_quantities, "--"))
    for i, (ax, quantity) in enumerate(zip(panels, seen.quantities, strict=True)):
        _draw_wanted(ax, quantity)
        for values, style in policies:
            for line, colour in zip(values[i], cycle(COLOURS), strict=False):
                ax.plot(times, line, style, color=colour, lw=2, marker="o", ms=3)
        ax.set_title(quantity.label)
        ax.set_xlabel(seen.step)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.margins(y=0.08)
        ax.autoscale_view()
        if quantity.band is None:
            ax.set_ylim(bottom=min(-0.03 * ax.get_ylim()[1], ax.get_ylim()[0]))
    _draw_legend(figure, snapshots)


def _draw_wanted(ax: Any, quantity: Quantity) -> None:
    if quantity.band is not None:
        ax.axhspan(*quantity.band, color="#E4F2E4", zorder=0, label=quantity.wanted)
    if quantity.limits is not None:
        many = quantity.limits.size > 1 and np.ptp(quantity.limits) > 0
        colours = COLOURS if many else (GREY,)
        shown = quantity.limits if many else quantity.limits[:1]
        for i, (level, colour) in enumerate(zip(shown, cycle(colours), strict=False)):
            name = None if i else quantity.wanted
            ax.axhline(level, color=colour, lw=1.2, ls=":", zorder=1, label=name)
    if quantity.wanted:
        ax.legend(loc="best")


def _draw_legend(figure: Any, snapshots: Snapshots) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, lw=2, label=f"{snapshot.name} (episode {snapshot.episode:,})")
        for snapshot, colour in zip(snapshots.display.snapshots, cycle(COLOURS), strict=False)
    ]
    handles.append(Line2D([], [], color=BLACK, lw=2, label="best safe policy"))
    if snapshots.learned is not None:
        handles.append(Line2D([], [], color=BLACK, lw=2, ls="--", label="PROPD-PPO"))
    rows = -(-sum(len(str(handle.get_label())) + 8 for handle in handles) // 150)
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // rows))


# ---------------------------------------------------------------- maps


def _draw_boards(figure: Any, snapshots: Snapshots, board: Board) -> None:
    """Maps of expected visits: a column per representative episode, a row per policy."""
    rows = [("best safe policy", snapshots.best)]
    if snapshots.learned is not None:
        rows.append(("PROPD-PPO", snapshots.learned))
    panels = figure.subplots(len(rows), len(snapshots.display.snapshots), squeeze=False)
    cells = board.rows * board.columns
    visits = [measures.sum(axis=(1, 3))[:, :cells] for _, measures in rows]
    top = max(part.max() for part in visits)
    for i, (name, _) in enumerate(rows):
        for j, snapshot in enumerate(snapshots.display.snapshots):
            image = _draw_board(panels[i, j], board, visits[i][j], j, float(top))
            if i == 0:
                title = f"{snapshot.name} (episode {snapshot.episode:,})"
                panels[i, j].set_title(title, color=COLOURS[j % len(COLOURS)])
        panels[i, 0].set_ylabel(name)
    bar = figure.colorbar(image, ax=panels, label="visits per episode", shrink=0.9, aspect=24)
    bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:g}")


def _draw_board(ax: Any, board: Board, visits: FloatArray, snapshot: int, top: float) -> Any:
    from matplotlib.colors import LogNorm

    grid = visits.reshape(board.rows, board.columns).clip(RARE)
    image = ax.imshow(grid, cmap="YlGnBu", norm=LogNorm(RARE, top))
    for cell in board.hazards:
        y, x = divmod(int(cell), board.columns)
        ax.add_patch(_square(x, y))
    marks = [(board.start, "start"), (board.goals[snapshot], board.goal)]
    if board.hazards.size:
        marks.append((int(board.hazards[board.hazards.size // 2]), board.hazard))
    for cell, text in marks:
        y, x = divmod(cell, board.columns)
        dark = visits[cell] > np.sqrt(RARE * top)
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else BLACK,
            path_effects=[] if dark else [_halo()],
        )
    ax.set_xticks(np.arange(board.columns + 1) - 0.5, [])
    ax.set_yticks(np.arange(board.rows + 1) - 0.5, [])
    ax.grid(color=FAINT, lw=0.8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(True)
    return image


def _halo() -> Any:
    from matplotlib.patheffects import withStroke

    return withStroke(linewidth=2.5, foreground="white", alpha=0.8)


def _square(x: int, y: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, hatch="///", ec=ORANGE, lw=1.2)
