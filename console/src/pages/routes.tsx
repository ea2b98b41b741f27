// Routes, with the counts of their messages.

import { pathOf } from "../api";
import { count } from "../format";
import { usePages } from "../live";
import { Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Figure } from "./queues";

interface Route {
  name: string;
  from: string;
  mode: string;
  matched: number;
  unmatched: number;
  dead_lettered: number;
  cut: number;
  copies: number;
}

const COLUMNS: Column<Route>[] = [
  { id: "name", title: "Route", width: "minmax(0, 1fr)", cell: ({ name }) => <span className="name">{name}</span> },
  { id: "from", title: "From", width: "minmax(0, 1.4fr)", cell: ({ from }) => <span className="name">{from}</span> },
  { id: "mode", title: "Mode", width: "110px", room: 3, cell: ({ mode }) => mode },
  { id: "matched", title: "Matched", width: "100px", isNumber: true, cell: ({ matched }) => <Figure value={matched} /> },
  { id: "copies", title: "Copies", width: "100px", isNumber: true, room: 2, cell: ({ copies }) => <Figure value={copies} /> },
  { id: "unmatched", title: "Unmatched", width: "108px", isNumber: true, room: 2, cell: ({ unmatched }) => <Figure value={unmatched} /> },
  { id: "dead", title: "Dead letters", width: "112px", isNumber: true, room: 2, cell: ({ dead_lettered }) => <Figure value={dead_lettered} /> },
  { id: "cut", title: "Cut", width: "84px", isNumber: true, room: 3, cell: ({ cut }) => <Figure value={cut} /> },
];

export function RoutesPage() {
  const pages = usePages<Route>(pathOf("routes"), 100);
  return (
    <>
      <header className="page-head">
        <h1>
          Routes <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Rules that move or copy messages to other destinations. They are in the configuration.</p>
      </header>
      <Table label="Routes" columns={COLUMNS} pages={pages} rowKey={({ name, from }) => `${name} ${from}`} empty={<Empty title="No route is configured" />} />
    </>
  );
}
