"""How ``bench.spark`` shows its rows: rows a second, and CPU of Spark and of the server."""

import statistics
from collections.abc import Mapping, Sequence

from bench.broker_results import RowResult, quartiles

HEADINGS = f"{'':<20} {'rows/s':>11} {'quartiles':>21} {'CPU s/M rows: Spark':>20} {'server':>8}"


def show(result: RowResult) -> None:
    print(result.name)
    for way, figures in result.series.items():
        print(f"  {way:<18} {figures_line(figures)}".rstrip())
    for verdict in result.verdicts:
        print(f"    {verdict}")
    for note in result.notes:
        print(f"    note: {note}")
    print(end="", flush=True)


def figures_line(figures: Mapping[str, Sequence[float]]) -> str:
    """Medians; the first figure with its quartiles."""
    if "rate" not in figures:
        return ", ".join(spread(name, values) for name, values in figures.items())
    low, middle, high = quartiles(figures["rate"])
    quartile_text = f"{low:,.0f} - {high:,.0f}"
    cells = [f"{middle:>11,.0f}", f"{quartile_text:>21}"]
    cells.append(f"{statistics.median(figures['cpu_us']):>20.2f}")
    cells.append(f"{statistics.median(figures['server_cpu_us']):>8.2f}")
    if "start_s" in figures:
        cells.append(f" query start {statistics.median(figures['start_s']):.2f} s")
    return " ".join(cells)


def spread(name: str, values: Sequence[float]) -> str:
    low, middle, high = quartiles(values)
    return f"{name} {middle:.3g} ({low:.3g} - {high:.3g})"
