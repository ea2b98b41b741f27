// The body of a message, as a reader wants to see it. Everything is text in the document: nothing of it is ever run.

import { type ReactNode, useMemo, useState } from "react";
import type { Body, Json } from "../api";
import { bytes as bytesText, count } from "../format";
import { say } from "./toast";

type View = "formatted" | "raw";

export function BodyView({ body, bytes }: { body: Body | null; bytes: number }) {
  const [view, setView] = useState<View>("formatted");
  const read = useMemo(() => (body === null ? undefined : decode(body)), [body]);
  if (body === null || read === undefined) return <p className="note">A body of {bytesText(bytes)} that is stored in pieces is not shown.</p>;
  if (read.kind === "empty") return <p className="note">The message has no body.</p>;
  return (
    <section className="body">
      <header className="body-head">
        <span className="badge">{read.label}</span>
        {body.is_cut && <span className="badge is-warning">only the beginning is shown</span>}
        <span className="spacer" />
        {read.formatted !== undefined && (
          <div className="segments" role="group" aria-label="View of the body">
            {(["formatted", "raw"] as const).map((each) => (
              <button key={each} type="button" aria-pressed={view === each} onClick={() => setView(each)}>
                {each === "formatted" ? "Formatted" : "Raw"}
              </button>
            ))}
          </div>
        )}
        <button
          type="button"
          className="button is-small"
          onClick={() => void navigator.clipboard?.writeText(read.raw).then(() => say("The body is in the clipboard"))}
        >
          Copy
        </button>
      </header>
      <div className="body-text" tabIndex={0} role="region" aria-label="Body of the message">
        {view === "formatted" && read.formatted !== undefined ? read.formatted : <pre>{read.raw}</pre>}
      </div>
    </section>
  );
}

interface Read {
  kind: "empty" | "text";
  label: string;
  raw: string;
  formatted?: ReactNode;
}

export function decode({ kind, value }: Body): Read {
  if (kind === "none" || value === null) return { kind: "empty", label: kind, raw: "" };
  if (kind === "bytes" || kind === "object") return decodeBytes(kind, String(value));
  if (kind === "text") return decodeText(String(value));
  const raw = JSON.stringify(value, null, 2);
  return { kind: "text", label: kind, raw, formatted: kind === "map" ? <MapTable map={value as { [name: string]: Json }} /> : <JsonText value={value} /> };
}

function decodeText(text: string): Read {
  const start = text.trimStart();
  if (start.startsWith("{") || start.startsWith("[")) {
    try {
      return { kind: "text", label: "text · JSON", raw: text, formatted: <JsonText value={JSON.parse(text) as Json} /> };
    } catch {
      // Not JSON after all, or cut off.
    }
  }
  if (/^<[?!a-zA-Z]/.test(start)) return { kind: "text", label: "text · XML", raw: text, formatted: <XmlText text={text} /> };
  return { kind: "text", label: "text", raw: text };
}

function decodeBytes(kind: "bytes" | "object", encoded: string): Read {
  const binary = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
  const dump = hexDump(binary);
  const label = `${kind === "object" ? "serialised Java object" : "bytes"} · ${count(binary.length)} shown`;
  if (kind === "bytes") {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(binary);
      // Control characters say that it is no text.
      if (!/[\u0000-\u0008\u000e-\u001f]/.test(text)) {
        const read = decodeText(text);
        return { kind: "text", label: `bytes · ${read.label.replace("text · ", "")}`, raw: dump, formatted: read.formatted ?? <pre>{text}</pre> };
      }
    } catch {
      // Not UTF-8.
    }
  }
  return { kind: "text", label, raw: dump };
}

const DUMP_BYTES_MAX = 64 << 10;

function hexDump(binary: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(binary.length, DUMP_BYTES_MAX); at += 16) {
    const row = [...binary.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    const left = hex.slice(0, 8).join(" ").padEnd(23);
    const right = hex.slice(8).join(" ").padEnd(23);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left}  ${right}  ${text}`);
  }
  if (binary.length > DUMP_BYTES_MAX) lines.push(`… ${count(binary.length - DUMP_BYTES_MAX)} more bytes`);
  return lines.join("\n");
}

function MapTable({ map }: { map: { [name: string]: Json } }) {
  return (
    <table className="pairs">
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Value</th>
        </tr>
      </thead>
      <tbody>
        {Object.entries(map).map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{scalar(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function scalar(value: Json): ReactNode {
  if (typeof value === "string") return value === "" ? <i className="faint">empty</i> : value;
  return <code>{JSON.stringify(value)}</code>;
}

function JsonText({ value }: { value: Json }) {
  const text = JSON.stringify(value, null, 2);
  const parts = text.split(/("(?:[^"\\]|\\.)*"(?=:)|"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/);
  return (
    <pre>
      {parts.map((part, index) => {
        if (index % 2 === 0) return part;
        const isName = part.startsWith('"') && (parts[index + 1] ?? "").startsWith(":");
        const kind = isName ? "name" : part.startsWith('"') ? "string" : /^[tfn]/.test(part) ? "word" : "figure";
        return (
          <span key={index} className={`code-${kind}`}>
            {part}
          </span>
        );
      })}
    </pre>
  );
}

/** Indents XML by its tags, and colours them. Text that is no XML comes out as it is. */
function XmlText({ text }: { text: string }) {
  const tokens = text.match(/<[^>]*>|[^<]+/g) ?? [];
  const lines: { depth: number; tokens: string[] }[] = [];
  let depth = 0;
  for (const token of tokens) {
    const before = lines.at(-1);
    if (!token.startsWith("<")) {
      const trimmed = token.trim();
      if (trimmed === "") continue;
      if (before !== undefined && (before.tokens[0] ?? "").startsWith("<")) before.tokens.push(trimmed);
      else lines.push({ depth, tokens: [trimmed] });
    } else if (token.startsWith("</")) {
      depth = Math.max(0, depth - 1);
      const opened = before?.tokens[0] ?? "";
      const isOnOneLine = before !== undefined && before.depth === depth && before.tokens.length <= 2 && opened.startsWith(`<${token.slice(2, -1).trim()}`) && !opened.endsWith("/>");
      if (isOnOneLine) before.tokens.push(token);
      else lines.push({ depth, tokens: [token] });
    } else {
      lines.push({ depth, tokens: [token] });
      if (!/^<[?!]|\/>$/.test(token)) depth += 1;
    }
  }
  return (
    <pre>
      {lines.map(({ depth, tokens }, index) => (
        <span key={index}>
          {"  ".repeat(depth)}
          {tokens.map((token, place) => (
            <span key={place} className={token.startsWith("<") ? "code-name" : "code-string"}>
              {token}
            </span>
          ))}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

/** The beginning of a body on one line, for lists. */
export function preview(body: Body | null): string {
  if (body === null) return "";
  if (body.kind === "text") return String(body.value ?? "").slice(0, 200);
  if (body.kind === "bytes" || body.kind === "object") {
    const read = decode(body);
    return read.formatted === undefined ? read.raw.slice(8, 56) : atob(String(body.value)).slice(0, 200);
  }
  return body.value === null ? "" : JSON.stringify(body.value).slice(0, 200);
}
