// The last redrives of a dead-letter queue, and their undo.

import { useEffect, useState } from "react";
import { ApiError, type Page, pathOf, post, withQuery } from "../api";
import { count, dateTime, plural } from "../format";
import { usePoll } from "../live";
import { Action } from "../ui/dialog";
import { Badge } from "../ui/state";

interface Redrive {
  id: number;
  at_ms: number;
  user: string | null;
  state: "running" | "interrupted" | "done" | "failed";
  moved: number;
  undone: number;
  targets: { destination: string; messages: number }[];
}

interface Undone {
  moved: number;
  in_flight: number;
  dead_again: number;
  gone: number | null;
}

/** Rows that are shown; `ctl redrives` lists all. */
const SHOWN = 10;

const nameOf = (destination: string) => destination.replace("queue://", "");

/** Where its messages went to, in a few words. */
function goal({ targets }: Redrive): string {
  const [first, second, ...more] = targets.map(({ destination }) => nameOf(destination));
  if (first === undefined) return "–";
  if (second === undefined) return first;
  return more.length === 0 ? `${first}, ${second}` : `${first}, ${second} and ${plural(more.length, "more queue")}`;
}

/** Messages that stay, each with the reason. */
function reasons({ in_flight, dead_again, gone }: Undone): string[] {
  const rows: [number | null, string][] = [
    [in_flight, "in flight: a consumer, a lease or a transaction has them"],
    [dead_again, "dead letters already"],
    [gone, "consumed, expired or moved elsewhere"],
  ];
  const words = rows.filter(([messages]) => messages !== null && messages > 0).map(([messages, why]) => `${count(messages ?? 0)} ${why}`);
  return gone === null ? [...words, "how many it had moved is not known: it was interrupted"] : words;
}

export function Redrives({ queue, round, onChanged }: { queue: string; round: number; onChanged: () => void }) {
  const { data, refresh } = usePoll<Page<Redrive>>(withQuery(pathOf("redrives"), { destination: queue, limit: SHOWN }), 5_000);
  const [undoing, setUndoing] = useState<Redrive | undefined>();
  useEffect(refresh, [round, refresh]);
  const rows = data?.items ?? [];
  if (rows.length === 0) return null;
  return (
    <section className="card redrives" aria-label="Redrives">
      <h2>Sent back</h2>
      <div className="workers" tabIndex={0} role="group" aria-label="The last redrives">
        <table className="pairs" aria-label="Redrives of this queue">
          <thead>
            <tr>
              <th>When</th>
              <th>To</th>
              <th className="is-number">Messages</th>
              <th>User</th>
              <th>State</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {rows.map((redrive) => (
              <Row key={redrive.id} redrive={redrive} onUndo={() => setUndoing(redrive)} />
            ))}
          </tbody>
        </table>
      </div>
      {undoing !== undefined && (
        <Undo
          queue={queue}
          redrive={undoing}
          onClose={() => {
            setUndoing(undefined);
            refresh();
            onChanged();
          }}
        />
      )}
    </section>
  );
}

function Row({ redrive, onUndo }: { redrive: Redrive; onUndo: () => void }) {
  const { at_ms, user, state, moved, undone } = redrive;
  const isOver = state === "running" || (moved > 0 && undone >= moved) || (moved === 0 && state !== "interrupted");
  return (
    <tr>
      <th>{dateTime(at_ms)}</th>
      <td className="name">{goal(redrive)}</td>
      <td className="is-number">{state === "interrupted" ? "–" : count(moved)}</td>
      <td>{user ?? "–"}</td>
      <td>
        {undone > 0 ? (
          <Badge>{undone >= moved ? "undone" : `${count(undone)} undone`}</Badge>
        ) : (
          <Badge tone={state === "done" ? "good" : "warning"}>{state}</Badge>
        )}
      </td>
      <td className="is-action">
        <button type="button" className="button" disabled={isOver} onClick={onUndo}>
          Undo
        </button>
      </td>
    </tr>
  );
}

function Undo({ queue, redrive, onClose }: { queue: string; redrive: Redrive; onClose: () => void }) {
  const [plan, setPlan] = useState<Undone | undefined>();
  const [failed, setFailed] = useState<string | undefined>();
  const path = pathOf("redrives", String(redrive.id), "undo");
  useEffect(() => {
    post<Undone>(path, { dry_run: true }).then(setPlan, (error) => setFailed(error instanceof ApiError ? error.message : String(error)));
  }, [path]);
  return (
    <Action
      title="Undo a redrive"
      effect={
        failed !== undefined ? (
          <p className="form-error">{failed}</p>
        ) : plan === undefined ? (
          <p>Counting the messages that still wait…</p>
        ) : (
          <>
            <p>
              Moves <strong>{plural(plan.moved, "message")}</strong> back to <code>{queue}</code>, with origin and cause as before.
            </p>
            {reasons(plan).length > 0 && (
              <>
                <p>The others stay:</p>
                <ul className="preview">
                  {reasons(plan).map((reason) => (
                    <li key={reason}>{reason}</li>
                  ))}
                </ul>
              </>
            )}
          </>
        )
      }
      verb={plan === undefined ? "Undo" : `Move ${plural(plan.moved, "message")}`}
      isReady={plan !== undefined && plan.moved > 0}
      onClose={onClose}
      act={async () => {
        const undone = await post<Undone>(path, {});
        const stay = reasons(undone);
        return `${plural(undone.moved, "message")} moved back${stay.length === 0 ? "" : `; ${stay.join(", ")}`}`;
      }}
    />
  );
}
