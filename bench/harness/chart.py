"""From the table in docs/benchmarks.md to a picture: throughput and publish latency of each broker."""

import re

# Workload, label. All OpenWire workloads of the table with durable messages, and the topics.
ROWS = [
    ("queue-1-1", "queue, 1 KiB, 1 producer"),
    ("queue-20-20", "queue, 1 KiB, 20 producers"),
    ("small-20-20", "queues, 128 B, 20 producers"),
    ("backlog-100", "queues, 5 KB, 100 producers"),
    ("topic-20-1", "topic, 1 subscriber"),
    ("topic-20-10", "topic, 10 subscribers"),
]
# Measure, title, whether more is better.
PANELS = [("published/s", "Messages published per second (longer is better)"),
          ("publish p99 ms", "Publish latency, 99th percentile, ms (shorter is better)")]
COLOURS = {"postroad": "#d9480f", "activemq": "#868e96", "artemis": "#ced4da"}
NAMES = {"postroad": "Postroad", "activemq": "ActiveMQ Classic", "artemis": "Artemis"}

WIDTH, LEFT, BAR, GAP, GROUP_GAP, TOP = 960, 190, 11, 1, 12, 74
PANEL = (WIDTH - LEFT - 20) // 2
LENGTH = PANEL - 66


def measured(document):
    """{workload: {measure: {broker: number}}} of the tables between the marks, and the line that says where and when."""
    block = document.split("<!-- bench:begin -->")[1].split("<!-- bench:end -->")[0]
    found, workload, brokers = {}, None, []
    for line in block.splitlines():
        if title := re.match(r"\*\*([a-z0-9-]+)\*\*:", line):
            workload = title.group(1)
            found[workload] = {}
        elif line.startswith("|  |"):
            brokers = [cell.strip() for cell in line.strip("|").split("|")[1:] if "/" not in cell]
        elif line.startswith("| ") and workload:
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            numbers = [number(cell) for cell in cells[:len(brokers)]]
            found[workload][name] = dict(zip(brokers, numbers))
    first_paragraph = " ".join(block.strip().split("\n\n")[0].split())
    where = first_paragraph.split("; medians")[0]
    return found, where


def number(cell):
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def svg(document):
    """The whole picture, the same for the same table."""
    figures, where = measured(document)
    rows = [(name, label) for name, label in ROWS if name in figures]
    group = len(COLOURS) * (BAR + GAP) + GROUP_GAP
    height = TOP + len(rows) * group + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Postroad, ActiveMQ Classic and Artemis compared" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *legend(),
    ]
    for index, (measure, title) in enumerate(PANELS):
        out += panel(figures, rows, group, LEFT + index * (PANEL + 10), measure, title)
    for at, (_, label) in enumerate(rows):
        y = TOP + at * group + (group - GROUP_GAP) / 2 + 4
        out.append(f'<text x="{LEFT - 12}" y="{y:g}" text-anchor="end" fill="#212529">{label}</text>')
    out.append(f'<text x="16" y="{height - 12}" font-size="10" fill="#6c757d">{where}. Source: docs/benchmarks.md</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def legend():
    out, x = [], 16
    for broker, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="24" fill="#212529">{NAMES[broker]}</text>')
        x += 40 + 7 * len(NAMES[broker])
    return out


def panel(figures, rows, group, left, measure, title):
    values = [figures[name].get(measure, {}).get(broker) for name, _ in rows for broker in COLOURS]
    most = max(value for value in values if value is not None)
    out = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold" fill="#212529">{title}</text>']
    for at, (name, _) in enumerate(rows):
        for place, (broker, colour) in enumerate(COLOURS.items()):
            value = figures[name].get(measure, {}).get(broker)
            if value is None:
                continue
            y = TOP + at * group + place * (BAR + GAP)
            length = max(1.0, LENGTH * value / most)
            shown = f"{value:,.0f}" if most > 1000 else f"{value:,.1f}"
            out.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
            out.append(f'<text x="{left + length + 4:.1f}" y="{y + BAR - 2}" font-size="10" fill="#495057">{shown}</text>')
    return out
