"""Recorded data beside the drift they cause: the pictures of docs/recorded-data.md.

    python studies/recorded_data.py [--out docs/problems]

Top: the record. Middle: what the world makes of it. Bottom: the price of the constraint, μ*, at the
optimum of each recorded day.
"""

import argparse
from datetime import date, timedelta
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np

import safedrift as sd
from safedrift.problems.commute import road_shares, seattle
from safedrift.problems.departures import OPEN, POOR, poor_share, recorded, traffic

BLUE, SKY, RED, ORANGE, GREY = "#0072B2", "#56B4E9", "#C8442B", "#E69F00", "#8A8A8A"
DRY, WET, ICE = "#E9DFC7", "#7FB2D9", "#1F3A68"
plt.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
                 "axes.titlesize": 10.5, "axes.titlelocation": "left"}  # fmt: skip


def dates(first, count):
    return np.array([first + timedelta(days=n) for n in range(count)])


def legend(axis, columns, **options):
    """On the line of the title, at the right."""
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1.01), ncols=columns, frameon=False,
                handlelength=1, borderaxespad=0, borderpad=0.1, **options)  # fmt: skip


def finish(figure, axes, path, months):
    for axis in axes:
        axis.xaxis.set_major_locator(mdates.MonthLocator(bymonth=months))
        axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(axis.xaxis.get_major_locator()))
        axis.margins(x=0)
    figure.align_ylabels(axes)
    figure.savefig(path, dpi=140, bbox_inches="tight")
    print(path)


def commute(path):
    rain, low, high, _ = seattle()
    days = dates(date(2012, 1, 1), rain.size)
    shares = road_shares(*seattle())
    world = sd.problems.make("commute", episodes=rain.size)
    price = sd.optima(world).multipliers[:, 0]
    figure, axes = plt.subplots(
        4, 1, figsize=(10.5, 8.4), sharex=True, layout="constrained",
        height_ratios=(1.0, 1.0, 1.2, 1.0),
    )  # fmt: skip
    axes[0].fill_between(days, low, high, color=ORANGE, alpha=0.55, lw=0)
    axes[0].fill_between(days, np.minimum(low, 2), 2, color=ICE, lw=0)
    axes[0].axhline(2, color=ICE, lw=0.7)
    axes[0].set(ylabel="°C", title="Recorded: lowest to highest temperature; dark where below 2 °C")
    axes[1].vlines(days, 0, rain, color=BLUE, lw=0.8)
    axes[1].set(ylabel="mm a day", ylim=(0, None), title="Recorded: precipitation")
    axes[2].stackplot(days, shares[:, 2], shares[:, 1], shares[:, 0], colors=(ICE, WET, DRY),
                      labels=("icy", "wet", "dry"), step="mid", lw=0)  # fmt: skip
    axes[2].set(ylabel="share of the road", ylim=(0, 1), title="Drift: weights of the scenarios")
    legend(axes[2], 3)
    dry, wet, ice = shares.T
    kinds = (("mostly dry", dry >= wet, "#C9A227"), ("mostly wet", wet > dry, WET),
             ("ice on a tenth or more", ice >= 0.1, ICE))  # fmt: skip
    for label, which, colour in kinds:
        axes[3].plot(days[which], price[which], "o", ms=2.6, mew=0, color=colour, label=label)
    axes[3].set(ylabel="μ*", ylim=(0, None), title="Price of a near miss at the optimum of the day")
    legend(axes[3], 3, markerscale=2)
    figure.suptitle("commute: four years of Seattle", x=0.01, ha="left", weight="bold")
    finish(figure, axes, path, (1, 4, 7, 10))


def departures(path, airport="EWR", first=6, H=16):
    year, hours = recorded(airport), slice(first, first + H)
    due = year.due[:, hours]
    n, quiet, busy, share = traffic(due, 6)
    poor = poor_share(year.poor[:, hours])
    days = dates(date(2013, 1, 1), share.size)
    found = sd.optima(sd.problems.make("departures", episodes=share.size, airport=airport))
    figure, axes = plt.subplots(
        4, 1, figsize=(10.5, 9.2), sharex=True, layout="constrained",
        height_ratios=(1.5, 0.7, 1.0, 1.1),
    )  # fmt: skip
    edges = mdates.date2num([*days, days[-1] + timedelta(days=1)])
    picture = axes[0].pcolormesh(edges, np.arange(first, first + H + 1), due.T, cmap="YlGnBu",
                                 vmin=0, rasterized=True)  # fmt: skip
    axes[0].set(ylabel="hour of the day", yticks=range(first, first + H + 1, 4),
                title=f"Recorded: flights due for departure from {airport}, per hour")  # fmt: skip
    axes[0].invert_yaxis()
    figure.colorbar(picture, ax=axes[0], pad=0.01, aspect=14)
    axes[1].vlines(days, 0, 100 * poor, color=GREY, lw=1.4)
    axes[1].set(ylabel="% of hours", ylim=(0, 100), yticks=(0, 50, 100),
                title="Recorded: hours of low visibility, strong gusts or heavy rain")  # fmt: skip
    rate = 6 * n * (quiet.mean() * (1 - share) + busy.mean() * share)
    runway = [6 * n * p * (1 - (1 - POOR) * poor) for p in (OPEN.min(), OPEN.max())]
    axes[2].fill_between(days, *runway, step="mid", color=SKY, alpha=0.5, lw=0,
                         label="runway, from shared to departures first")  # fmt: skip
    axes[2].plot(days, rate, color=BLUE, lw=1.1, drawstyle="steps-mid", label="flights ready")
    axes[2].set(ylabel="per hour", ylim=(0, None), title="Drift: means over the day")
    legend(axes[2], 2)
    price = found.multipliers[:, 0]
    binds = price > 1e-9
    axes[3].vlines(days, 0, price, color=RED, lw=1.4)
    axes[3].set(ylabel="μ*", ylim=(0, None),
                title="Price of the queue at the optimum of the day: the limit binds on "
                f"{binds.sum()} of {binds.size} days")  # fmt: skip
    figure.suptitle("departures: Newark in 2013", x=0.01, ha="left", weight="bold")
    finish(figure, axes, path, range(1, 13))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/problems"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    commute(out / "commute_data.png")
    departures(out / "departures_data.png")


if __name__ == "__main__":
    main()
