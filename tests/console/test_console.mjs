// The console, seen by a browser: each page with live traffic, at two sizes and in both themes.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { fill, HOSTILE, startBroker, until } from "./broker.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SIZES = { large: { width: 1440, height: 900 }, small: { width: 390, height: 844 } };
const IMAGES = new URL("../../../../docs/images/", import.meta.url).pathname;
const PATIENCE_MS = 30_000;

const PICTURES = ["overview", "queues", "explain", "dead-letters", "topology"];

/** Pages, each with something that is there once it has data. */
const PAGES = [
  { name: "overview", path: "/", ready: (page) => page.getByRole("link", { name: /^invoices\.create/ }) },
  { name: "queues", path: "/queues?sort=-messages", ready: (page) => page.getByRole("link", { name: "invoices.create" }) },
  { name: "queue", path: "/queues/invoices.create", ready: (page) => page.getByRole("button", { name: /^ID:postroad-api/ }).first() },
  { name: "queue-consumers", path: "/queues/orders.new/consumers", ready: (page) => page.getByRole("row", { name: /colour = 'red'|ID:/ }).first() },
  { name: "explain", path: "/queues/orders.blue/explain", ready: (page) => page.getByText("as colour is 'blue'").first() },
  { name: "dead-letters", path: "/dead-letters", ready: (page) => page.getByRole("button", { name: "Send back" }).first() },
  { name: "alerts", path: "/alerts", ready: (page) => page.getByText("no consumer is attached").or(page.locator(".badge", { hasText: "firing" })).first() },
  { name: "audit", path: "/audit", ready: (page) => page.getByText("Send a message").first() },
  { name: "transactions", path: "/transactions", ready: (page) => page.getByText("No branch waits for its manager") },
  { name: "ledger", path: "/ledger", ready: (page) => page.getByRole("link", { name: "invoices.create" }) },
  { name: "capacity", path: "/capacity", ready: (page) => page.getByText("Each message received") },
  { name: "configuration", path: "/configuration", ready: (page) => page.getByText("broker_name").first() },
  { name: "configuration-change", path: "/configuration/change", ready: (page) => page.getByRole("button", { name: "Plan" }).and(page.locator(":enabled")) },
  { name: "configuration-versions", path: "/configuration/versions", ready: (page) => page.getByText("start").first() },
  { name: "bridges", path: "/bridges", ready: (page) => page.getByText("No link to another broker") },
  { name: "routes", path: "/routes", ready: (page) => page.getByText("copy-orders") },
  { name: "topology", path: "/topology", ready: (page) => page.getByRole("link", { name: /^Consumer\.shop\.VirtualTopic\.paid/ }) },
  { name: "topology-table", path: "/topology?as=table", ready: (page) => page.getByRole("row", { name: /copy-orders/ }).first() },
  { name: "schedules", path: "/schedules", ready: (page) => page.getByRole("button", { name: /^queue:\/\/reports\.daily/ }) },
  { name: "tenants", path: "/tenants", ready: (page) => page.getByRole("button", { name: "payments", exact: true }) },
  { name: "connections", path: "/connections", ready: (page) => page.getByRole("row").nth(1) },
  { name: "consumers", path: "/consumers", ready: (page) => page.getByRole("link", { name: "orders.new" }).first() },
];

let broker;
let browser;

before(async () => {
  broker = await startBroker();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  await fill(broker);
  broker.consume("orders.new");
  broker.consume("orders.new", "--selector", "colour = 'red'");
  // A consumer that wants other messages, and one that gives up on all.
  await broker.send("orders.blue", { body: "blue", properties: { colour: "blue" } });
  broker.consume("orders.blue", "--selector", "colour = 'red'");
  await broker.makeDeadLetters("payments.sepa", 3);
  broker.consume("Consumer.shop.VirtualTopic.paid");
  broker.consume("topic://VirtualTopic.paid", "--selector", "colour = 'red'");
  broker.schedule("reports.daily", "report", 86_400_000, "AMQ_SCHEDULED_PERIOD:long=86400000", "AMQ_SCHEDULED_REPEAT:int=-1");
  broker.schedule("topic://reminders", "remind", 3_600_000, "kind=first");
  broker.keepBusy(["orders.new", "orders.paid"]);
  await until("consumers", async () => (await broker.api("GET", "queues/orders.new")).consumers === 2);
});

after(async () => {
  await browser?.close();
  await broker?.stop();
});

/** A page of the console in a browser of its own, and the errors that it logs. */
async function open(path, { size = "large", theme = "light" } = {}) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`${broker.http}/console${path}`);
  return { page, errors, close: () => context.close() };
}

async function seriousFindings(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return serious.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
}

for (const [size, theme] of [["large", "light"], ["small", "dark"], ["large", "dark"], ["small", "light"]]) {
  test(`every page, ${size} and ${theme}`, async () => {
    const { page, errors, close } = await open("/", { size, theme });
    for (const { name, path, ready } of PAGES) {
      await page.goto(`${broker.http}/console${path}`);
      await ready(page).waitFor();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wide, 0, `${name}: the page does not scroll to the side`);
      // Colours and structure: each size and each theme once.
      if ((size === "large") === (theme === "light")) assert.deepEqual(await seriousFindings(page), [], name);
      if (process.env.SCREENSHOTS && size === "large" && (theme === "light" ? PICTURES : ["overview"]).includes(name)) await picture(page, `${name}-${theme}`);
    }
    assert.deepEqual(errors, []);
    await close();
  });
}

async function picture(page, name) {
  mkdirSync(IMAGES, { recursive: true });
  await page.screenshot({ path: `${IMAGES}console-${name}.png` });
}

test("charts move with the traffic", async () => {
  const { page, close } = await open("/");
  const plot = page.getByRole("img", { name: /^Messages per second: In [1-9]/ });
  await plot.waitFor();
  const first = await page.locator(".chart path.line").first().getAttribute("d");
  await until("another line", async () => (await page.locator(".chart path.line").first().getAttribute("d")) !== first);
  await close();
});

test("the list of queues is filtered, ordered and loaded page by page", async () => {
  const { page, close } = await open("/queues");
  const rows = page.locator(".table-body .row");
  await page.getByText("100 of", { exact: false }).waitFor();
  await until("the last queue", async () => {
    await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
    return page.getByRole("link", { name: "webhooks.partner-a" }).isVisible();
  });
  assert.ok((await rows.count()) < 80, "rows out of sight are not in the document");
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.getByRole("button", { name: "Messages" }).click();
  await page.getByRole("columnheader", { name: "Messages" }).and(page.locator("[aria-sort=descending]")).waitFor();
  await page.getByRole("searchbox").fill("payments");
  await page.getByRole("link", { name: "payments.visa" }).waitFor();
  await until("nothing else", async () => (await rows.allInnerTexts()).every((text) => text.includes("payments")));
  await page.getByRole("searchbox").fill("no such queue");
  await page.getByText("No queue has “no such queue” in its name").waitFor();
  await close();
});

test("a queue explains why its message is not delivered", async () => {
  const { page, close } = await open("/queues/orders.blue/explain");
  await page.getByText("The only consumer does not take the message: its selector colour = 'red' does not match, as colour is 'blue'.").waitFor();
  broker.consume("orders.blue");
  await page.getByText("The queue holds no message.").first().waitFor();
  await close();
});

test("a queue that grows says why, with the work of its consumers", async () => {
  await broker.send("growing", { body: "0" });
  const { page, close } = await open("/queues/growing/explain");
  const lastMinute = page.getByRole("region", { name: "The last minute" });
  for (let number = 1; number < 30; number += 1) {
    await broker.send("growing", { body: String(number) });
    await new Promise((done) => setTimeout(done, 150));
  }
  await lastMinute.getByText(/^The queue grows: .* messages\/s come in, 0 leave\. No consumer is attached\./).waitFor();
  await lastMinute.getByText("Attach a consumer to the queue.").waitFor();
  broker.consume("growing");
  await lastMinute.getByRole("table", { name: "Work of the consumers" }).getByRole("row", { name: /ID:/ }).waitFor();
  await until("it does not grow", async () => !(await broker.api("GET", "queues/growing/explain")).growth.grows);
  await close();
});

test("dead letters go back to where they were", async () => {
  const { page, close } = await open("/dead-letters");
  await page.getByRole("button", { name: "Send back" }).click();
  await page.getByRole("dialog").getByText("3 → payments.sepa").waitFor();
  await page.getByRole("button", { name: "Send 3 messages back" }).click();
  await page.getByText("3 messages went back").waitFor();
  assert.equal((await broker.api("GET", "queues/payments.sepa")).messages, 3);
  // One is consumed before the operator undoes it.
  broker.receive("payments.sepa", 1);
  await page.getByRole("region", { name: "Redrives" }).getByRole("button", { name: "Undo" }).click();
  await page.getByRole("dialog").getByText("1 consumed, expired or moved elsewhere").waitFor();
  await page.getByRole("button", { name: "Move 2 messages" }).click();
  await page.getByText(/2 messages moved back/).waitFor();
  await page.getByRole("region", { name: "Redrives" }).getByText("2 undone").waitFor();
  assert.equal((await broker.api("GET", "queues/payments.sepa")).messages, 0);
  await page.goto(`${broker.http}/console/audit`);
  await page.getByRole("row", { name: /Send dead letters back/ }).waitFor();
  await page.getByRole("row", { name: /Undo a redrive/ }).first().waitFor();
  await close();
});

test("hostile bodies are text", async () => {
  const { page, errors, close } = await open("/queues/hostile");
  await page.getByRole("button", { name: /^ID:/ }).first().click();
  const body = page.getByRole("region", { name: "Body of the message" });
  await body.waitFor();
  await page.getByRole("button", { name: "Raw" }).click();
  assert.equal(await body.innerText(), HOSTILE);
  await page.getByRole("definition").filter({ hasText: "window.hacked" }).waitFor();
  await page.getByRole("button", { name: /^ID:/ }).nth(1).click();
  await body.getByText("00 01 02 fa 48 65 6c 6c").waitFor();
  await page.getByRole("button", { name: /^ID:/ }).nth(2).click();
  await page.getByText("bytes · JSON").waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // The policy holds even for a script that gets into the document.
  const ran = await page.evaluate(() => {
    const script = document.createElement("script");
    try {
      script.textContent = "window.hacked = 3";
    } catch {
      // Trusted types refuse it already.
    }
    document.body.append(script);
    return window.hacked;
  });
  assert.equal(ran, undefined);
  assert.ok(errors.every((error) => /Content Security Policy|TrustedScript/.test(error)), errors.join("\n"));
  await close();
});

test("messages are found by selector, moved, removed, sent and purged", async () => {
  const { page, close } = await open("/queues/invoices.create");
  await page.getByLabel("Selector").fill("colour = 'red' AND attempt < 13");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("3 rows").waitFor();
  const boxes = page.getByRole("checkbox", { name: /^Select message/ });
  await boxes.nth(0).check();
  await boxes.nth(1).check();
  await page.getByRole("group", { name: "Selected messages" }).getByRole("button", { name: "Move", exact: true }).click();
  await page.getByLabel("Where to").fill("invoices.later");
  await page.getByRole("button", { name: "Move 2" }).click();
  await page.getByText("Moved 2 messages to invoices.later").waitFor();
  assert.equal((await broker.api("GET", "queues/invoices.later")).messages, 2);

  await page.getByRole("button", { name: /^ID:/ }).first().click();
  await page.getByRole("complementary").getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Remove 1 message" }).click();
  await page.getByText("Removed 1 message from invoices.create").waitFor();

  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByLabel("Body").fill("by hand");
  await page.getByLabel("Properties, one to a line").fill("size = 3\nname = x");
  await page.getByRole("button", { name: "Send 1 message" }).click();
  await page.getByText(/^Sent ID:/).waitFor();
  const found = await broker.api("GET", "queues/invoices.create/messages?selector=size%20%3D%203");
  assert.deepEqual(found.items.map(({ body, properties }) => [body.value, properties]), [["by hand", { size: 3, name: "x" }]]);

  await page.getByRole("button", { name: "Purge" }).click();
  const confirm = page.getByRole("button", { name: "Remove 138 messages" });
  assert.equal(await confirm.isDisabled(), true, "the name has to be typed first");
  await page.getByLabel("Type invoices.create to confirm").fill("invoices.create");
  await confirm.click();
  await page.getByText("Removed 138 messages from invoices.create").waitFor();
  await page.getByText("The queue is empty").waitFor();
  await close();
});

test("messages are found by the text in their bodies", async () => {
  for (const body of ["one Apple", "two pears", "three APPLES"]) await broker.send("found.here", { body });
  const { page, close } = await open("/queues/found.here");
  await page.getByLabel("Contains").fill("apple");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("2 rows").waitFor();
  await page.getByLabel("Contains").fill("plum");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByText("No message matches").waitFor();
  await close();
});

test("the configuration is planned, applied, and taken back", async () => {
  const { page, errors, close } = await open("/configuration/change");
  const text = page.getByLabel("Configuration file (TOML)");
  await until("the text", async () => (await text.inputValue()).includes("copy-orders"));
  const before = await text.inputValue();
  await text.fill(`port_ofset = 1\n${before}`);
  await page.getByRole("button", { name: "Plan" }).click();
  await page.getByText("did you mean `port_offset`?", { exact: false }).waitFor();
  await text.fill(`${before}\n[[policy]]\ndestination = "queue://few.here"\nmessages_max = 1\nat_limit = "fail"\n`);
  await page.getByRole("button", { name: "Plan" }).click();
  await page.getByRole("cell", { name: "policy[queue://few.here].messages_max" }).waitFor();
  await page.getByRole("button", { name: "Apply…" }).click();
  await page.getByText("3 changes in force at once, 0 at the next start", { exact: false }).waitFor();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.getByText("Version 2 is in force").waitFor();
  await broker.send("few.here", { body: "one" });
  await assert.rejects(broker.send("few.here", { body: "two" }));

  await page.goto(`${broker.http}/console/configuration/versions`);
  await page.getByRole("row", { name: /start/ }).click();
  await page.getByRole("button", { name: "Apply again…" }).click();
  await page.getByText("3 changes in force at once", { exact: false }).waitFor();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.getByText("Version 3 is in force").waitFor();
  await broker.send("few.here", { body: "two" });
  assert.deepEqual(errors.filter((error) => !error.includes("400")), []);
  await close();
});

test("a queue is paused and resumed", async () => {
  await broker.api("PUT", "queues/paused.here");
  const { page, close } = await open("/queues/paused.here");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByRole("button", { name: "Pause the queue" }).click();
  await page.getByText("paused.here is paused").waitFor();
  await page.locator(".badge", { hasText: "paused" }).waitFor();
  assert.equal((await broker.api("GET", "queues/paused.here")).is_paused, true);
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await page.getByRole("button", { name: "Resume the queue" }).click();
  await page.getByText("paused.here is resumed").waitFor();
  assert.equal((await broker.api("GET", "queues/paused.here")).is_paused, false);
  await close();
});

test("a scheduled message is shown and deleted", async () => {
  broker.schedule("deleted.later", "never sent", 7_200_000, "shop=eu");
  const { page, errors, close } = await open("/schedules");
  await page.getByRole("searchbox").fill("deleted");
  await page.getByRole("button", { name: "queue://deleted.later", exact: true }).click();
  await page.getByRole("dialog").getByText("never sent").waitFor();
  await page.getByRole("dialog").getByText("eu", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("button", { name: "Delete 1 message" }).click();
  await page.getByText("Deleted the scheduled message to queue://deleted.later").waitFor();
  await page.getByText("No scheduled message goes to a destination with “deleted” in its name").waitFor();
  const { items } = await broker.api("GET", "schedules");
  assert.deepEqual(items.map(({ destinations }) => destinations[0]), ["topic://reminders", "queue://reports.daily"]);
  assert.deepEqual(errors, []);
  await close();
});

test("the topology is walked by the keyboard and filtered", async () => {
  const { page, errors, close } = await open("/topology");
  await page.getByRole("link", { name: /^orders\.paid\s*, queue/ }).focus();
  const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
  await page.keyboard.press("ArrowRight");
  assert.match(await focused(), /^copy-orders, route, copies/);
  await page.keyboard.press("ArrowRight");
  assert.match(await focused(), /^(orders\.archive, queue|VirtualTopic\.paid, topic)/);
  await page.keyboard.press("ArrowLeft");
  assert.match(await focused(), /^copy-orders/);
  await page.getByRole("searchbox").fill("no such name");
  await page.getByText("Nothing has “no such name” in its name").waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByRole("link", { name: /^orders\.archive\s*, queue/ }).click();
  await page.getByRole("heading", { name: "orders.archive" }).waitFor();
  assert.deepEqual(errors, []);
  await close();
});

test("a tenant is added, changed and deleted", async () => {
  const { page, errors, close } = await open("/tenants");
  await page.getByRole("button", { name: "Add a tenant…" }).click();
  await page.getByLabel("Name", { exact: true }).fill("shop");
  await page.getByLabel("Queues", { exact: true }).fill("x");
  assert.equal(await page.getByRole("button", { name: "Add 1 tenant" }).isDisabled(), true, "a quota is a number");
  await page.getByLabel("Queues", { exact: true }).fill("7");
  await page.getByRole("button", { name: "Add 1 tenant" }).click();
  await page.getByRole("dialog", { name: "The tenant shop is there" }).getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("button", { name: "shop", exact: true }).click();
  await page.getByRole("button", { name: "Change quotas…" }).click();
  await page.getByLabel("Queues", { exact: true }).fill("9");
  await page.getByRole("button", { name: "Change the quotas" }).click();
  await page.getByText("Changed the quotas of shop").waitFor();
  assert.equal((await broker.api("GET", "tenants/shop")).quotas.queues_max, 9);
  await page.getByRole("button", { name: "shop", exact: true }).click();
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByLabel("Type shop to confirm").fill("shop");
  await page.getByRole("button", { name: "Delete the tenant" }).click();
  await page.getByText("Deleted the tenant shop").waitFor();
  assert.deepEqual(errors, []);
  await close();
});

test("a message is edited and sent again, in place of the original", async () => {
  await broker.send("edited.here", { body: "wrong", correlation_id: "c", properties: { size: 3, code: "007", flag: true } });
  const { page, close } = await open("/queues/edited.here");
  await page.getByRole("button", { name: /^ID:/ }).first().click();
  await page.getByRole("button", { name: "Edit and resend" }).click();
  await page.getByRole("dialog").getByLabel("Body").fill("right");
  await page.getByRole("button", { name: "Send 1 message" }).click();
  await page.getByText(/^Sent ID:/).waitFor();
  const { items } = await broker.api("GET", "queues/edited.here/messages");
  assert.deepEqual(items.map(({ body, correlation_id, properties }) => [body.value, correlation_id, properties]), [["right", "c", { size: 3, code: "007", flag: true }]]);
  await close();
});

test("the keyboard is enough", async () => {
  const { page, close } = await open("/");
  const { keyboard } = page;
  const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
  await page.getByRole("link", { name: "Queues" }).waitFor();
  await keyboard.press("Tab");
  assert.match(await focused(), /Skip to the content/);
  await keyboard.press("g");
  await keyboard.press("q");
  await page.getByRole("heading", { name: /^Queues/ }).waitFor();
  await keyboard.press("/");
  await keyboard.type("customers");
  await page.getByRole("link", { name: "customers.sync" }).waitFor();
  for (let step = 0; step < 30 && (await focused()) !== "customers.sync"; step += 1) await keyboard.press("Tab");
  await keyboard.press("Enter");
  await page.getByRole("heading", { name: "customers.sync" }).waitFor();
  for (let step = 0; step < 30 && (await focused()).trim() !== "Send"; step += 1) await keyboard.press("Tab");
  await keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  // The focus comes back to the button a moment later.
  await page.waitForFunction(() => document.activeElement?.textContent?.trim() === "Send");
  await keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.getByLabel("Body").press("End");
  await keyboard.type("typed");
  for (let step = 0; step < 30 && (await focused()) !== "Send 1 message"; step += 1) await keyboard.press("Tab");
  await keyboard.press("Enter");
  await page.getByText(/^Sent ID:/).waitFor();
  await close();
});

test("a viewed console costs the broker under a hundredth of a core", async () => {
  await broker.rest();
  const { page, close } = await open("/");
  await page.getByRole("img", { name: /^Messages per second/ }).waitFor();
  // What is left of the traffic, such as a checkpoint, is none of the console's.
  let used;
  for (let attempt = 0; attempt < 12 && !(used?.share < 0.01); attempt += 1) {
    const [begun, before] = [performance.now(), broker.threadsMs()];
    await page.waitForTimeout(5_000);
    used = usedSince(before, broker.threadsMs(), performance.now() - begun);
  }
  assert.ok(used.share < 0.01, `the last 5 s took ${used.share} of a core: ${JSON.stringify(used.byThread)}`);
  await close();
});

/** The share of a core that the threads had in this time, and each one's milliseconds. */
function usedSince(before, after, ms) {
  const byThread = {};
  for (const [thread, now] of Object.entries(after)) {
    const spent = now - (before[thread] ?? 0);
    if (spent > 0) byThread[thread] = spent;
  }
  return { share: Object.values(byThread).reduce((sum, spent) => sum + spent, 0) / ms, byThread };
}
