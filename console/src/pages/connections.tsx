// Connections of clients.

import { type Connection, pathOf, withQuery } from "../api";
import { bytes, count } from "../format";
import { usePages } from "../live";
import { setQuery, useRoute } from "../router";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Figure } from "./queues";

const COLUMNS: Column<Connection>[] = [
  {
    id: "name",
    title: "Connection",
    width: "minmax(0, 1.4fr)",
    sort: "name",
    cell: (row) => (
      <>
        <span className="name">{row.name === "" ? <i className="faint">not introduced</i> : row.name}</span>
        {row.unwritten_bytes > 1 << 20 && <Badge tone="warning">slow</Badge>}
      </>
    ),
  },
  { id: "client_id", title: "Client id", width: "minmax(0, 1fr)", room: 2, cell: (row) => <span className="name">{row.client_id}</span> },
  { id: "user", title: "User", width: "110px", room: 2, cell: (row) => row.user ?? <span className="zero">–</span> },
  { id: "consumers", title: "Consumers", width: "110px", isNumber: true, sort: "consumers", cell: (row) => <Figure value={row.consumers} /> },
  { id: "transactions", title: "Transactions", width: "120px", isNumber: true, sort: "transactions", room: 3, cell: (row) => <Figure value={row.transactions} /> },
  {
    id: "unwritten",
    title: "Unsent",
    width: "100px",
    isNumber: true,
    sort: "unwritten_bytes",
    cell: (row) => (row.unwritten_bytes === 0 ? <span className="zero">0</span> : bytes(row.unwritten_bytes)),
  },
];

export function ConnectionsPage() {
  const { query } = useRoute();
  const sort = query.get("sort") ?? "-unwritten_bytes";
  const pages = usePages<Connection>(withQuery(pathOf("connections"), { sort }), 100);
  return (
    <>
      <header className="page-head">
        <h1>
          Connections <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Slow clients come first: those with bytes that wait to be sent.</p>
      </header>
      <Table
        label="Connections"
        columns={COLUMNS}
        pages={pages}
        rowKey={(row) => row.connection}
        sort={sort}
        onSort={(sort) => setQuery({ sort })}
        empty={<Empty title="No client is connected" />}
      />
    </>
  );
}
