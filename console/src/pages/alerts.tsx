// Alerts that are pending or fire.

import { pathOf } from "../api";
import { count, dateTime } from "../format";
import { usePages } from "../live";
import { Link, to } from "../router";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";

interface Alert {
  alert: string;
  severity: "warning" | "critical";
  on: string;
  subject: string;
  state: "pending" | "firing" | "clearing";
  value: number;
  above: number;
  since_ms: number;
  fired_ms: number | null;
  text: string;
}

/** The queue, store or broker; a queue with a link to its page. */
function Subject({ subject }: { subject: string }) {
  const queue = /^queue:\/\/(.+)$/.exec(subject)?.[1];
  if (queue === undefined) return <span className="name">{subject}</span>;
  return (
    <Link className="name" href={to("queues", queue)}>
      {queue}
    </Link>
  );
}

function tone({ state, severity }: Alert): "info" | "warning" | "bad" | "good" {
  if (state === "pending") return "info";
  if (state === "clearing") return "good";
  return severity === "critical" ? "bad" : "warning";
}

const COLUMNS: Column<Alert>[] = [
  { id: "state", title: "State", width: "100px", cell: (alert) => <Badge tone={tone(alert)}>{alert.state}</Badge> },
  { id: "alert", title: "Alert", width: "minmax(0, 1fr)", cell: ({ alert }) => <span className="name">{alert}</span> },
  { id: "subject", title: "Queue, store or broker", width: "minmax(0, 1.4fr)", cell: ({ subject }) => <Subject subject={subject} /> },
  { id: "text", title: "Condition", width: "minmax(0, 2fr)", room: 2, cell: ({ text }) => <span className="name">{text}</span> },
  { id: "severity", title: "Severity", width: "90px", room: 3, cell: ({ severity }) => severity },
  { id: "since", title: "Since", width: "190px", room: 2, cell: ({ since_ms }) => dateTime(since_ms) },
];

export function AlertsPage() {
  const pages = usePages<Alert>(pathOf("alerts"), 100);
  return (
    <>
      <header className="page-head">
        <h1>
          Alerts <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Conditions of the alert rules that hold now. Rules are in the configuration.</p>
      </header>
      <Table label="Alerts" columns={COLUMNS} pages={pages} rowKey={({ alert, subject }) => `${alert} ${subject}`} empty={<Empty title="No alert is pending or fires" />} />
    </>
  );
}
