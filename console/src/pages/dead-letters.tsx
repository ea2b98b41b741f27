// The dead-letter workbench: dead letters by origin and cause, and the way back.

import { useEffect, useState } from "react";
import { get, type Message, type Page, pathOf, post, type Queue, withQuery } from "../api";
import { compact, count, plural } from "../format";
import { usePoll } from "../live";
import { Link, setQuery, to, useRoute } from "../router";
import { Action } from "../ui/dialog";
import { Badge, Empty, Failure, Loading } from "../ui/state";
import { Redrives } from "./redrives";

/** Messages that are looked at, for their causes. */
const LOOK_MAX = 2_000;

interface Group {
  origin: string | null;
  cause: string | null;
  count: number;
  first: Message;
}

interface Looked {
  groups: Group[];
  seen: number;
  isAll: boolean;
}

async function look(queue: string, signal: AbortSignal): Promise<Looked> {
  const groups = new Map<string, Group>();
  let cursor: string | null = null;
  let seen = 0;
  do {
    const page: Page<Message> = await get(withQuery(pathOf("queues", queue, "messages"), { limit: 500, body_bytes: 0, cursor }), signal);
    for (const message of page.items) {
      const { origin, dead_letter_cause: cause } = message;
      const key = `${origin}\n${cause}`;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, { origin, cause, count: 1, first: message });
      else group.count += 1;
    }
    seen += page.items.length;
    cursor = page.next;
  } while (cursor !== null && seen < LOOK_MAX);
  return { groups: [...groups.values()].sort((one, other) => other.count - one.count), seen, isAll: cursor === null };
}

export function DeadLettersPage() {
  const { query } = useRoute();
  const { data, error, refresh } = usePoll<Page<Queue>>(withQuery(pathOf("queues"), { filter: "DLQ", sort: "-messages", limit: 200 }), 5_000);
  const queues = (data?.items ?? []).filter(({ kind }) => kind === "queue");
  const chosen = query.get("queue") ?? queues[0]?.name;
  return (
    <>
      <header className="page-head">
        <h1>Dead letters</h1>
        <p className="page-note">Messages that could not be processed, by the queue that they came from and the cause.</p>
      </header>
      {data === undefined && (error === undefined ? <Loading /> : <Failure error={error} onRetry={refresh} />)}
      {data !== undefined && queues.length === 0 && (
        <div className="card empty">
          <Empty title="There is no queue of dead letters">One is made when the first message cannot be processed.</Empty>
        </div>
      )}
      {queues.length > 0 && (
        <nav className="tabs" aria-label="Queues of dead letters">
          {queues.map(({ name, messages }) => (
            <a
              key={name}
              href={`${to("dead-letters")}?queue=${encodeURIComponent(name)}`}
              aria-current={name === chosen ? "page" : undefined}
              onClick={(event) => {
                event.preventDefault();
                setQuery({ queue: name });
              }}
            >
              {name}
              <span className="tab-count">{compact(messages)}</span>
            </a>
          ))}
        </nav>
      )}
      {chosen !== undefined && queues.length > 0 && <Workbench key={chosen} queue={chosen} messages={queues.find(({ name }) => name === chosen)?.messages ?? 0} onChanged={refresh} />}
    </>
  );
}

type Doing = { kind: "redrive"; group: Group | undefined } | undefined;

function Workbench({ queue, messages, onChanged }: { queue: string; messages: number; onChanged: () => void }) {
  const [looked, setLooked] = useState<Looked | undefined>();
  const [failed, setFailed] = useState<string | undefined>();
  const [doing, setDoing] = useState<Doing>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    look(queue, controller.signal).then(setLooked, (error) => {
      if (!controller.signal.aborted) setFailed(String(error instanceof Error ? error.message : error));
    });
    return () => controller.abort();
  }, [queue, round, messages]);
  if (failed !== undefined) return <p className="form-error">{failed}</p>;
  if (looked === undefined) return <Loading />;
  const { groups, seen, isAll } = looked;
  return (
    <>
      <div className="page-head">
        <p className="page-note">
          {isAll ? `${plural(seen, "message")} by ${plural(groups.length, "cause")}.` : `The first ${count(seen)} messages by cause; there are more.`} <Link href={to("queues", queue)}>Browse all</Link>
        </p>
        <span className="spacer" />
        <button type="button" className="button is-primary" disabled={seen === 0} onClick={() => setDoing({ kind: "redrive", group: undefined })}>
          Send all back
        </button>
      </div>
      {groups.length === 0 && (
        <div className="card empty">
          <Empty title="No dead letters here" />
        </div>
      )}
      <ul className="causes">
        {groups.map((group) => (
          <li key={`${group.origin} ${group.cause}`} className="card cause-row">
            <strong className="cause-count">{isAll ? count(group.count) : `${count(group.count)}+`}</strong>
            <div className="cause-text">
              <div className="cause-origin">{group.origin === null ? <Badge tone="warning">origin not known</Badge> : group.origin.replace("queue://", "")}</div>
              <div className="faint">{group.cause ?? "no cause given"}</div>
            </div>
            <button type="button" className="button" disabled={group.origin === null} onClick={() => setDoing({ kind: "redrive", group })}>
              Send back
            </button>
          </li>
        ))}
      </ul>
      <Redrives
        queue={queue}
        round={round}
        onChanged={() => {
          setRound((round) => round + 1);
          onChanged();
        }}
      />
      {doing !== undefined && (
        <Redrive
          queue={queue}
          group={doing.group}
          looked={looked}
          onClose={() => {
            setDoing(undefined);
            setRound((round) => round + 1);
            onChanged();
          }}
        />
      )}
    </>
  );
}

function Redrive({ queue, group, looked, onClose }: { queue: string; group: Group | undefined; looked: Looked; onClose: () => void }) {
  const number = group?.count ?? looked.seen;
  const about = looked.isAll ? plural(number, "message") : `${plural(number, "message")} or more`;
  const targets = new Map<string, number>();
  for (const { origin, count } of group === undefined ? looked.groups : [group]) {
    const name = origin?.replace("queue://", "") ?? "stay here: their origin is not known";
    targets.set(name, (targets.get(name) ?? 0) + count);
  }
  return (
    <Action
      title="Send dead letters back"
      effect={
        <>
          <p>
            Moves <strong>{about}</strong> from <code>{queue}</code> to where they were. Each is delivered again as its sender sent it.
          </p>
          <ul className="preview">
            {[...targets].map(([name, count]) => (
              <li key={name}>
                <strong>{compact(count)}</strong> → {name}
              </li>
            ))}
          </ul>
        </>
      }
      verb={`Send ${about} back`}
      onClose={onClose}
      act={async () => {
        // Messages of the same origin with another cause stay.
        const hasOthers = !looked.isAll || looked.groups.some((other) => other !== group && other.origin === group?.origin);
        const selector = hasOthers && group !== undefined && group.cause !== null ? `dlqDeliveryFailureCause = '${group.cause.replaceAll("'", "''")}'` : undefined;
        const body = group === undefined ? {} : { origin: group.origin, selector };
        const { moved, stayed } = await post<{ moved: number; stayed: number }>(pathOf("queues", queue, "redrive"), body);
        return `${plural(moved, "message")} went back${stayed > 0 && group === undefined ? `, ${count(stayed)} stayed` : ""}`;
      }}
    />
  );
}
