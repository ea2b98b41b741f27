// The last changes that operators made.

import { pathOf } from "../api";
import { count, dateTime } from "../format";
import { usePages } from "../live";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";

interface Change {
  number: number;
  at_ms: number;
  user: string | null;
  peer: string;
  method: string;
  path: string;
  status: number;
}

const VERBS: { [key: string]: string } = {
  "POST messages": "Send a message",
  "POST move": "Move a message",
  "POST purge": "Purge",
  "POST pause": "Pause the queue",
  "POST resume": "Resume the queue",
  "POST redrive": "Send dead letters back",
  "DELETE message": "Remove a message",
  "DELETE queue": "Delete the queue",
  "PUT queue": "Make the queue",
};

/** The change in words, and the queue that it was about. */
function read({ method, path }: Change): [string, string] {
  const [, , , , queue, ...rest] = path.split("/").map((part) => decodeURIComponent(part));
  if (path === "/api/v1/broker/drain") return ["Drain the broker", ""];
  if (path === "/api/v1/broker/resume") return ["End the draining of the broker", ""];
  if (path.startsWith("/api/v1/redrives/")) return ["Undo a redrive", ""];
  const last = rest.at(-1);
  const what = rest.length === 0 ? "queue" : rest.length === 2 && method === "DELETE" ? "message" : (last ?? "");
  const verb = VERBS[`${method} ${what}`];
  return verb === undefined ? [`${method} ${path}`, ""] : [verb, queue ?? ""];
}

const COLUMNS: Column<Change>[] = [
  { id: "at", title: "When", width: "190px", room: 2, cell: ({ at_ms }) => dateTime(at_ms) },
  { id: "what", title: "Change", width: "minmax(0, 1fr)", cell: (change) => <span className="name">{read(change)[0]}</span> },
  { id: "queue", title: "Queue", width: "minmax(0, 1fr)", cell: (change) => <span className="name">{read(change)[1]}</span> },
  { id: "user", title: "User", width: "120px", room: 2, cell: ({ user }) => user ?? <span className="zero">–</span> },
  { id: "peer", title: "From", width: "170px", room: 3, cell: ({ peer }) => <span className="name mono">{peer}</span> },
  { id: "status", title: "Result", width: "90px", cell: ({ status }) => <Badge tone={status < 400 ? "good" : "bad"}>{status < 400 ? "done" : String(status)}</Badge> },
];

export function AuditPage() {
  const pages = usePages<Change>(pathOf("audit"), 100);
  return (
    <>
      <header className="page-head">
        <h1>
          Audit <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Changes since the broker started, the newest first. Its log has the same lines.</p>
      </header>
      <Table label="Changes" columns={COLUMNS} pages={pages} rowKey={({ number }) => String(number)} empty={<Empty title="Nothing was changed since the start" />} />
    </>
  );
}
