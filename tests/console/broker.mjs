// A broker of this test alone: started on free ports, filled with messages, and kept busy.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const BINARY = process.env.POSTROAD_BINARY;
const PATIENCE_MS = 30_000;

const CONFIG = `[[alert]]
name = "invoices-wait"
on = "no_consumer"
destinations = ["queue://invoices.>"]
above = 100

[[route]]
name = "copy-orders"
from = "queue://orders.paid"
mode = "copy"
to = [{ destination = "queue://orders.archive" }, { destination = "topic://VirtualTopic.paid" }]

[[tenant]]
name = "payments"
destinations = ["queue://payments.>"]
queues_max = 4
messages_max = 1000
`;

/** Waits until `check` gives something; fails after a while. */
export async function until(what, check) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${PATIENCE_MS / 1000} s`);
    await pause(50);
  }
}

/** A broker with these users, by name with their passwords, and this configuration. */
export async function startBroker({ users = {}, config: text = CONFIG } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "postroad-console."));
  const config = join(folder, "postroad.toml");
  const file = join(folder, "users");
  for (const [name, password] of Object.entries(users)) {
    const added = spawnSync(BINARY, ["user", "add", "--users", file, name], { input: `${password}\n` });
    if (added.status !== 0) throw new Error(`user add: ${added.stderr}`);
  }
  writeFileSync(config, Object.keys(users).length === 0 ? text : `[security]\nusers = "${file}"\n${text}`);
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const offset = 1 + Math.floor(Math.random() * 3900);
    const broker = spawn(BINARY, ["serve", "--config", config, "--data", join(folder, `data-${attempt}`), "--port-offset", String(offset)], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    let hasEnded = false;
    broker.stdout.on("data", (data) => (said += data));
    broker.stderr.on("data", (data) => (said += data));
    broker.on("exit", () => (hasEnded = true));
    await until("the broker is ready or ends", () => hasEnded || said.includes("postroad ready"));
    if (hasEnded) continue;
    return new Broker(broker, folder, offset);
  }
  throw new Error("the broker did not start");
}

/** A thread that ends meanwhile has used nothing. */
function threadMs(folder, number) {
  try {
    const [, name, fields] = /\((.*)\) (.*)/.exec(readFileSync(`${folder}/stat`, "utf8"));
    const [user, system] = fields.split(" ").slice(11, 13);
    return [`${name}/${number}`, (Number(user) + Number(system)) * 10];
  } catch {
    return [number, 0];
  }
}

class Broker {
  constructor(process, folder, offset) {
    this.process = process;
    this.folder = folder;
    this.http = `http://127.0.0.1:${8161 + offset}`;
    this.openwire = `tcp://127.0.0.1:${61616 + offset}`;
    this.children = [];
  }

  async api(method, path, body) {
    const response = await fetch(`${this.http}/api/v1/${path}`, { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
  }

  send(queue, message) {
    return this.api("POST", `queues/${encodeURIComponent(queue)}/messages`, message);
  }

  /** A client that takes all messages of a queue. */
  consume(queue, ...more) {
    const client = spawn(BINARY, ["receive", queue, "--url", this.openwire, "--follow", ...more], { stdio: "ignore" });
    this.children.push(client);
    return client;
  }

  /** Takes this number of messages. */
  receive(queue, number) {
    const taken = spawnSync(BINARY, ["receive", queue, "--url", this.openwire, "--count", String(number)]);
    if (taken.status !== 0) throw new Error(`receive: ${taken.stderr}`);
  }

  /** A message that is due after this time. */
  schedule(queue, body, delayMs, ...properties) {
    const options = [`AMQ_SCHEDULED_DELAY:long=${delayMs}`, ...properties].flatMap((property) => ["--property", property]);
    const sent = spawnSync(BINARY, ["send", queue, "--url", this.openwire, "--body", body, ...options]);
    if (sent.status !== 0) throw new Error(`send: ${sent.stderr}`);
  }

  /** Messages whose time is over at once: persistent ones become dead letters. */
  async makeDeadLetters(queue, number) {
    for (let sent = 0; sent < number; sent += 1) await this.send(queue, { body: `late ${sent}`, ttl_ms: 1 });
    await until("dead letters", async () => {
      const { items } = await this.api("GET", "queues?filter=DLQ");
      return items.some(({ messages }) => messages === number);
    });
  }

  /** Sends to these queues until it is told to stop. */
  keepBusy(queues) {
    let isBusy = true;
    const sending = (async () => {
      for (let number = 0; isBusy; number += 1) {
        await Promise.all(queues.map((queue) => this.send(queue, order(number))));
        await pause(40);
      }
    })();
    this.rest = async () => {
      isBusy = false;
      await sending;
    };
  }

  /** Each thread's processor time so far, in milliseconds, by its name and number. */
  threadsMs() {
    const threads = `/proc/${this.process.pid}/task`;
    return Object.fromEntries(readdirSync(threads).map((thread) => threadMs(`${threads}/${thread}`, thread)));
  }

  async stop() {
    await this.rest?.();
    for (const child of this.children) child.kill();
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export const HOSTILE = "<script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\">";

export function order(number) {
  const body = {
    order: 4711 + number,
    customer: { name: "Ada Lovelace", city: "London" },
    lines: [
      { sku: "A-100", count: 2, price: 12.5 },
      { sku: "B-7", count: 1, price: 99 },
    ],
    paid: false,
  };
  return { body: JSON.stringify(body), properties: { colour: ["red", "green", "blue"][number % 3], attempt: number } };
}

const XML = '<?xml version="1.0"?><invoice id="7"><customer>Grace &amp; Co</customer><lines><line sku="A-100"/></lines></invoice>';

/** Queues with messages of each kind, and some without. */
export async function fill(broker) {
  const names = ["customers.sync", "mail.outgoing", "payments.visa", "stock.audit", "webhooks.partner-a"];
  for (const [index, name] of names.entries()) {
    for (let number = 0; number < 12 * (index + 1); number += 1) await broker.send(name, { body: `message ${number}` });
  }
  for (let number = 0; number < 140; number += 1) await broker.send("invoices.create", number % 2 ? { body: XML, priority: number % 10 } : order(number));
  for (let number = 0; number < 130; number += 1) await broker.api("PUT", `queues/tenant.${String(number).padStart(3, "0")}.events`);
  await broker.send("hostile", { body: HOSTILE, properties: { note: HOSTILE } });
  await broker.send("hostile", { bytes: Buffer.from([0, 1, 2, 250, 72, 101, 108, 108, 111]).toString("base64") });
  await broker.send("hostile", { bytes: Buffer.from(order(1).body).toString("base64") });
}
