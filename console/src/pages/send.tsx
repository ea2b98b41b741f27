// A form for one message.

import { useId, useState } from "react";
import { pathOf, post } from "../api";
import { Action } from "../ui/dialog";

export function SendMessage({ to, onClose }: { to: string; onClose: () => void }) {
  const [body, setBody] = useState("");
  const [properties, setProperties] = useState("");
  const [priority, setPriority] = useState("4");
  const [expiry, setExpiry] = useState("");
  const [correlation, setCorrelation] = useState("");
  const [group, setGroup] = useState("");
  const [isPersistent, setIsPersistent] = useState(true);
  const ids = useId();
  const id = (name: string) => `${ids}-${name}`;
  return (
    <Action
      title={`Send to ${to}`}
      effect={
        <p>
          Sends <strong>1 text message</strong>. It is confirmed once it is durable.
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
        });
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
    </Action>
  );
}

/** `name = value`, line by line; figures and true and false are those, all else is text. */
export function readProperties(text: string): { [name: string]: string | number | boolean } {
  const properties: { [name: string]: string | number | boolean } = {};
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const [name = "", ...rest] = line.split("=");
    if (rest.length === 0 || name.trim() === "") throw new Error(`“${line.trim()}” is not name = value`);
    const value = rest.join("=").trim();
    if (value === "true" || value === "false") properties[name.trim()] = value === "true";
    else if (/^-?\d+(\.\d+)?$/.test(value) && Number.isSafeInteger(Math.trunc(Number(value)))) properties[name.trim()] = Number(value);
    else properties[name.trim()] = value;
  }
  return properties;
}
