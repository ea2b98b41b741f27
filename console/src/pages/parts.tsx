// Parts that several pages have.

import { useId } from "react";
import type { Queue } from "../api";
import { to } from "../router";
import { SearchIcon } from "../ui/icons";

/** The page of a queue; of a durable subscription, that of the list where it stands. */
export function queueAddress(queue: Queue): string {
  if (queue.kind === "subscription") return `${to("queues")}?filter=${encodeURIComponent(queue.name)}`;
  return to("queues", queue.kind === "temporary queue" ? `temp-queue://${queue.name}` : queue.name);
}

export function queueTitle(queue: Queue): string {
  return queue.subscription === undefined ? queue.name : `${queue.name} → ${queue.subscription}`;
}

export function Search({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const id = useId();
  return (
    <div className="search">
      <label htmlFor={id} className="hidden">
        {label}
      </label>
      <SearchIcon />
      <input id={id} type="search" placeholder={label} value={value} onChange={(event) => onChange(event.target.value)} autoComplete="off" spellCheck={false} />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

export function Facts({ facts }: { facts: [string, React.ReactNode][] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
