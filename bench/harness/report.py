"""From results to a table: medians over the rounds, ratios to the first broker, and what was not clean."""

import datetime
import os
import platform
import statistics
import textwrap

# Field, title, how to write it.
MEASURES = [
    ("published_per_s", "published/s", "{:,.0f}"),
    ("delivered_per_s", "delivered/s", "{:,.0f}"),
    ("drained_per_s", "drained/s", "{:,.0f}"),
    ("publish_p50_ms", "publish p50 ms", "{:.2f}"),
    ("publish_p99_ms", "publish p99 ms", "{:.2f}"),
    ("publish_p999_ms", "publish p99.9 ms", "{:.2f}"),
    ("end_to_end_p99_ms", "end to end p99 ms", "{:.2f}"),
    ("server_cpu_us_per_message", "server CPU µs/message", "{:.1f}"),
    ("idle_mb", "memory idle MB", "{:.0f}"),
    ("after_mb", "memory after MB", "{:.0f}"),
    ("peak_mb", "memory peak MB", "{:.0f}"),
    ("start_ms", "start ms", "{:.0f}"),
    ("client_pause_max_ms", "longest pause of the client ms", "{:.0f}"),
    ("other_cores", "cores used by others", "{:.2f}"),
]
# A line of prose in a document.
COLUMNS_MAX = 100
VERDICT = "lost, doubled, reordered, wrong"
FAULTS = ["lost", "doubled", "reordered", "wrong_body", "in_doubt", "blocked_producers", "errors"]


def median(results, broker, workload, field):
    values = [r[field] for r in results if r["broker"] == broker and r["workload"] == workload and r.get(field) is not None]
    return statistics.median(values) if values else None


def slowest(results, brokers, workload):
    """Sends per second that the slowest of these brokers took; None if one has no result."""
    rates = [median(results, broker, workload, "published_per_s") for broker in brokers]
    return None if None in rates else min(rates)


def markdown(results, brokers, workloads, settings):
    """One table per workload; `brokers` are [(name, version)], the first is the one that the others are compared with."""
    lines = [heading(brokers, settings), ""]
    for workload in workloads:
        lines += [f"**{workload.name}**: {workload.title}", "", *table(results, [name for name, _ in brokers], workload.name), ""]
        lines += [*unclean(results, workload.name)]
    return "\n".join(lines).rstrip() + "\n"


def heading(brokers, settings, note=None):
    """What was compared, where and how; `note` in place of the explanation of ratios."""
    versions = ", ".join(f"{name} {version}".strip() for name, version in brokers)
    if note is None:
        note = (
            "CPU is that of the server per published message. A ratio is the other broker's value divided by that of "
            f"{brokers[0][0]}."
        )
    words = (
        f"{datetime.date.today().isoformat()}, {machine()}. {versions}. "
        f"{settings.rounds} round(s), {settings.warmup:g} s warm-up, {settings.duration:g} s measured; medians. {note}"
    )
    return textwrap.fill(words, COLUMNS_MAX, break_long_words=False, break_on_hyphens=False)


def write_into(path, mark, text):
    """Puts the text between the marks of this name in a document."""
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    with open(path, encoding="utf-8") as file:
        document = file.read()
    if document.count(begin) != 1 or document.count(end) != 1:
        raise SystemExit(f"{path} has no marks {begin} and {end}")
    before, after = document.split(begin)[0], document.split(end)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n{text}{end}{after}")


def machine():
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {gigabytes:.0f} GiB, Linux {platform.release().split('-')[0]}"


def table(results, brokers, workload, measures=MEASURES):
    """Rows of measures, columns of brokers and ratios; `workload` is its name."""
    first, others = brokers[0], brokers[1:]
    head = ["", *brokers, *(f"{other} / {first}" for other in others)]
    rows = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for field, title, form in measures:
        values = [median(results, broker, workload, field) for broker in brokers]
        if not any(values) and field != "other_cores":
            continue  # nothing of the kind in this workload
        cells = ["-" if value is None else form.format(value) for value in values]
        if field != "other_cores":
            cells += [ratio(value, values[0]) for value in values[1:]]
        else:
            cells += ["" for _ in others]
        rows.append("| " + " | ".join([title, *cells]) + " |")
    verdicts = [verdict(results, broker, workload) for broker in brokers]
    rows.append("| " + " | ".join([VERDICT, *verdicts, *("" for _ in others)]) + " |")
    return rows


def table_by_broker(results, brokers, workload, fields):
    """Rows of brokers, columns of the measures with these fields: for many brokers, without ratios."""
    measures = [(field, title, form) for field, title, form in MEASURES if field in fields]
    head = ["", *(title for _, title, _ in measures), VERDICT]
    rows = ["| " + " | ".join(head) + " |", "|---" + "|---:" * len(measures) + "|---|"]
    for broker in brokers:
        values = [(median(results, broker, workload, field), form) for field, _, form in measures]
        cells = ["-" if value is None else form.format(value) for value, form in values]
        rows.append("| " + " | ".join([broker, *cells, verdict(results, broker, workload)]) + " |")
    return rows


def ratio(value, base):
    return "-" if value is None or not base else f"{value / base:.2f}"


def verdict(results, broker, workload):
    runs = [r for r in results if r["broker"] == broker and r["workload"] == workload]
    if not runs:
        return "-"
    if not all(r.get("verified") for r in runs):
        return "not checked"
    return ", ".join(str(sum(r[fault] for r in runs)) for fault in FAULTS[:4])


def unclean(results, workload):
    lines = []
    for r in (r for r in results if r["workload"] == workload):
        bad = [f"{fault} {r[fault]}" for fault in FAULTS if r.get(fault)]
        if "failure" in r:
            bad.append(r["failure"].splitlines()[0])
        if bad:
            words = f" ({r['first_errors']})" if r.get("first_errors") else ""
            lines.append(f"Not clean: {r['broker']}, round {r['round']}: {', '.join(bad)}{words}")
            lines.append("")
    return lines
