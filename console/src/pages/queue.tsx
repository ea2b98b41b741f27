// One queue: its figures, messages and consumers, and what can be done with them.

import { useState } from "react";
import { ApiError, del, get, pathOf, post, type Queue } from "../api";
import { bytes, compact, count, plural, rate } from "../format";
import { usePoll } from "../live";
import { go, Link, to } from "../router";
import { Spark } from "../ui/chart";
import { Action } from "../ui/dialog";
import { SendIcon, TrashIcon } from "../ui/icons";
import { Badge, Empty, Failure, Loading } from "../ui/state";
import { Consumers } from "./consumers";
import { Messages } from "./messages";
import { Explain } from "./explain";
import { Facts } from "./parts";
import { SendMessage } from "./send";

type Doing = "send" | "purge" | "delete" | "pause" | "resume" | undefined;

const EVERY_MS = 2_000;
const SAMPLES_MAX = 150;

interface Sample {
  at: number;
  queue: Queue;
}

/** The last samples of the queue, for its rates. */
function useSamples(queue: Queue | undefined): Sample[] {
  const [samples, setSamples] = useState<Sample[]>([]);
  const last = samples.at(-1);
  if (queue !== undefined && last?.queue !== queue) {
    setSamples([...samples.slice(1 - SAMPLES_MAX), { at: performance.now(), queue }]);
  }
  return samples;
}

function rates(samples: Sample[], of: (queue: Queue) => number): (number | null)[] {
  return samples.map(({ at, queue }, index) => {
    const before = samples[index - 1];
    return before === undefined ? null : (Math.max(0, of(queue) - of(before.queue)) / Math.max(1, at - before.at)) * 1000;
  });
}

const TABS = [
  { tab: undefined, title: "Messages" },
  { tab: "consumers", title: "Consumers" },
  { tab: "explain", title: "Explain" },
];

export function QueuePage({ name, tab }: { name: string; tab: string | undefined }) {
  const { data: queue, error, refresh } = usePoll<Queue>(pathOf("queues", name), EVERY_MS);
  const samples = useSamples(queue);
  const [doing, setDoing] = useState<Doing>();
  const [version, setVersion] = useState(0);
  const done = () => {
    setDoing(undefined);
    setVersion((version) => version + 1);
    refresh();
  };
  if (queue === undefined && error !== undefined) {
    if (error.status !== 404) return <Failure error={error} onRetry={refresh} />;
    return (
      <div className="card empty">
        <Empty title={`There is no queue ${name}`}>
          <Link href={to("queues")}>All queues</Link>
        </Empty>
      </div>
    );
  }
  if (queue === undefined) return <Loading />;
  const incoming = rates(samples, (of) => of.enqueued);
  const outgoing = rates(samples, (of) => of.consumed);
  return (
    <>
      <nav className="crumbs" aria-label="Where you are">
        <Link href={to("queues")}>Queues</Link>
      </nav>
      <header className="page-head">
        <h1 className="page-name">{queue.name}</h1>
        {queue.kind !== "queue" && <Badge>{queue.kind}</Badge>}
        {queue.is_moving && <Badge tone="info">moving to another store</Badge>}
        {queue.is_paused && <Badge tone="warning">paused</Badge>}
        {queue.consumers === 0 && queue.messages > 0 && <Badge tone="warning">no consumer</Badge>}
        <span className="spacer" />
        <div className="actions">
          <button type="button" className="button is-primary" onClick={() => setDoing("send")}>
            <SendIcon /> Send
          </button>
          {queue.kind === "queue" && (
            <button type="button" className="button" onClick={() => setDoing(queue.is_paused ? "resume" : "pause")}>
              {queue.is_paused ? "Resume" : "Pause"}
            </button>
          )}
          <button type="button" className="button" onClick={() => setDoing("purge")} disabled={queue.messages === 0}>
            Purge
          </button>
          <button type="button" className="button is-quiet-danger" onClick={() => setDoing("delete")} disabled={queue.consumers > 0} title={queue.consumers > 0 ? "A queue with consumers cannot be deleted" : undefined}>
            <TrashIcon /> Delete
          </button>
        </div>
      </header>
      <section className="tiles" aria-label="Figures">
        <QueueTile title="Messages" value={compact(queue.messages)} note={bytes(queue.bytes)} values={samples.map(({ queue }) => queue.messages)} colour={3} />
        <QueueTile title="In" value={rate(incoming.at(-1) ?? 0)} note={`${compact(queue.enqueued)} since the start`} values={incoming} colour={1} />
        <QueueTile title="Acknowledged" value={rate(outgoing.at(-1) ?? 0)} note={`${compact(queue.consumed)} since the start`} values={outgoing} colour={2} />
        <QueueTile title="In flight" value={compact(queue.in_flight)} note={`with ${plural(queue.consumers, "consumer")}`} values={samples.map(({ queue }) => queue.in_flight)} colour={4} />
        <div className="tile card">
          <div className="tile-title">Left otherwise</div>
          <Facts
            facts={[
              ["Dead letters", count(queue.dead_lettered)],
              ["Expired", count(queue.expired)],
              ["Dropped", count(queue.dropped)],
            ]}
          />
        </div>
      </section>
      <nav className="tabs" aria-label="Parts of the queue">
        {TABS.map((each) => (
          <Link key={each.title} href={each.tab === undefined ? to("queues", name) : to("queues", name, each.tab)} aria-current={each.tab === tab ? "page" : undefined}>
            {each.title}
            {each.tab !== "explain" && <span className="tab-count">{compact(each.tab === "consumers" ? queue.consumers : queue.messages)}</span>}
          </Link>
        ))}
      </nav>
      {tab === "explain" ? <Explain queue={name} /> : tab === "consumers" ? <Consumers of={queue.kind === "temporary queue" ? name : `queue://${queue.name}`} /> : <Messages key={version} queue={name} isEmpty={queue.messages === 0} onChanged={refresh} />}
      {doing === "send" && <SendMessage to={name} onClose={done} />}
      {doing === "purge" && <Purge name={name} queue={queue} onClose={done} />}
      {(doing === "pause" || doing === "resume") && <Pause name={name} queue={queue} pauses={doing === "pause"} onClose={done} />}
      {doing === "delete" && <Delete name={name} queue={queue} onClose={() => setDoing(undefined)} />}
    </>
  );
}

function QueueTile({ title, value, note, values, colour }: { title: string; value: string; note: string; values: (number | null)[]; colour: number }) {
  return (
    <div className="tile card">
      <div className="tile-title">{title}</div>
      <div className="tile-value">{value}</div>
      <div className="tile-note">{note}</div>
      <Spark values={values} colour={colour} />
    </div>
  );
}

function Purge({ name, queue, onClose }: { name: string; queue: Queue; onClose: () => void }) {
  const ready = queue.messages - queue.in_flight;
  return (
    <Action
      title={`Purge ${queue.name}`}
      effect={
        <p>
          Removes <strong>{plural(Math.max(0, ready), "message")}</strong> for good. They count as consumed.
          {queue.in_flight > 0 && <> The {plural(queue.in_flight, "message")} in flight stay with their consumers.</>}
        </p>
      }
      verb={`Remove ${plural(Math.max(0, ready), "message")}`}
      isDangerous
      {...(ready > 100 ? { confirm: queue.name } : {})}
      onClose={onClose}
      act={async () => {
        const { removed } = await post<{ removed: number }>(pathOf("queues", name, "purge"));
        return `Removed ${plural(removed, "message")} from ${queue.name}`;
      }}
    />
  );
}

function Pause({ name, queue, pauses, onClose }: { name: string; queue: Queue; pauses: boolean; onClose: () => void }) {
  return (
    <Action
      title={`${pauses ? "Pause" : "Resume"} ${queue.name}`}
      effect={
        pauses ? (
          <p>
            Its <strong>{plural(queue.consumers, "consumer")}</strong> stay attached and get no more messages, also after a restart. Producers go on: {plural(queue.messages, "message")} and all further ones wait.
          </p>
        ) : (
          <p>
            Delivers <strong>{plural(Math.max(0, queue.messages - queue.in_flight), "message")}</strong> to its {plural(queue.consumers, "consumer")}, as they have credit.
          </p>
        )
      }
      verb={pauses ? "Pause the queue" : "Resume the queue"}
      onClose={onClose}
      act={async () => {
        await post(pathOf("queues", name, pauses ? "pause" : "resume"));
        return `${queue.name} is ${pauses ? "paused" : "resumed"}`;
      }}
    />
  );
}

function Delete({ name, queue, onClose }: { name: string; queue: Queue; onClose: () => void }) {
  return (
    <Action
      title={`Delete ${queue.name}`}
      effect={
        <p>
          Deletes the queue and <strong>{plural(queue.messages, "message")}</strong> in it, for good. A client that uses the name makes a new, empty queue.
        </p>
      }
      verb="Delete the queue"
      isDangerous
      {...(queue.messages > 0 ? { confirm: queue.name } : {})}
      onClose={onClose}
      act={async () => {
        // The count that was confirmed may be old.
        const now = await get<Queue>(pathOf("queues", name));
        if (queue.messages === 0 && now.messages > 0) throw new ApiError(409, `The queue holds ${plural(now.messages, "message")} by now. Close this and look again.`);
        await del(pathOf("queues", name));
        go(to("queues"));
        return `${queue.name} is deleted`;
      }}
    />
  );
}
