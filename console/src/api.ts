// The admin API, as the console uses it: types of its answers, and how a request is made.

import { sessionHeaders, shownStore, signedOut } from "./session";

export interface Page<T> {
  items: T[];
  next: string | null;
  total: number;
}

export interface Broker {
  name: string;
  version: string;
  uptime_seconds: number;
}

export interface Sample {
  at_ms: number;
  enqueued_total: number;
  delivered_total: number;
  acknowledged_total: number;
  expired_total: number;
  dead_lettered_total: number;
  dropped_total: number;
  messages: number;
  scheduled: number;
  queues: number;
  connections: number;
  memory_bytes: number;
  volatile_bytes: number;
  disk_bytes: number;
  live_bytes: number;
  written_bytes_total: number;
  syncs_total: number;
  sync_p50_us: number;
  sync_p99_us: number;
  step_p99_us: number;
  process_bytes: number;
  process_cpu_ms_total: number;
}

export interface Alarm {
  severity: "critical" | "warning";
  subject: string;
  text: string;
}

export interface Store {
  store: string;
  file_bytes: number;
  live_bytes: number;
  segments: number;
  full: boolean;
  broken: string | null;
}

export interface Ledger {
  checked_ms: number | null;
  sent: number;
  held: number;
  in_flight: number;
  consumed: number;
  expired: number;
  dead_lettered: number;
  dropped: number;
  moved: number;
  difference: number;
  differing_queues: number;
}

export interface Cluster {
  node: string;
  role: string;
  peers: { node: string; connected: boolean; lag: number | null }[];
}

export interface Overview {
  broker: Broker;
  is_limited: boolean;
  now: Sample;
  history?: { columns: (keyof Sample)[]; rows: number[][] };
  alarms: Alarm[];
  protocols: { protocol: string; open: number; opened_total: number }[];
  stores: Store[];
  memory_bytes_max: number;
  ledger: Ledger;
  cluster: Cluster | null;
}

export interface Queue {
  name: string;
  kind: "queue" | "temporary queue" | "subscription";
  subscription?: string;
  messages: number;
  bytes: number;
  in_flight: number;
  consumers: number;
  enqueued: number;
  consumed: number;
  expired: number;
  dead_lettered: number;
  dropped: number;
  is_moving: boolean;
  is_paused: boolean;
  /** The peer of the link that has made the subscription for its own subscribers. */
  link_peer: string | null;
  link_state: "linked" | "down" | "none" | null;
}

export interface Connection {
  connection: string;
  name: string;
  client_id: string;
  user: string | null;
  consumers: number;
  transactions: number;
  unwritten_bytes: number;
}

export interface Consumer {
  connection: string;
  consumer: number;
  name: string;
  destination: string;
  subscription?: string;
  mode: "shared" | "exclusive" | "browser" | "operator";
  selector: string;
  priority: number;
  credit: number;
  held: number;
}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface Body {
  kind: "none" | "text" | "bytes" | "object" | "map" | "stream" | "value";
  value: Json;
  is_cut: boolean;
}

export interface Message {
  id: string | null;
  destination: string | null;
  persistent: boolean;
  priority: number;
  timestamp_ms: number | null;
  expires_at_ms: number | null;
  correlation_id: string | null;
  reply_to: string | null;
  type: string | null;
  group_id: string | null;
  failed_deliveries: number;
  bytes: number;
  dead_letter_cause: string | null;
  origin: string | null;
  properties: { [name: string]: Json };
  body: Body | null;
  unreadable?: string;
}

/** The broker refused a request, or did not answer it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

type Query = { [name: string]: string | number | boolean | undefined | null };

/**
 * Subjects that the console shows and changes in the first store of a cluster. Below a path of another store, that one answers with its part of
 * them: a tenant's usage there, the configuration of the node that leads it; and it refuses changes.
 */
const OF_FIRST = ["session", "users", "tokens", "access-keys", "tenants", "configuration"];

export function pathOf(...parts: string[]): string {
  const path = `/api/v1/${parts.map(encodeURIComponent).join("/")}`;
  const store = OF_FIRST.includes(parts[0] ?? "") ? null : shownStore();
  return store === null ? path : `/store/${store}${path}`;
}

export function withQuery(path: string, query: Query): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? path : `${path}?${text}`;
}

async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        accept: "application/json",
        ...sessionHeaders(method),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The broker does not answer.");
  }
  const text = await response.text();
  if (response.status === 401) signedOut();
  if (!response.ok) throw new ApiError(response.status, reason(text) ?? `The broker answers ${response.status}.`);
  return (text === "" ? null : JSON.parse(text)) as T;
}

function reason(text: string): string | undefined {
  try {
    const said: unknown = JSON.parse(text);
    if (typeof said === "object" && said !== null && "error" in said) return String(said.error);
  } catch {
    // Not JSON.
  }
  return undefined;
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown) => request<T>("POST", path, body);
export const put = <T>(path: string, body?: unknown) => request<T>("PUT", path, body);
export const del = <T>(path: string) => request<T>("DELETE", path);
