// Who is signed in: asked of the broker once, and told by every request that is refused for want of a login.

import { useSyncExternalStore } from "react";

export interface Caller {
  user: string | null;
  csrf: string | null;
  administers: boolean;
  is_session: boolean;
  /** How many stores the cluster has. */
  stores: number;
}

/** `asking` until the broker has answered, `out` while a sign-in is needed. */
export type Session = { state: "asking" | "out" } | ({ state: "in" } & Caller);

/** After this time without any action a user is away: what the console asks for then keeps no session alive. */
const AWAY_AFTER_MS = 60_000;

let session: Session = { state: "asking" };
let lastInputMs = performance.now();
const watchers = new Set<() => void>();

for (const kind of ["pointerdown", "keydown"]) {
  window.addEventListener(kind, () => (lastInputMs = performance.now()), { passive: true });
}

function set(next: Session) {
  session = next;
  for (const watcher of watchers) watcher();
}

export const signedIn = (caller: Caller) => set({ state: "in", ...caller });
export const signedOut = () => session.state !== "out" && set({ state: "out" });

function watch(watcher: () => void) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export const useSession = (): Session => useSyncExternalStore(watch, () => session);

/** Headers of each request: no prompt of the browser, and what a change needs in a session. */
export function sessionHeaders(method: string): { [name: string]: string } {
  return {
    "x-postroad-console": "1",
    ...(performance.now() - lastInputMs > AWAY_AFTER_MS ? { "x-postroad-round": "1" } : {}),
    ...(method !== "GET" && session.state === "in" && session.csrf !== null ? { "x-postroad-csrf": session.csrf } : {}),
  };
}

/** Where a tab keeps the number of the store that it shows. */
const STORE_KEY = "postroad-store";

/** The number of the store that is shown; null where the broker finds it by the user, or has no others. */
export function shownStore(): number | null {
  if (session.state !== "in" || !session.administers || session.stores < 2) return null;
  const chosen = Number(window.sessionStorage.getItem(STORE_KEY));
  return Number.isInteger(chosen) && chosen >= 1 && chosen <= session.stores ? chosen : 1;
}

/** Shows another store from now on. What the page knows is of the one before, so it begins again at this address. */
export function showStore(store: number, address: string) {
  window.sessionStorage.setItem(STORE_KEY, String(store));
  window.location.assign(address);
}
