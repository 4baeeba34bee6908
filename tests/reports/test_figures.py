"""Figures for publication are the plots of the page."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from hand_made_runs import make_run
from safedrift.reports import figures, plots


def drawn(run, monkeypatch, folder):
    """The matplotlib figures of a run by title."""
    found = []
    monkeypatch.setattr(figures, "_save", lambda figure, path, kind: found.append(figure) or path)
    every = list(plots.all_plots(run))
    paths = figures.save_figures(every, folder)
    assert [path.suffix for path in paths[:2]] == [".pdf", ".png"]
    return dict(zip((plot.title for plot in every), found[::2], strict=True))


def test_lines_and_labels_are_those_of_the_page(tmp_path, monkeypatch):
    run = make_run(K=2)
    mu = np.where(np.arange(60) < 15, 0.25, 0)[:, None] * [1, 1]
    run = replace(run, truth=replace(run.truth, optimal_mu=mu))
    for title, figure in drawn(run, monkeypatch, tmp_path).items():
        assert isinstance(figure, Figure)
        (plot,) = (plot for plot in plots.all_plots(run) if plot.title == title)
        lines = [trace for trace in plot.figure.data if trace.mode == "lines"]
        shown = [x for ax in figure.axes for x in ax.lines if x.get_label() != "_child0"]
        for trace in lines:
            (line,) = (x for x in shown if x.get_label() == unescape(trace.name))
            np.testing.assert_array_equal(line.get_ydata(), trace.y)
            assert line.get_color() == trace.line.color
        assert figure.axes[-1].get_xlabel() == "episode"


def test_files_are_whole_and_the_same_each_time(tmp_path):
    every = list(plots.all_plots(make_run()))[:1]
    first, second = (figures.save_figures(every, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["reward-and-optimum.pdf", "reward-and-optimum.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"%PDF")
    with Image.open(first[1]) as picture:
        assert picture.width == figures.WIDTH * figures.DPI
