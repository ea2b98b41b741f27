// Consumers of all queues and topics, or of one.

import { type Consumer, pathOf, withQuery } from "../api";
import { usePages } from "../live";
import { Link, setQuery, to, useRoute } from "../router";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Figure } from "./queues";

function destination(row: Consumer) {
  const [kind, name = ""] = row.destination.split("://");
  const text = row.subscription === undefined ? name : `${name} → ${row.subscription}`;
  if (kind !== "queue") {
    return (
      <>
        <span className="name">{text}</span>
        <Badge>{kind}</Badge>
      </>
    );
  }
  return (
    <Link className="name" href={to("queues", name)}>
      {text}
    </Link>
  );
}

function columns(isOfOne: boolean): Column<Consumer>[] {
  const all: Column<Consumer>[] = [
    { id: "destination", title: "Destination", width: "minmax(0, 1.2fr)", sort: "name", cell: destination },
    {
      id: "name",
      title: "Consumer",
      width: "minmax(0, 1.2fr)",
      ...(isOfOne ? {} : { room: 2 as const }),
      cell: (row) => (
        <>
          <span className="name mono">{row.name === "" ? row.connection : row.name}</span>
          {row.mode !== "shared" && <Badge>{row.mode}</Badge>}
          {row.credit === 0 && row.mode !== "browser" && <Badge tone="warning">no credit</Badge>}
        </>
      ),
    },
    { id: "selector", title: "Selector", width: "minmax(0, 1fr)", room: 3, cell: (row) => (row.selector === "" ? <span className="zero">all</span> : <code className="name">{row.selector}</code>) },
    { id: "held", title: "Unsettled", width: "100px", isNumber: true, sort: "held", cell: (row) => <Figure value={row.held} /> },
    { id: "credit", title: "Credit", width: "90px", isNumber: true, sort: "credit", cell: (row) => <Figure value={row.credit} /> },
    { id: "priority", title: "Priority", width: "90px", isNumber: true, room: 3, cell: (row) => <Figure value={row.priority} /> },
  ];
  return isOfOne ? all.slice(1) : all;
}

export function Consumers({ of }: { of?: string }) {
  const { query } = useRoute();
  const sort = query.get("sort") ?? "-held";
  const pages = usePages<Consumer>(withQuery(pathOf("consumers"), { destination: of, sort }), 100);
  return (
    <Table
      label="Consumers"
      columns={columns(of !== undefined)}
      pages={pages}
      rowKey={(row) => `${row.connection} ${row.consumer} ${row.destination} ${row.name}`}
      sort={sort}
      onSort={(sort) => setQuery({ sort })}
      empty={<Empty title={of === undefined ? "No consumer is attached" : "No consumer is attached to this queue"}>{of === undefined ? undefined : "Messages stay until one comes."}</Empty>}
    />
  );
}

export function ConsumersPage() {

  return (
    <>
      <header className="page-head">
        <h1>Consumers</h1>
        <p className="page-note">Slow consumers come first: those with the most messages that they have not settled.</p>
      </header>
      <Consumers />
    </>
  );
}
