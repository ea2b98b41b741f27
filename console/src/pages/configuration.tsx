// The configuration: settings in force, the plan of a change, its application, and the versions so far.

import { useEffect, useId, useState } from "react";
import { ApiError, get, pathOf, post, withQuery } from "../api";
import { count, dateTime, plural } from "../format";
import { usePages, usePoll, useSettled } from "../live";
import { Link, to } from "../router";
import { Action } from "../ui/dialog";
import { Badge, Empty, Failure } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Search } from "./parts";
import { Figure } from "./queues";

interface Setting {
  key: string;
  value: string;
  origin: "default" | "file" | "command-line";
  needs_restart: boolean;
}

interface Change {
  key: string;
  from: string | null;
  to: string | null;
  needs_restart: boolean;
}

interface Plan {
  file: string | null;
  version: number;
  changes: Change[];
}

interface Version {
  version: number;
  at_ms: number;
  cause: string;
  changes: number;
  author: { user: string | null; peer: string } | null;
}

const When = ({ restart }: { restart: boolean }) => <Badge tone={restart ? "warning" : "good"}>{restart ? "next start" : "at once"}</Badge>;

const SETTINGS: Column<Setting>[] = [
  { id: "key", title: "Key", width: "minmax(0, 1.4fr)", cell: ({ key }) => <span className="name mono">{key}</span> },
  { id: "value", title: "Value", width: "minmax(0, 1fr)", cell: ({ value }) => <span className="name mono">{value}</span> },
  { id: "origin", title: "From", width: "130px", room: 2, cell: ({ origin }) => <Badge {...(origin === "default" ? {} : { tone: "info" as const })}>{origin}</Badge> },
  { id: "when", title: "A change is followed", width: "170px", room: 2, cell: ({ needs_restart }) => <When restart={needs_restart} /> },
];

const VERSIONS: Column<Version>[] = [
  { id: "version", title: "Version", width: "90px", isNumber: true, cell: ({ version }) => <Figure value={version} /> },
  { id: "at", title: "In force since", width: "190px", cell: ({ at_ms }) => dateTime(at_ms) },
  { id: "cause", title: "Cause", width: "110px", cell: ({ cause }) => cause },
  { id: "changes", title: "Changes", width: "90px", isNumber: true, room: 2, cell: ({ changes }) => <Figure value={changes} /> },
  { id: "author", title: "By", width: "minmax(0, 1fr)", room: 2, cell: ({ author }) => <span className="name">{author === null ? "–" : (author.user ?? author.peer)}</span> },
];

const TABS: [string, string][] = [
  ["settings", "Settings"],
  ["change", "Change"],
  ["versions", "Versions"],
];

export function ConfigurationPage({ tab = "settings" }: { tab?: string | undefined }) {
  const pending = usePoll<Plan>(pathOf("configuration", "diff"), 5_000);
  return (
    <>
      <header className="page-head">
        <h1>Configuration</h1>
        <p className="page-note">
          {pending.error !== undefined
            ? pending.error.message
            : pending.data === undefined
              ? ""
              : `${pending.data.file ?? "No file"}; version ${pending.data.version}. ${pending.data.changes.length === 0 ? "The file is in force." : `${plural(pending.data.changes.length, "change")} of the file not in force.`}`}
        </p>
      </header>
      <nav className="tabs" aria-label="Parts of the configuration">
        {TABS.map(([id, title]) => (
          <Link key={id} href={to("configuration", id)} aria-current={id === tab ? "page" : undefined}>
            {title}
          </Link>
        ))}
      </nav>
      {tab === "settings" && <Settings />}
      {tab === "change" && <ChangeForm isWithoutFile={pending.data?.file === null} />}
      {tab === "versions" && <Versions />}
    </>
  );
}

function Settings() {
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const pages = usePages<Setting>(withQuery(pathOf("configuration"), { filter: settled }), 200);
  return (
    <>
      <div className="filter-line">
        <Search label="Filter by key" value={filter} onChange={setFilter} />
      </div>
      <Table label="Settings" columns={SETTINGS} pages={pages} rowKey={({ key }) => key} empty={<Empty title="No key has this in it" />} />
    </>
  );
}

function Versions() {
  const pages = usePages<Version>(pathOf("configuration", "history"), 100);
  const [chosen, setChosen] = useState<number | undefined>();
  const [again, setAgain] = useState<number | undefined>();
  const text = usePoll<{ text: string }>(chosen === undefined ? null : pathOf("configuration", "history", String(chosen)), 60_000);
  return (
    <>
      <Table label="Versions" columns={VERSIONS} pages={pages} rowKey={({ version }) => String(version)} onOpen={({ version }) => setChosen(version)} isSelected={({ version }) => version === chosen} empty={<Empty title="No version is kept" />} />
      {chosen !== undefined && text.data !== undefined && (
        <section className="card panel" aria-label={`Version ${chosen}`}>
          <header className="panel-head">
            <h2>Version {chosen}</h2>
            <button type="button" className="button is-small" onClick={() => setAgain(chosen)}>
              Apply again…
            </button>
          </header>
          <div className="body-text" tabIndex={0} role="region" aria-label="Text">
            <pre>{text.data.text === "" ? "(no file: the defaults)" : text.data.text}</pre>
          </div>
        </section>
      )}
      {again !== undefined && <Apply source={{ version: again }} onClose={() => setAgain(undefined)} onDone={() => pages.refresh()} />}
    </>
  );
}

function ChangeForm({ isWithoutFile }: { isWithoutFile: boolean }) {
  const field = useId();
  const [text, setText] = useState<string | undefined>();
  const [plan, setPlan] = useState<Plan | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [isApplying, setIsApplying] = useState(false);
  useEffect(() => {
    const newest = async () => {
      const { items } = await get<{ items: Version[] }>(withQuery(pathOf("configuration", "history"), { limit: 1 }));
      const first = items[0];
      setText(first === undefined ? "" : (await get<{ text: string }>(pathOf("configuration", "history", String(first.version)))).text);
    };
    newest().catch((failed: unknown) => setError(failed instanceof ApiError ? failed : new ApiError(0, String(failed))));
  }, []);
  const check = async () => {
    setPlan(undefined);
    setError(undefined);
    try {
      setPlan(await post<Plan>(pathOf("configuration", "plan"), { text }));
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError(0, String(failed)));
    }
  };
  return (
    <section className="card panel" aria-label="Change of the configuration">
      <div className="field">
        <label htmlFor={field}>Configuration file (TOML)</label>
        <textarea id={field} className="mono configuration-text" rows={18} spellCheck={false} value={text ?? ""} onChange={(event) => (setText(event.target.value), setPlan(undefined))} />
      </div>
      <div className="actions">
        <button type="button" className="button" onClick={() => void check()} disabled={text === undefined}>
          Plan
        </button>
        <button type="button" className="button is-primary" onClick={() => setIsApplying(true)} disabled={plan === undefined || plan.changes.length === 0 || isWithoutFile}>
          Apply…
        </button>
        {isWithoutFile && <span className="faint">The broker was started without a configuration file.</span>}
      </div>
      {error !== undefined && <Failure error={error} />}
      {plan !== undefined && <Changes plan={plan} />}
      {isApplying && text !== undefined && <Apply source={{ text }} onClose={() => setIsApplying(false)} onDone={() => setPlan(undefined)} />}
    </section>
  );
}

function Changes({ plan }: { plan: Plan }) {
  if (plan.changes.length === 0) return <p className="empty-title">Nothing would change.</p>;
  return (
    <table className="pairs" aria-label="Changes">
      <thead>
        <tr>
          <th scope="col">Key</th>
          <th scope="col">From</th>
          <th scope="col">To</th>
          <th scope="col">Followed</th>
        </tr>
      </thead>
      <tbody>
        {plan.changes.map(({ key, from, to: next, needs_restart }) => (
          <tr key={key}>
            <td className="mono">{key}</td>
            <td className="mono">{from ?? "–"}</td>
            <td className="mono">{next ?? "–"}</td>
            <td>
              <When restart={needs_restart} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Apply({ source, onClose, onDone }: { source: { text: string } | { version: number }; onClose: () => void; onDone: () => void }) {
  const [plan, setPlan] = useState<Plan | undefined>();
  const [error, setError] = useState<string | undefined>();
  useEffect(() => {
    post<Plan>(pathOf("configuration", "plan"), source).then(setPlan, (failed: unknown) => setError(failed instanceof Error ? failed.message : String(failed)));
  }, [JSON.stringify(source)]);
  const later = plan?.changes.filter(({ needs_restart }) => needs_restart).length ?? 0;
  const effect = error ?? (plan === undefined ? "Planning…" : `${plan.file ?? "The file"} is replaced. ${plural(plan.changes.length - later, "change")} in force at once, ${count(later)} at the next start.`);
  const act = async () => {
    const done = await post<Plan>(pathOf("configuration", "apply"), source);
    onDone();
    return `Version ${done.version} is in force`;
  };
  return <Action title="Apply the configuration" effect={effect} verb="Apply" isReady={plan !== undefined} isDangerous onClose={onClose} act={act} />;
}
