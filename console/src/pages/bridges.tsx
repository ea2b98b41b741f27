// Links to other brokers, opened and accepted.

import { pathOf } from "../api";
import { count, dateTime } from "../format";
import { usePages } from "../live";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Figure } from "./queues";

interface Bridge {
  name: string;
  direction: string;
  state: string;
  since_ms: number;
  address: string;
  peer: string;
  peer_id: string;
  demand: number;
  in_flight: number;
  forwarded: number;
  received: number;
  stuck_messages: number;
  wait_cause: string;
  reason: string;
}

const tone = ({ state, stuck_messages }: Bridge): "good" | "bad" | "warning" => (state === "ended" ? "bad" : state !== "linked" || stuck_messages > 0 ? "warning" : "good");

const COLUMNS: Column<Bridge>[] = [
  { id: "name", title: "Link", width: "minmax(0, 1fr)", cell: ({ name, direction }) => <span className="name" title={direction}>{name}</span> },
  { id: "state", title: "State", width: "130px", cell: (bridge) => <Badge tone={tone(bridge)}>{bridge.state}</Badge> },
  { id: "peer", title: "Peer", width: "minmax(0, 1fr)", room: 2, cell: ({ peer, address }) => <span className="name" title={address}>{peer === "" ? address : peer}</span> },
  { id: "reason", title: "Reason", width: "minmax(0, 1.4fr)", room: 2, cell: ({ reason, wait_cause }) => <span className="name">{reason === "" ? wait_cause : reason}</span> },
  { id: "demand", title: "Demand", width: "92px", isNumber: true, room: 3, cell: ({ demand }) => <Figure value={demand} /> },
  { id: "stuck", title: "Stuck", width: "84px", isNumber: true, cell: ({ stuck_messages }) => <Figure value={stuck_messages} /> },
  { id: "forwarded", title: "Forwarded", width: "100px", isNumber: true, room: 2, cell: ({ forwarded }) => <Figure value={forwarded} /> },
  { id: "received", title: "Received", width: "100px", isNumber: true, room: 3, cell: ({ received }) => <Figure value={received} /> },
  { id: "since", title: "Since", width: "190px", room: 3, cell: ({ since_ms }) => dateTime(since_ms) },
];

export function BridgesPage() {
  const pages = usePages<Bridge>(pathOf("bridges"), 100);
  return (
    <>
      <header className="page-head">
        <h1>
          Bridges <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Links to other brokers. Those that this broker opens are in its configuration.</p>
      </header>
      <Table label="Bridges" columns={COLUMNS} pages={pages} rowKey={({ name, direction, peer_id, address }) => `${name} ${direction} ${peer_id} ${address}`} empty={<Empty title="No link to another broker" />} />
    </>
  );
}
