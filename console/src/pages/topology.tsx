// How messages go from broker to broker and from address to address: a picture, and the same as a table.

import { type KeyboardEvent, useMemo, useState } from "react";
import { type Overview, pathOf, withQuery } from "../api";
import { count, plural } from "../format";
import { type Pages, useLive, usePoll, useSettled } from "../live";
import { Link, setQuery, to, useRoute } from "../router";
import { layered } from "../ui/graph";
import { Badge, Empty, Failure } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Search } from "./parts";

interface Binding {
  topic: string;
  kind: "queue" | "durable subscription" | "subscription";
  to: string;
  selectors: string[];
  messages: number;
}

interface Route {
  name: string;
  from: string;
  mode: string;
  matched: number;
  targets: { destination: string; copies: number }[];
}

interface Bridge {
  name: string;
  number: number;
  direction: string;
  state: string;
  address: string;
  peer: string;
  peer_id: string;
  forwarded: number;
  received: number;
  stuck_messages: number;
}

interface Listed<T> {
  items: T[];
  total: number;
}

type Kind = "broker" | "topic" | "queue" | "subscription" | "route";
type Tone = "good" | "warning" | "bad";

interface Node {
  id: string;
  kind: Kind;
  title: string;
  note: string;
  href?: string;
  tone?: Tone;
}

interface Edge {
  from: string;
  to: string;
  /** What goes this way, in words. */
  note: string;
  isBroken?: boolean;
}

interface Graph {
  nodes: Node[];
  edges: Edge[];
}

/** A picture with more of each is not readable: the filter finds the others. */
const SHOWN_MAX = 60;

export function TopologyPage() {
  const { query } = useRoute();
  const isTable = query.get("as") === "table";
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const { overview } = useLive();
  const bridges = usePoll<Listed<Bridge>>(withQuery(pathOf("bridges"), { limit: SHOWN_MAX }), 5_000);
  const routes = usePoll<Listed<Route>>(withQuery(pathOf("routes"), { limit: SHOWN_MAX }), 5_000);
  const bindings = usePoll<Listed<Binding>>(withQuery(pathOf("bindings"), { limit: SHOWN_MAX, filter: settled }), 5_000);
  const brokers = useMemo(() => brokersOf(overview, bridges.data?.items ?? []), [overview?.broker.name, overview?.cluster, bridges.data]);
  const flow = useMemo(() => flowOf(routes.data?.items ?? [], bindings.data?.items ?? [], settled), [routes.data, bindings.data, settled]);
  const error = bridges.error ?? routes.error ?? bindings.error;
  const left = Math.max(0, (bindings.data?.total ?? 0) - (bindings.data?.items.length ?? 0)) + Math.max(0, (routes.data?.total ?? 0) - (routes.data?.items.length ?? 0));
  const isReady = overview !== undefined && routes.data !== undefined && bindings.data !== undefined;
  return (
    <>
      <header className="page-head">
        <h1>Topology</h1>
        <p className="page-note">Brokers that are linked with this one, and the ways of messages from addresses by routes and bindings to queues.</p>
      </header>
      <div className="filter-line topology-line">
        <Search label="Filter by name" value={filter} onChange={setFilter} />
        <div className="segments" role="group" aria-label="View">
          <button type="button" aria-pressed={!isTable} onClick={() => setQuery({ as: null })}>
            Picture
          </button>
          <button type="button" aria-pressed={isTable} onClick={() => setQuery({ as: "table" })}>
            Table
          </button>
        </div>
      </div>
      {error !== undefined && <Failure error={error} />}
      {isReady && isTable && <Ways graphs={[brokers, flow]} />}
      {isReady && !isTable && (
        <>
          <section className="card topology" aria-label="Brokers">
            <h2>Brokers</h2>
            <Picture label="Brokers" graph={brokers} />
            {brokers.edges.length === 0 && <p className="faint small">No link to another broker, and no cluster.</p>}
          </section>
          <section className="card topology" aria-label="Ways of messages">
            <h2>Ways of messages</h2>
            {flow.nodes.length === 0 ? (
              <div className="empty is-small">
                <Empty title={settled === "" ? "No route, and no topic that feeds a queue" : `Nothing has “${settled}” in its name`} />
              </div>
            ) : (
              <Picture label="Ways of messages" graph={flow} />
            )}
            {left > 0 && <p className="faint small">{plural(left, "more route or binding", "more routes and bindings")}: filter by name to see others.</p>}
          </section>
        </>
      )}
    </>
  );
}

/** This broker, the nodes of its cluster, and its peers; a peer that has linked itself stands to the left. */
function brokersOf(overview: Overview | undefined, bridges: Bridge[]): Graph {
  const { cluster } = overview ?? {};
  const own = "broker";
  const role = cluster == null ? "this broker" : `this node, ${cluster.role}`;
  const nodes: Node[] = [{ id: own, kind: "broker", title: cluster?.node ?? overview?.broker.name ?? "", note: role, href: to(), tone: "good" }];
  const edges: Edge[] = [];
  for (const { node, connected, lag } of cluster?.peers ?? []) {
    const id = `node ${node}`;
    const behind = lag == null ? "" : lag === 0 ? ", up to date" : `, ${count(lag)} entries behind`;
    nodes.push({ id, kind: "broker", title: node, note: `node of the cluster${connected ? behind : ", not reached"}`, tone: connected ? "good" : "bad" });
    edges.push({ from: own, to: id, note: "replicates the store", isBroken: !connected });
  }
  for (const bridge of bridges) {
    const id = `bridge ${bridge.direction} ${bridge.name} ${bridge.number} ${bridge.peer_id} ${bridge.address}`;
    const tone = bridge.state === "ended" ? "bad" : bridge.state !== "linked" || bridge.stuck_messages > 0 ? "warning" : "good";
    nodes.push({ id, kind: "broker", title: bridge.peer === "" ? bridge.address : bridge.peer, note: `${bridge.name === "" ? "link" : bridge.name}: ${bridge.state}`, href: to("bridges"), tone });
    const isOutgoing = bridge.direction === "opened";
    const note = `${count(bridge.forwarded)} forwarded, ${count(bridge.received)} received`;
    edges.push({ from: isOutgoing ? own : id, to: isOutgoing ? id : own, note, isBroken: bridge.state !== "linked" });
  }
  return { nodes, edges };
}

const [QUEUE, TOPIC] = ["queue://", "topic://"];

/** A destination as a node: queues lead to their pages. */
function addressOf(text: string): Node {
  const isTopic = text.startsWith(TOPIC);
  const title = isTopic ? text.slice(TOPIC.length) : text.startsWith(QUEUE) ? text.slice(QUEUE.length) : text;
  const isPattern = /(^|\.)[*>](\.|$)/.test(title);
  if (isTopic) return { id: `${TOPIC}${title}`, kind: "topic", title, note: isPattern ? "pattern of topics" : "topic" };
  return { id: `${QUEUE}${title}`, kind: "queue", title, note: isPattern ? "pattern of queues" : "queue", ...(isPattern ? {} : { href: to("queues", title) }) };
}

function flowOf(routes: Route[], bindings: Binding[], filter: string): Graph {
  const nodes = new Map<string, Node>();
  const edges: Edge[] = [];
  const add = (node: Node) => {
    if (!nodes.has(node.id)) nodes.set(node.id, node);
    return node.id;
  };
  for (const { name, from, mode, matched, targets } of routes) {
    if (filter !== "" && ![name, from, ...targets.map(({ destination }) => destination)].some((text) => text.includes(filter))) continue;
    const route = add({ id: `route ${name} ${from}`, kind: "route", title: name, note: `route, ${mode === "consume" ? "moves" : "copies"}`, href: to("routes") });
    edges.push({ from: add(addressOf(from)), to: route, note: `${count(matched)} matched` });
    for (const { destination, copies } of targets) edges.push({ from: route, to: add(addressOf(destination)), note: `${count(copies)} sent` });
  }
  for (const { topic, kind, to: target, selectors, messages } of bindings) {
    const from = add(addressOf(`${TOPIC}${topic}`));
    const node: Node = kind === "queue" ? addressOf(`${QUEUE}${target}`) : { id: `${kind} ${target}`, kind: "subscription", title: target, note: kind };
    edges.push({ from, to: add(node), note: selectors.length === 0 ? `all messages; ${count(messages)} wait` : `where ${selectors.join(" or ")}; ${count(messages)} wait` });
  }
  return { nodes: [...nodes.values()], edges };
}

const WIDTH = 214;
const HEIGHT = 46;
const GAP_X = 68;
const GAP_Y = 14;

/** The nodes are links over lines; arrow keys follow the lines, and go up and down. */
function Picture({ label, graph: { nodes, edges } }: { label: string; graph: Graph }) {
  const [chosen, setChosen] = useState<string | undefined>();
  const places = useMemo(() => layered(nodes, edges), [nodes, edges]);
  const rows = Math.max(...[...places.values()].map(({ row }) => row)) + 1;
  const layers = Math.max(...[...places.values()].map(({ layer }) => layer)) + 1;
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y;
  const inLayer = (layer: number) => [...places.values()].filter((place) => place.layer === layer).length;
  const at = (id: string) => {
    const { layer, row } = places.get(id) ?? { layer: 0, row: 0 };
    const used = inLayer(layer) * (HEIGHT + GAP_Y) - GAP_Y;
    return { x: layer * (WIDTH + GAP_X), y: (height - used) / 2 + row * (HEIGHT + GAP_Y) };
  };
  const isLit = ({ from, to }: Edge) => chosen === from || chosen === to;
  const isNear = (id: string) => chosen === undefined || chosen === id || edges.some((edge) => isLit(edge) && (edge.from === id || edge.to === id));
  const walk = (event: KeyboardEvent) => {
    const element = (event.target as Element).closest<HTMLElement>("[data-node]");
    const next = element === null ? undefined : nextNode(element.dataset["node"] ?? "", event.key, edges, places);
    if (next === undefined) return;
    event.preventDefault();
    event.currentTarget.querySelector<HTMLElement>(`[data-node="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <div className="picture" role="group" aria-label={`${label}: arrow keys follow the lines`} onKeyDown={walk} onMouseLeave={() => setChosen(undefined)} onBlur={() => setChosen(undefined)}>
      <div className="picture-ground" style={{ width: layers * (WIDTH + GAP_X) - GAP_X, height }}>
        <svg width="100%" height="100%" aria-hidden="true">
          {edges.map((edge) => {
            const [begin, end] = [at(edge.from), at(edge.to)];
            const [x1, y1, x2, y2] = [begin.x + WIDTH, begin.y + HEIGHT / 2, end.x, end.y + HEIGHT / 2];
            const bend = Math.max(36, Math.abs(x2 - x1) / 2);
            const state = `${edge.isBroken ? " is-broken" : ""}${chosen === undefined ? "" : isLit(edge) ? " is-lit" : " is-dim"}`;
            return (
              <g key={`${edge.from} ${edge.to} ${edge.note}`} className={`way${state}`}>
                <path d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 6} ${y2}`} />
                <path className="way-head" d={`M${x2 - 8} ${y2 - 4}L${x2 - 1} ${y2}L${x2 - 8} ${y2 + 4}z`} />
              </g>
            );
          })}
        </svg>
        {nodes.map((node) => {
          const { x, y } = at(node.id);
          const ways = edges.filter(({ from, to }) => from === node.id || to === node.id);
          const about = ways.map(({ from, to, note }) => (from === node.id ? `to ${titleOf(nodes, to)}: ${note}` : `from ${titleOf(nodes, from)}: ${note}`));
          const shared = {
            className: `node is-${node.kind}${node.tone === undefined ? "" : ` tone-${node.tone}`}${isNear(node.id) ? "" : " is-dim"}`,
            style: { width: WIDTH, height: HEIGHT, transform: `translate(${x}px, ${y}px)` },
            title: [node.title, node.note, ...about].join("\n"),
            "data-node": node.id,
            onMouseEnter: () => setChosen(node.id),
            onFocus: () => setChosen(node.id),
          };
          const inside = (
            <>
              <span className="node-title">
                {node.title}
                <span className="hidden">, </span>
              </span>
              <span className="node-note">
                {node.note}
                {about.length > 0 && <span className="hidden">; {about.join("; ")}</span>}
              </span>
            </>
          );
          return node.href === undefined ? (
            <div key={node.id} role="img" aria-label={[`${node.title}, ${node.note}`, ...about].join("; ")} tabIndex={0} {...shared}>
              {inside}
            </div>
          ) : (
            <Link key={node.id} href={node.href} {...shared}>
              {inside}
            </Link>
          );
        })}
      </div>
    </div>
  );
}

const titleOf = (nodes: Node[], id: string) => nodes.find((node) => node.id === id)?.title ?? id;

function nextNode(id: string, key: string, edges: Edge[], places: Map<string, { layer: number; row: number }>): string | undefined {
  const place = places.get(id);
  if (place === undefined) return undefined;
  const beside = (step: number) => [...places].find(([, { layer, row }]) => layer === place.layer && row === place.row + step)?.[0];
  switch (key) {
    case "ArrowRight":
      return edges.find(({ from }) => from === id)?.to;
    case "ArrowLeft":
      return edges.find(({ to }) => to === id)?.from;
    case "ArrowDown":
      return beside(1);
    case "ArrowUp":
      return beside(-1);
    default:
      return undefined;
  }
}

interface Way {
  from: Node;
  to: Node;
  edge: Edge;
}

const nameOf = (node: Node) => (node.href === undefined ? <span className="name">{node.title}</span> : <Link className="name" href={node.href}>{node.title}</Link>);

const COLUMNS: Column<Way>[] = [
  { id: "from", title: "From", width: "minmax(0, 1fr)", cell: ({ from }) => nameOf(from) },
  { id: "from-kind", title: "Kind", width: "150px", room: 3, cell: ({ from }) => <span className="faint">{from.note}</span> },
  { id: "to", title: "To", width: "minmax(0, 1fr)", cell: ({ to }) => nameOf(to) },
  { id: "to-kind", title: "Kind", width: "170px", room: 2, cell: ({ to }) => <span className="faint">{to.note}</span> },
  { id: "note", title: "Messages", width: "minmax(0, 1fr)", room: 2, cell: ({ edge }) => (edge.isBroken ? <Badge tone="warning">{edge.note}</Badge> : <span className="name">{edge.note}</span>) },
];

/** The same as the pictures. */
function Ways({ graphs }: { graphs: Graph[] }) {
  const rows = graphs.flatMap(({ nodes, edges }) => {
    const byId = new Map(nodes.map((node) => [node.id, node]));
    return edges.flatMap((edge) => {
      const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
      return from === undefined || to === undefined ? [] : [{ from, to, edge }];
    });
  });
  const pages: Pages<Way> = { rows, total: rows.length, hasMore: false, isLoading: false, error: undefined, more: () => undefined, refresh: () => undefined };
  return <Table label="Ways of messages" columns={COLUMNS} pages={pages} rowKey={({ edge }) => `${edge.from} ${edge.to} ${edge.note}`} empty={<Empty title="No bridge, no route, and no topic that feeds a queue" />} />;
}
