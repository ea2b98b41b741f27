// The sign-in of the console, seen by a browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { startBroker } from "./broker.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PERMISSIONS = `
[[security.permission]]
users = ["ann"]
destinations = ["queue://orders.>"]
actions = ["read", "write", "create"]

[[security.permission]]
users = ["root"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]
`;
const COOKIE = "postroad-session";

let broker;
let browser;

before(async () => {
  broker = await startBroker({ users: { ann: "secret-a", root: "secret-r" }, config: PERMISSIONS });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
});

after(async () => {
  await browser?.close();
  await broker?.stop();
});

async function open(theme = "light") {
  const context = await browser.newContext({ colorScheme: theme });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  await page.goto(`${broker.http}/console/queues`);
  return { context, page };
}

async function signIn(page, user, password) {
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.keyboard.press("Enter");
}

for (const theme of ["light", "dark"]) {
  test(`the sign-in page has no serious findings, ${theme}`, async () => {
    const { context, page } = await open(theme);
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id }) => id), []);
    await context.close();
  });
}

test("a user signs in by keyboard, changes something, and signs out", async () => {
  const { context, page } = await open();
  await signIn(page, "root", "wrong");
  await page.getByRole("alert").filter({ hasText: "password" }).waitFor();
  await signIn(page, "root", "secret-r");
  await page.getByText("root", { exact: true }).waitFor();
  const cookie = (await context.cookies()).find(({ name }) => name === COOKIE);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  assert.equal(await page.evaluate(() => document.cookie), "", "no script sees the session");
  await page.reload();
  await page.getByText("root", { exact: true }).waitFor();
  const [sent] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === "PUT"),
    page.evaluate(() => fetch("/api/v1/session").then((answer) => answer.json()).then(({ csrf }) => fetch("/api/v1/queues/orders.new", { method: "PUT", headers: { "x-postroad-csrf": csrf } }))),
  ]);
  assert.equal(sent.status(), 201);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  assert.equal((await context.cookies()).find(({ name }) => name === COOKIE), undefined);
  await context.close();
});

test("a user without admin sees its own queues and pages alone", async () => {
  const { context, page } = await open();
  await signIn(page, "ann", "secret-a");
  await page.getByText("ann", { exact: true }).waitFor();
  const nav = page.getByRole("navigation", { name: "Pages" });
  assert.equal(await nav.getByRole("link", { name: /Audit/ }).count(), 0);
  await nav.getByRole("link", { name: /Overview/ }).click();
  await page.getByRole("link", { name: "Go to your queues" }).waitFor();
  await context.close();
});

test("an open page shows the sign-in when its session has ended", async () => {
  const { context, page } = await open();
  await signIn(page, "ann", "secret-a");
  await page.getByText("ann", { exact: true }).waitFor();
  await context.clearCookies();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await context.close();
});
