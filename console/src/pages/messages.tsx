// The messages of a queue: browsed at any depth, found by selector, and moved or removed.

import { useId, useState } from "react";
import { ApiError, del, type Json, type Message, pathOf, post, withQuery } from "../api";
import { bytes, compact, count, dateTime, plural, timeOfDay } from "../format";
import { usePages } from "../live";
import { BodyView, preview, scalar } from "../ui/body";
import { Action } from "../ui/dialog";
import { CloseIcon, MoveIcon, TrashIcon } from "../ui/icons";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Explain } from "./explain";
import { Facts } from "./parts";
import { isEditable, SendMessage } from "./send";
import { usePoll } from "../live";

const PAGE = 100;
const PREVIEW_BYTES = 256;

type Doing = { what: "move" | "remove"; ids: string[] } | undefined;

export function Messages({ queue, isEmpty, onChanged }: { queue: string; isEmpty: boolean; onChanged: () => void }) {
  const [typed, setTyped] = useState("");
  const [selector, setSelector] = useState("");
  const [typedText, setTypedText] = useState("");
  const [text, setText] = useState("");
  const [open, setOpen] = useState<string | undefined>();
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [doing, setDoing] = useState<Doing>();
  const pages = usePages<Message>(withQuery(pathOf("queues", queue, "messages"), { selector, text, body_bytes: PREVIEW_BYTES }), PAGE);
  const [field, textField] = [useId(), useId()];

  const pick = (id: string, isPicked: boolean) => {
    const next = new Set(picked);
    if (isPicked) next.add(id);
    else next.delete(id);
    setPicked(next);
  };
  const columns: Column<Message>[] = [
    {
      id: "pick",
      title: "",
      width: "36px",
      cell: ({ id }) =>
        id !== null && <input type="checkbox" aria-label={`Select message ${id}`} checked={picked.has(id)} onChange={(event) => pick(id, event.target.checked)} />,
    },
    {
      id: "id",
      title: "Message",
      width: "minmax(0, 1fr)",
      cell: (message) => (
        <>
          <button type="button" className="link mono name" aria-expanded={message.id !== null && message.id === open} onClick={() => message.id !== null && setOpen(message.id)}>
            {message.id === null ? "without id" : <Id id={message.id} />}
          </button>
          {message.failed_deliveries > 0 && <Badge tone="warning">{plural(message.failed_deliveries, "failed delivery", "failed deliveries")}</Badge>}
          {message.unreadable !== undefined && <Badge tone="bad">unreadable</Badge>}
        </>
      ),
    },
    { id: "body", title: "Body", width: "minmax(0, 1.2fr)", room: 2, cell: (message) => <span className="name faint">{preview(message.body)}</span> },
    { id: "sent", title: "Sent", width: "110px", room: 3, cell: ({ timestamp_ms: at }) => (at === null ? "–" : <time title={dateTime(at)}>{timeOfDay(at)}</time>) },
    { id: "priority", title: "Priority", width: "80px", isNumber: true, room: 3, cell: ({ priority }) => priority },
    { id: "bytes", title: "Size", width: "90px", isNumber: true, cell: ({ bytes: size }) => bytes(size) },
  ];
  const finish = () => {
    setDoing(undefined);
    setPicked(new Set());
    setOpen(undefined);
    pages.refresh();
    onChanged();
  };
  return (
    <>
      <form
        className="selector"
        onSubmit={(event) => {
          event.preventDefault();
          setSelector(typed.trim());
          setText(typedText.trim());
          setPicked(new Set());
        }}
      >
        <label htmlFor={field}>Selector</label>
        <input id={field} className="mono" value={typed} placeholder="colour = 'red' AND JMSPriority > 4" onChange={(event) => setTyped(event.target.value)} autoComplete="off" spellCheck={false} />
        <label htmlFor={textField}>Contains</label>
        <input id={textField} className="is-short" value={typedText} placeholder="any text" onChange={(event) => setTypedText(event.target.value)} autoComplete="off" spellCheck={false} />
        <button type="submit" className="button">
          Find
        </button>
        {selector + text !== "" && (
          <button
            type="button"
            className="button is-plain"
            onClick={() => {
              setTyped("");
              setSelector("");
              setTypedText("");
              setText("");
            }}
          >
            Clear
          </button>
        )}
        <span className="spacer" />
        {picked.size > 0 ? (
          <div className="picked" role="group" aria-label="Selected messages">
            <span>{count(picked.size)} selected</span>
            <button type="button" className="button" onClick={() => setDoing({ what: "move", ids: [...picked] })}>
              <MoveIcon /> Move
            </button>
            <button type="button" className="button is-quiet-danger" onClick={() => setDoing({ what: "remove", ids: [...picked] })}>
              <TrashIcon /> Remove
            </button>
          </div>
        ) : (
          <button type="button" className="button is-plain" onClick={() => pages.refresh()}>
            Refresh
          </button>
        )}
      </form>
      <div className={open === undefined ? "split" : "split is-open"}>
        <Table
          label="Messages"
          columns={columns}
          pages={pages}
          rowKey={(message) => message.id ?? `${message.timestamp_ms} ${message.bytes}`}
          refreshMs={1 << 30}
          onOpen={(message) => message.id !== null && setOpen(message.id)}
          isSelected={(message) => message.id !== null && message.id === open}
          empty={
            selector + text !== "" ? (
              <Empty title="No message matches">All messages that can be browsed were looked at.</Empty>
            ) : (
              <Empty title={isEmpty ? "The queue is empty" : "No message can be browsed"}>{isEmpty ? undefined : "All are with consumers or rest until their redelivery."}</Empty>
            )
          }
        />
        {open !== undefined && (
          <MessagePanel
            key={open}
            queue={queue}
            id={open}
            onClose={() => setOpen(undefined)}
            onEdited={finish}
            onMove={() => setDoing({ what: "move", ids: [open] })}
            onRemove={() => setDoing({ what: "remove", ids: [open] })}
          />
        )}
      </div>
      {doing?.what === "remove" && <Remove queue={queue} ids={doing.ids} onClose={finish} onCancel={() => setDoing(undefined)} />}
      {doing?.what === "move" && <Move queue={queue} ids={doing.ids} onClose={finish} onCancel={() => setDoing(undefined)} />}
    </>
  );
}

/** An id whose end stays in sight: the beginnings are often the same. */
function Id({ id }: { id: string }) {
  return (
    <span className="id" title={id}>
      <span>{id.slice(0, -8)}</span>
      <span>{id.slice(-8)}</span>
    </span>
  );
}

interface PanelProps {
  queue: string;
  id: string;
  onClose: () => void;
  onEdited: () => void;
  onMove: () => void;
  onRemove: () => void;
}

const NEVER_MS = 0x7fffffff;

/** The queue where a dead letter was. */
const queueOf = (origin: string | null) => (origin?.startsWith("queue://") ? origin.slice("queue://".length) : undefined);

function MessagePanel({ queue, id, onClose, onEdited, onMove, onRemove }: PanelProps) {
  const [isExplained, setIsExplained] = useState(false);
  const [isEdited, setIsEdited] = useState(false);
  const { data: message, error } = usePoll<Message>(pathOf("queues", queue, "messages", id), NEVER_MS);
  return (
    <aside className="panel card" aria-label={`Message ${id}`}>
      <header className="panel-head">
        <h2 className="mono">{id}</h2>
        <button type="button" className="button is-plain is-icon" aria-label="Close the message" onClick={onClose}>
          <CloseIcon />
        </button>
      </header>
      {error !== undefined && <p className="form-error">{error.status === 404 ? "The message is no longer ready in the queue: it was consumed, moved, or a consumer has it." : error.message}</p>}
      {message === undefined ? (
        error === undefined && <p className="note">Loading…</p>
      ) : (
        <>
          {isExplained && <Explain queue={queue} message={id} />}
          <div className="actions">
            <button type="button" className="button" aria-pressed={isExplained} onClick={() => setIsExplained(!isExplained)}>
              Explain
            </button>
            {isEditable(message) && (
              <button type="button" className="button" onClick={() => setIsEdited(true)}>
                Edit and resend
              </button>
            )}
            <button type="button" className="button" onClick={onMove}>
              <MoveIcon /> Move
            </button>
            <button type="button" className="button is-quiet-danger" onClick={onRemove}>
              <TrashIcon /> Remove
            </button>
          </div>
          {message.unreadable !== undefined && <p className="form-error">The message cannot be read: {message.unreadable}</p>}
          {message.dead_letter_cause !== null && (
            <p className="cause">
              <strong>Dead letter.</strong> {message.dead_letter_cause}
            </p>
          )}
          {isEdited && (
            <SendMessage
              to={queueOf(message.origin) ?? queue}
              draft={{ queue, message }}
              onClose={() => setIsEdited(false)}
              onSent={onEdited}
            />
          )}
          <BodyView body={message.body} bytes={message.bytes} />
          <h3>Properties</h3>
          <Properties properties={message.properties} />
          <h3>Headers</h3>
          <Facts facts={headers(message)} />
        </>
      )}
    </aside>
  );
}

function Properties({ properties }: { properties: { [name: string]: Json } }) {
  const all = Object.entries(properties);
  if (all.length === 0) return <p className="note">The message has no properties.</p>;
  return (
    <dl className="facts">
      {all.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{scalar(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

function headers(message: Message): [string, React.ReactNode][] {
  const all: [string, React.ReactNode][] = [
    ["Destination", message.destination],
    ["Delivery", message.persistent ? "persistent" : "not persistent"],
    ["Priority", message.priority],
    ["Sent", message.timestamp_ms === null ? null : dateTime(message.timestamp_ms)],
    ["Expires", message.expires_at_ms === null ? "never" : dateTime(message.expires_at_ms)],
    ["Size", bytes(message.bytes)],
    ["Type", message.type],
    ["Correlation id", message.correlation_id],
    ["Reply to", message.reply_to],
    ["Group", message.group_id],
    ["Failed deliveries", message.failed_deliveries === 0 ? null : count(message.failed_deliveries)],
  ];
  return all.filter(([, value]) => value !== null && value !== "");
}

interface DoProps {
  queue: string;
  ids: string[];
  onClose: () => void;
  onCancel: () => void;
}

/** Does the same with each of the messages, and says for how many it worked. */
async function each(ids: string[], act: (id: string) => Promise<unknown>): Promise<number> {
  let done = 0;
  for (const id of ids) {
    try {
      await act(id);
      done += 1;
    } catch (error) {
      if (ids.length === 1 || done === 0) throw error;
      const why = error instanceof ApiError ? error.message : String(error);
      throw new ApiError(409, `${plural(done, "message")} done, then: ${why}`);
    }
  }
  return done;
}

function Remove({ queue, ids, onClose, onCancel }: DoProps) {
  const many = plural(ids.length, "message");
  let isDone = false;
  return (
    <Action
      title={`Remove ${many}`}
      effect={
        <p>
          Removes <strong>{many}</strong> from <code>{queue}</code> for good. They count as consumed.
        </p>
      }
      verb={`Remove ${many}`}
      isDangerous
      onClose={() => (isDone ? onClose() : onCancel())}
      act={async () => {
        const done = await each(ids, (id) => del(pathOf("queues", queue, "messages", id)));
        isDone = true;
        return `Removed ${plural(done, "message")} from ${queue}`;
      }}
    />
  );
}

function Move({ queue, ids, onClose, onCancel }: DoProps) {
  const [to, setTo] = useState("");
  const field = useId();
  const many = plural(ids.length, "message");
  const target = to.trim();
  let isDone = false;
  return (
    <Action
      title={`Move ${many}`}
      effect={
        <p>
          Takes <strong>{many}</strong> out of <code>{queue}</code> and puts {ids.length === 1 ? "it" : "each"} at the end of another queue, or on a topic. Each is moved in one transaction.
        </p>
      }
      verb={`Move ${compact(ids.length)}`}
      isReady={target !== ""}
      onClose={() => (isDone ? onClose() : onCancel())}
      act={async () => {
        const done = await each(ids, (id) => post(pathOf("queues", queue, "messages", id, "move"), { to: target }));
        isDone = true;
        return `Moved ${plural(done, "message")} to ${target}`;
      }}
    >
      <div className="field">
        <label htmlFor={field}>Where to</label>
        <input id={field} value={to} placeholder="a queue, or topic://NAME" onChange={(event) => setTo(event.target.value)} autoComplete="off" spellCheck={false} autoFocus />
      </div>
    </Action>
  );
}
