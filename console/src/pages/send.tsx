// A form for one message.

import { useId, useState } from "react";
import { del, type Message, pathOf, post } from "../api";
import { Action } from "../ui/dialog";

/** A message whose text can be edited, and the queue that it lies in. */
export interface Draft {
  queue: string;
  message: Message;
}

/** Whether the form can hold all of it. */
export const isEditable = ({ body, properties, unreadable }: Message) => unreadable === undefined && Object.values(properties).every((value) => !String(value).includes("\n")) && (body === null || body.kind === "none" || (body.kind === "text" && !body.is_cut));

export function SendMessage({ to, draft, onClose, onSent }: { to: string; draft?: Draft; onClose: () => void; onSent?: () => void }) {
  const edited = draft?.message;
  const [body, setBody] = useState(typeof edited?.body?.value === "string" ? edited.body.value : "");
  const [properties, setProperties] = useState(writeProperties(edited?.properties ?? {}));
  const [priority, setPriority] = useState(String(edited?.priority ?? 4));
  const [expiry, setExpiry] = useState("");
  const [correlation, setCorrelation] = useState(edited?.correlation_id ?? "");
  const [group, setGroup] = useState(edited?.group_id ?? "");
  const [isPersistent, setIsPersistent] = useState(edited?.persistent ?? true);
  const [removes, setRemoves] = useState(true);
  const ids = useId();
  const id = (name: string) => `${ids}-${name}`;
  return (
    <Action
      title={`Send to ${to}`}
      effect={
        <p>
          Sends <strong>1 text message</strong>. It is confirmed once it is durable.
          {draft !== undefined && removes && <> Then the original is removed from {draft.queue}.</>}
        </p>
      }
      verb="Send 1 message"
      isWide
      onClose={onClose}
      act={async () => {
        const sent = await post<{ id: string }>(pathOf("queues", to, "messages"), {
          body,
          properties: readProperties(properties),
          persistent: isPersistent,
          priority: Number(priority),
          ...(expiry === "" ? {} : { ttl_ms: Math.round(Number(expiry) * 1000) }),
          ...(correlation === "" ? {} : { correlation_id: correlation }),
          ...(group === "" ? {} : { group_id: group }),
          ...(edited?.reply_to ? { reply_to: edited.reply_to } : {}),
          ...(edited?.type ? { type: edited.type } : {}),
        });
        // The new one is durable: at worst the message is there twice.
        if (draft !== undefined && removes && draft.message.id !== null) await del(pathOf("queues", draft.queue, "messages", draft.message.id));
        onSent?.();
        return `Sent ${sent.id}`;
      }}
    >
      <div className="field">
        <label htmlFor={id("body")}>Body</label>
        <textarea id={id("body")} className="mono" rows={8} value={body} onChange={(event) => setBody(event.target.value)} spellCheck={false} autoFocus />
      </div>
      <div className="field">
        <label htmlFor={id("properties")}>Properties, one to a line</label>
        <textarea id={id("properties")} className="mono" rows={3} value={properties} placeholder={"colour = red\nattempt = 3"} onChange={(event) => setProperties(event.target.value)} spellCheck={false} />
      </div>
      <div className="fields">
        <div className="field">
          <label htmlFor={id("priority")}>Priority</label>
          <select id={id("priority")} value={priority} onChange={(event) => setPriority(event.target.value)}>
            {Array.from({ length: 10 }, (_, value) => (
              <option key={value}>{value}</option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor={id("expiry")}>Expires after, seconds</label>
          <input id={id("expiry")} type="number" min="0" step="any" value={expiry} placeholder="never" onChange={(event) => setExpiry(event.target.value)} />
        </div>
        <div className="field">
          <label htmlFor={id("correlation")}>Correlation id</label>
          <input id={id("correlation")} value={correlation} onChange={(event) => setCorrelation(event.target.value)} autoComplete="off" />
        </div>
        <div className="field">
          <label htmlFor={id("group")}>Group</label>
          <input id={id("group")} value={group} onChange={(event) => setGroup(event.target.value)} autoComplete="off" />
        </div>
      </div>
      <label className="check">
        <input type="checkbox" checked={isPersistent} onChange={(event) => setIsPersistent(event.target.checked)} /> Persistent: survives a restart of the broker
      </label>
      {draft !== undefined && (
        <label className="check">
          <input type="checkbox" checked={removes} onChange={(event) => setRemoves(event.target.checked)} /> Remove the original
        </label>
      )}
    </Action>
  );
}

const FIGURE = /^-?\d+(\.\d+)?$/;
const QUOTED = /^".*"$/;

/** As {@link readProperties} reads it: text that looks like another value is quoted. */
function writeProperties(properties: Message["properties"]): string {
  const written = (value: Message["properties"][string]) => {
    const looksOtherwise = typeof value === "string" && (FIGURE.test(value) || QUOTED.test(value) || value === "true" || value === "false" || value !== value.trim());
    return looksOtherwise ? `"${value}"` : String(value);
  };
  return Object.entries(properties)
    .map(([name, value]) => `${name} = ${written(value)}`)
    .join("\n");
}

/** `name = value`, line by line; figures and true and false are those, all else is text, quoted or not. */
export function readProperties(text: string): { [name: string]: string | number | boolean } {
  const properties: { [name: string]: string | number | boolean } = {};
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const [name = "", ...rest] = line.split("=");
    if (rest.length === 0 || name.trim() === "") throw new Error(`“${line.trim()}” is not name = value`);
    const value = rest.join("=").trim();
    if (value === "true" || value === "false") properties[name.trim()] = value === "true";
    else if (QUOTED.test(value)) properties[name.trim()] = value.slice(1, -1);
    else if (FIGURE.test(value) && Number.isSafeInteger(Math.trunc(Number(value)))) properties[name.trim()] = Number(value);
    else properties[name.trim()] = value;
  }
  return properties;
}
