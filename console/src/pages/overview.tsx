// The broker at a glance.

import { useState } from "react";
import { type Ledger, type Page, pathOf, type Queue, type Sample, withQuery } from "../api";
import { bytes, compact, count, micros, rate } from "../format";
import { useLive, usePoll } from "../live";
import { Link, to } from "../router";
import { Chart, Spark } from "../ui/chart";
import { Badge, Empty, Failure, Loading } from "../ui/state";
import { queueAddress, queueTitle } from "./parts";

const SPANS = [
  { title: "5 min", ms: 5 * 60_000 },
  { title: "15 min", ms: 15 * 60_000 },
  { title: "1 h", ms: 60 * 60_000 },
];

/** Points of a chart: more are not seen. */
const POINTS_MAX = 180;
/** A gap between samples that is longer is left open. */
const GAP_MS = 35_000;
/** The broker samples that often while nobody looks: live samples are thinned to the same. */
const STEP_MS = 10_000;

/** Samples within the span, thinned out so that their number is bounded: the first one of each step, and the last. */
function within(samples: Sample[], from: number, until: number): Sample[] {
  const start = samples.findLastIndex(({ at_ms }) => at_ms < from);
  const all = samples.slice(Math.max(0, start));
  const step = Math.max(STEP_MS, (until - from) / POINTS_MAX);
  let last = -1;
  return all.filter(({ at_ms }, index) => {
    const bucket = Math.floor(at_ms / step);
    const isFirst = bucket !== last;
    last = bucket;
    return isFirst || index === all.length - 1;
  });
}

/** Time over which a rate is taken: the broker samples that often while nobody looks. */
const RATE_MS = 9_000;

/** How much a total rose by the second over the last moments, sample by sample. */
function rates(samples: Sample[], of: (sample: Sample) => number): (number | null)[] {
  let first = 0;
  return samples.map((sample, index) => {
    while (first + 1 < index && sample.at_ms - (samples[first + 1]?.at_ms ?? 0) >= RATE_MS) first += 1;
    const before = samples[first];
    if (index === 0 || before === undefined) return null;
    const seconds = (sample.at_ms - before.at_ms) / 1000;
    if (seconds <= 0 || seconds * 1000 > GAP_MS * 3) return null;
    return Math.max(0, (of(sample) - of(before)) / seconds);
  });
}

const values = (samples: Sample[], of: (sample: Sample) => number) => samples.map(of);

/** For users who may not see the whole broker. */
function OwnQueues() {
  return (
    <>
      <header className="page-head">
        <h1>Overview</h1>
      </header>
      <div className="card empty">
        <Empty title="Figures of the whole broker need the permission admin">
          <Link href={to("queues")}>Go to your queues</Link>
        </Empty>
      </div>
    </>
  );
}

export function OverviewPage() {
  const { overview, samples, error } = useLive();
  const [span, setSpan] = useState(0);
  if (overview === undefined) return error === undefined ? <Loading /> : <Failure error={error} />;
  if (overview.is_limited) return <OwnQueues />;
  const until = overview.now.at_ms;
  // A broker that has just started has no more to show.
  const first = Math.min(samples[0]?.at_ms ?? until, until - 60_000);
  const from = Math.max(first, until - (SPANS[span]?.ms ?? 300_000));
  const shown = within(samples, from, until);
  const recent = within(samples, until - 300_000, until);
  const times = shown.map(({ at_ms }) => at_ms);
  const axis = { times, from, until };
  const { now } = overview;

  const incoming = rates(recent, (of) => of.enqueued_total);
  const outgoing = rates(recent, (of) => of.delivered_total);
  const cpu = (list: Sample[]) => rates(list, (of) => of.process_cpu_ms_total / 10);
  return (
    <>
      <header className="page-head">
        <h1>Overview</h1>
        <div className="segments" role="group" aria-label="Time span of the charts">
          {SPANS.map(({ title }, index) => (
            <button key={title} type="button" aria-pressed={index === span} onClick={() => setSpan(index)}>
              {title}
            </button>
          ))}
        </div>
      </header>
      <section className="tiles" aria-label="Figures">
        <Tile title="Messages in" value={rate(incoming.at(-1) ?? 0)} note={`${compact(now.enqueued_total)} since the start`} spark={incoming} colour={1} />
        <Tile title="Delivered" value={rate(outgoing.at(-1) ?? 0)} note={`${compact(now.acknowledged_total)} acknowledged`} spark={outgoing} colour={2} />
        <Tile title="Backlog" value={compact(now.messages)} note={`in ${count(now.queues)} ${now.queues === 1 ? "queue" : "queues"}`} spark={values(recent, (of) => of.messages)} colour={3} />
        <Tile title="Connections" value={count(now.connections)} note={protocolsOf(overview.protocols)} spark={values(recent, (of) => of.connections)} colour={4} />
        <Tile title="Memory" value={bytes(now.memory_bytes)} note={`of ${bytes(overview.memory_bytes_max)} for messages`} meter={now.memory_bytes / overview.memory_bytes_max} />
        <Tile title="Disk" value={bytes(now.disk_bytes)} note={`${bytes(now.live_bytes)} of it in use`} meter={now.disk_bytes === 0 ? 0 : now.live_bytes / now.disk_bytes} isShare />
      </section>
      <LedgerStrip ledger={overview.ledger} />
      <section className="charts" aria-label="Charts">
        <Chart
          {...axis}
          title="Messages per second"
          format={rate}
          series={[
            { label: "In", colour: 1, area: true, values: rates(shown, (of) => of.enqueued_total) },
            { label: "Delivered", colour: 2, values: rates(shown, (of) => of.delivered_total) },
            { label: "Acknowledged", colour: 4, values: rates(shown, (of) => of.acknowledged_total) },
          ]}
        />
        <Chart {...axis} title="Backlog" format={compact} atLeast={10} series={[{ label: "Messages", colour: 3, area: true, values: values(shown, (of) => of.messages) }]} />
        <Chart
          {...axis}
          title="Disk sync"
          format={micros}
          atLeast={1000}
          series={[
            { label: "99 %", colour: 5, area: true, values: values(shown, (of) => of.sync_p99_us) },
            { label: "Median", colour: 1, values: values(shown, (of) => of.sync_p50_us) },
          ]}
        />
        <Chart
          {...axis}
          title="Written to disk"
          isBinary
          format={(value) => `${bytes(value)}/s`}
          atLeast={1024}
          series={[{ label: "Journal", colour: 2, area: true, values: rates(shown, (of) => of.written_bytes_total) }]}
        />
        <Chart
          {...axis}
          title="Memory"
          isBinary
          format={bytes}
          atLeast={1 << 20}
          series={[
            { label: "Process", colour: 4, area: true, values: values(shown, (of) => of.process_bytes) },
            { label: "Messages", colour: 3, values: values(shown, (of) => of.memory_bytes) },
          ]}
        />
        <Chart {...axis} title="Processor" format={(value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} %`} atLeast={10} series={[{ label: "Of one core", colour: 5, area: true, values: cpu(shown) }]} />
      </section>
      <section className="lists" aria-label="Queues that stand out">
        <Top title="Deepest queues" sort="-messages" of={(queue) => queue.messages} none="No queue holds messages." />
        <Top title="Most in flight" sort="-in_flight" of={(queue) => queue.in_flight} none="No messages are with consumers." />
        <Top title="Most dead letters" sort="-dead_lettered" of={(queue) => queue.dead_lettered} none="No message was dead-lettered since the start." />
      </section>
    </>
  );
}

function protocolsOf(protocols: { protocol: string; open: number }[]) {
  const open = protocols.filter((of) => of.open > 0);
  return open.length === 0 ? "no client" : open.map((of) => `${of.protocol} ${count(of.open)}`).join(" · ");
}

interface TileProps {
  title: string;
  value: string;
  note: string;
  spark?: (number | null)[];
  colour?: number;
  /** A share of a limit, 0 to 1. */
  meter?: number;
  /** A full meter is nothing to worry about. */
  isShare?: boolean;
}

function Tile({ title, value, note, spark, colour = 1, meter, isShare = false }: TileProps) {
  const share = Math.min(1, Math.max(0, meter ?? 0));
  const tone = isShare || share < 0.8 ? "" : share < 0.95 ? " is-warning" : " is-bad";
  return (
    <div className="tile card">
      <div className="tile-title">{title}</div>
      <div className="tile-value">{value}</div>
      <div className="tile-note">{note}</div>
      {spark !== undefined && <Spark values={spark} colour={colour} />}
      {meter !== undefined && (
        <div className={`meter${tone}`} role="meter" aria-label={`${title}: share`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
          <div style={{ width: `${share * 100}%` }} />
        </div>
      )}
    </div>
  );
}

/** Messages that came, and where they are now. */
function LedgerStrip({ ledger }: { ledger: Ledger }) {
  const parts: [string, number][] = [
    ["Sent", ledger.sent],
    ["Held", ledger.held],
    ["In flight", ledger.in_flight],
    ["Consumed", ledger.consumed],
    ["Expired", ledger.expired],
    ["Dead letters", ledger.dead_lettered],
    ["Dropped", ledger.dropped],
    ["Moved", ledger.moved],
  ];
  const isRight = ledger.difference === 0;
  return (
    <section className="ledger card" aria-label="Ledger">
      <h2>Ledger</h2>
      <dl>
        {parts.map(([title, value]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>{compact(value)}</dd>
          </div>
        ))}
      </dl>
      {ledger.checked_ms === null ? (
        <Badge>not checked yet</Badge>
      ) : (
        <Badge tone={isRight ? "good" : "bad"}>{isRight ? "adds up" : `differs by ${count(ledger.difference)} in ${count(ledger.differing_queues)} queues`}</Badge>
      )}
    </section>
  );
}

function Top({ title, sort, of, none }: { title: string; sort: string; of: (queue: Queue) => number; none: string }) {
  const { data, error } = usePoll<Page<Queue>>(withQuery(pathOf("queues"), { sort, limit: 10 }), 5_000);
  const rows = (data?.items ?? []).filter((queue) => of(queue) > 0);
  const most = Math.max(1, ...rows.map(of));
  return (
    <div className="top card">
      <header className="top-head">
        <h2>{title}</h2>
        <Link href={`${to("queues")}?sort=${sort}`}>All</Link>
      </header>
      {error !== undefined && data === undefined && <Failure error={error} />}
      {data !== undefined && rows.length === 0 && (
        <div className="empty is-small">
          <Empty title={none} />
        </div>
      )}
      <ol>
        {rows.map((queue) => (
          <li key={`${queue.name} ${queue.subscription ?? ""}`}>
            <Link href={queueAddress(queue)} className="top-row">
              <span className="top-bar" style={{ width: `${(of(queue) / most) * 100}%` }} aria-hidden="true" />
              <span className="top-name">{queueTitle(queue)}</span>
              <span className="top-value">{compact(of(queue))}</span>
            </Link>
          </li>
        ))}
      </ol>
    </div>
  );
}
