// All queues and durable subscriptions, filtered and ordered by the broker.

import { useRef, useState } from "react";
import { pathOf, put, type Queue, withQuery } from "../api";
import { bytes, compact, count } from "../format";
import { usePages, useSettled } from "../live";
import { go, Link, setQuery, to, useRoute } from "../router";
import { Action } from "../ui/dialog";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { queueAddress, queueTitle, Search } from "./parts";

const PAGE = 100;

export function QueuesPage() {
  const { query } = useRoute();
  const [filter, setFilter] = useState(query.get("filter") ?? "");
  const [isMaking, setIsMaking] = useState(false);
  const sort = query.get("sort") ?? "name";
  const settled = useSettled(filter);
  const pages = usePages<Queue>(withQuery(pathOf("queues"), { filter: settled, sort }), PAGE);
  const rateOf = useRates(pages.rows);
  const columns: Column<Queue>[] = [
    {
      id: "name",
      title: "Name",
      width: "minmax(0, 1fr)",
      sort: "name",
      cell: (queue) => (
        <>
          {queue.kind === "subscription" ? (
            <span className="name">{queueTitle(queue)}</span>
          ) : (
            <Link className="name" href={queueAddress(queue)}>
              {queue.name}
            </Link>
          )}
          {queue.kind !== "queue" && <Badge>{queue.kind}</Badge>}
          {queue.link_peer !== null && <Badge tone={queue.link_state === "linked" ? "info" : "warning"}>{queue.link_state === "linked" ? `link to ${queue.link_peer}` : `link to ${queue.link_peer}: ${queue.link_state === "down" ? "down" : "not configured"}`}</Badge>}
          {queue.is_moving && <Badge tone="info">moving</Badge>}
          {queue.is_paused && <Badge tone="warning">paused</Badge>}
          {queue.messages > 0 && queue.consumers === 0 && <Badge tone="warning">no consumer</Badge>}
        </>
      ),
    },
    { id: "messages", title: "Messages", width: "100px", isNumber: true, sort: "messages", cell: (queue) => <Figure value={queue.messages} isStrong /> },
    { id: "in_flight", title: "In flight", width: "92px", isNumber: true, sort: "in_flight", room: 2, cell: (queue) => <Figure value={queue.in_flight} /> },
    { id: "consumers", title: "Consumers", width: "104px", isNumber: true, sort: "consumers", room: 2, cell: (queue) => <Figure value={queue.consumers} /> },
    { id: "bytes", title: "Size", width: "92px", isNumber: true, sort: "bytes", room: 3, cell: (queue) => (queue.bytes === 0 ? <Zero /> : bytes(queue.bytes)) },
    { id: "in", title: "In", width: "84px", isNumber: true, sort: "enqueued", cell: (queue) => <Rate value={rateOf(queue)?.[0]} /> },
    { id: "out", title: "Out", width: "84px", isNumber: true, sort: "consumed", cell: (queue) => <Rate value={rateOf(queue)?.[1]} /> },
    { id: "dead", title: "Dead letters", width: "112px", isNumber: true, sort: "dead_lettered", room: 3, cell: (queue) => <Figure value={queue.dead_lettered} /> },
  ];
  return (
    <>
      <header className="page-head">
        <h1>
          Queues <span className="faint">{count(pages.total)}</span>
        </h1>
        <Search
          label="Part of a name"
          value={filter}
          onChange={(value) => {
            setFilter(value);
            setQuery({ filter: value });
          }}
        />
        <button type="button" className="button is-primary" onClick={() => setIsMaking(true)}>
          New queue
        </button>
      </header>
      <Table
        label="Queues"
        columns={columns}
        pages={pages}
        rowKey={(queue) => `${queue.name}\n${queue.subscription ?? ""}`}
        sort={sort}
        onSort={(sort) => setQuery({ sort })}
        onOpen={(queue) => queue.kind !== "subscription" && go(queueAddress(queue))}
        empty={
          settled === "" ? (
            <Empty title="There are no queues yet">A queue is made by the first client that uses it, or by New queue.</Empty>
          ) : (
            <Empty title={`No queue has “${settled}” in its name`} />
          )
        }
      />
      {isMaking && <NewQueue onClose={() => setIsMaking(false)} />}
    </>
  );
}

const Zero = () => <span className="zero">0</span>;

export function Figure({ value, isStrong }: { value: number; isStrong?: boolean }) {
  if (value === 0) return <Zero />;
  return isStrong ? <strong>{compact(value)}</strong> : compact(value);
}

function Rate({ value }: { value: number | undefined }) {
  if (value === undefined) return <span className="zero">–</span>;
  if (value === 0) return <Zero />;
  return <>{value < 10 ? value.toFixed(1) : compact(value)}/s</>;
}

interface Seen {
  at: number;
  queue: Queue;
  rates?: [number, number];
}

/** Messages in and out by the second, from one answer of the broker to the next. */
function useRates(rows: Queue[]): (queue: Queue) => [number, number] | undefined {
  const seen = useRef(new Map<string, Seen>());
  const keyOf = ({ name, subscription }: Queue) => `${name}\n${subscription ?? ""}`;
  const now = performance.now();
  if (seen.current.size > 20_000) seen.current.clear();
  for (const queue of rows) {
    const key = keyOf(queue);
    const before = seen.current.get(key);
    // The table is drawn more often than the broker answers.
    if (before?.queue === queue) continue;
    if (before === undefined) {
      seen.current.set(key, { at: now, queue });
      continue;
    }
    const seconds = Math.max(0.1, (now - before.at) / 1000);
    const by = (of: (queue: Queue) => number) => Math.max(0, of(queue) - of(before.queue)) / seconds;
    seen.current.set(key, { at: now, queue, rates: [by(({ enqueued }) => enqueued), by(({ consumed }) => consumed)] });
  }
  return (queue) => seen.current.get(keyOf(queue))?.rates;
}

function NewQueue({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const queue = name.trim();
  return (
    <Action
      title="New queue"
      effect={<p>The queue is made now, and stays without messages or consumers.</p>}
      verb="Make the queue"
      isReady={queue !== ""}
      onClose={onClose}
      act={async () => {
        await put(pathOf("queues", queue));
        go(to("queues", queue));
        return `${queue} is there`;
      }}
    >
      <div className="field">
        <label htmlFor="queue-name">Name</label>
        <input id="queue-name" value={name} onChange={(event) => setName(event.target.value)} autoComplete="off" spellCheck={false} autoFocus />
      </div>
    </Action>
  );
}
