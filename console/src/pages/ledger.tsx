// The ledger: for each queue, the messages that came and where they are.

import { useState } from "react";
import { type Ledger, pathOf, type Queue, withQuery } from "../api";
import { count, timeOfDay } from "../format";
import { usePages, usePoll, useSettled } from "../live";
import { Link } from "../router";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { queueAddress, queueTitle, Search } from "./parts";
import { Figure } from "./queues";

type Row = Queue & { moved: number; difference: number };

const figure = (id: string, title: string, of: (row: Row) => number, room?: 2 | 3): Column<Row> => ({
  id,
  title,
  width: "86px",
  isNumber: true,
  ...(room === undefined ? {} : { room }),
  cell: (row) => <Figure value={of(row)} />,
});

const COLUMNS: Column<Row>[] = [
  { id: "name", title: "Queue", width: "minmax(0, 1fr)", cell: (row) => <Link className="name" href={queueAddress(row)}>{queueTitle(row)}</Link> },
  figure("sent", "Sent", ({ enqueued }) => enqueued),
  figure("held", "Held", ({ messages, in_flight }) => messages - in_flight, 2),
  figure("flight", "In flight", ({ in_flight }) => in_flight, 2),
  figure("consumed", "Consumed", ({ consumed }) => consumed, 2),
  figure("expired", "Expired", ({ expired }) => expired, 3),
  figure("dead", "Dead letters", ({ dead_lettered }) => dead_lettered, 3),
  figure("dropped", "Dropped", ({ dropped }) => dropped, 3),
  figure("moved", "Moved", ({ moved }) => moved, 3),
  { id: "difference", title: "Difference", width: "88px", cell: ({ difference }) => <Badge tone={difference === 0 ? "good" : "bad"}>{difference === 0 ? "none" : count(difference)}</Badge> },
];

export function LedgerPage() {
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const pages = usePages<Row>(withQuery(pathOf("queues"), { filter: settled }), 100);
  const { data: all } = usePoll<Ledger>(pathOf("ledger"), 3_000);
  return (
    <>
      <header className="page-head">
        <h1>Ledger</h1>
        <p className="page-note">
          {all === undefined || all.checked_ms === null
            ? "Each message that came is held, in flight, or has left for a counted cause."
            : `${count(all.sent)} sent, ${count(all.held + all.in_flight)} there, ${all.difference === 0 ? "no difference" : `a difference of ${count(all.difference)}`}; checked at ${timeOfDay(all.checked_ms)}.`}
        </p>
      </header>
      <div className="filter-line">
        <Search label="Filter by name" value={filter} onChange={setFilter} />
      </div>
      <Table label="Ledger" columns={COLUMNS} pages={pages} rowKey={(row) => `${row.kind} ${queueTitle(row)}`} empty={<Empty title="No queue" />} />
    </>
  );
}
