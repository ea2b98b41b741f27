// Which page is shown, by the address: /console/queues/NAME. A small router over the browser's history.

import { type AnchorHTMLAttributes, type MouseEvent, useSyncExternalStore } from "react";

const BASE = "/console";
const listeners = new Set<() => void>();

function changed() {
  for (const listener of listeners) listener();
}

window.addEventListener("popstate", changed);

const current = () => window.location.pathname + window.location.search;

/** The parts of the path below /console/, decoded, and the query. */
export function useRoute(): { parts: string[]; query: URLSearchParams } {
  const address = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    current,
  );
  const url = new URL(address, window.location.origin);
  const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : url.pathname;
  return { parts: path.split("/").filter(Boolean).map(safeDecode), query: url.searchParams };
}

function safeDecode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page. */
export function to(...parts: string[]): string {
  return `${BASE}/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(address: string) {
  if (address !== current()) window.history.pushState(null, "", address);
  changed();
  window.scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
}

/** Changes the query of the address without a new entry in the history. */
export function setQuery(changes: { [name: string]: string | null }) {
  const url = new URL(window.location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  window.history.replaceState(null, "", url.pathname + url.search);
  changed();
}

/** A link to a page of the console. */
export function Link({ href, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    rest.onClick?.(event);
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(href);
  };
  return <a {...rest} href={href} onClick={follow} />;
}
