// Tenants with their quotas and usage; added, changed and deleted.

import { useId, useState } from "react";
import { del, pathOf, post, put, withQuery } from "../api";
import { bytes, compact, count, plural } from "../format";
import { usePages, useSettled } from "../live";
import { Action, Dialog } from "../ui/dialog";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Facts, Search } from "./parts";
import { Figure } from "./queues";

interface Tenant {
  name: string;
  destinations: string[];
  /** It is in the configuration file, which alone changes it. */
  is_configured: boolean;
  quotas: { [name: string]: number | null };
  usage: { [name: string]: number };
  users: number;
}

interface Made extends Tenant {
  administrator: string | null;
  password: string | null;
}

const QUOTAS: { name: string; title: string; used?: string; isBytes?: boolean; unset?: string }[] = [
  { name: "connections_max", title: "Connections", used: "connections" },
  { name: "queues_max", title: "Queues", used: "queues" },
  { name: "messages_max", title: "Messages", used: "messages" },
  { name: "bytes_max", title: "Bytes", used: "bytes", isBytes: true },
  { name: "disk_bytes_max", title: "Disk bytes", used: "disk_bytes", isBytes: true },
  { name: "messages_per_second_max", title: "Messages per second" },
  { name: "share", title: "Share (weight)", unset: "1" },
];

/** Usage as a part of its quota, where there is one. */
function Used({ tenant, quota: { name, title, used = "", isBytes } }: { tenant: Tenant; quota: (typeof QUOTAS)[number] }) {
  const text = (value: number) => (isBytes ? bytes(value) : compact(value));
  const [value, max] = [tenant.usage[used] ?? 0, tenant.quotas[name] ?? 0];
  if (max === 0) return value === 0 ? <span className="zero">0</span> : <>{text(value)}</>;
  const share = Math.min(1, value / max);
  return (
    <div className="used" title={`${title}: ${count(value)} of ${count(max)}`}>
      <span>
        {text(value)} <span className="faint">of {text(max)}</span>
      </span>
      <div className={`meter${share >= 1 ? " is-bad" : share >= 0.8 ? " is-warning" : ""}`} aria-hidden="true">
        <div style={{ width: `${share * 100}%` }} />
      </div>
    </div>
  );
}

/** A quota of which no usage is known. */
function unused({ unset }: (typeof QUOTAS)[number], value: number | null | undefined) {
  if (unset !== undefined) return value == null ? unset : count(value);
  return value == null ? "no limit" : `at most ${count(value)}`;
}

const used = (name: string, width: string, room?: 2 | 3): Column<Tenant> => {
  const quota = QUOTAS.find((quota) => quota.name === name) ?? { name, title: name };
  return { id: name, title: quota.title, width, isNumber: true, ...(room === undefined ? {} : { room }), cell: (tenant) => <Used tenant={tenant} quota={quota} /> };
};

const COLUMNS: Column<Tenant>[] = [
  { id: "name", title: "Tenant", width: "minmax(0, 0.8fr)", cell: ({ name }) => <span className="name">{name}</span> },
  { id: "origin", title: "Made in", width: "130px", room: 3, cell: ({ is_configured }) => <Badge {...(is_configured ? {} : { tone: "info" as const })}>{is_configured ? "configuration" : "run time"}</Badge> },
  { id: "destinations", title: "Destinations", width: "minmax(0, 1fr)", room: 3, cell: ({ destinations }) => <span className="name faint" title={destinations.join("\n")}>{destinations.join(", ")}</span> },
  used("queues_max", "112px"),
  used("messages_max", "124px"),
  used("bytes_max", "150px", 2),
  used("connections_max", "112px", 2),
  { id: "users", title: "Users", width: "72px", isNumber: true, room: 2, cell: ({ users }) => <Figure value={users} /> },
];

export function TenantsPage() {
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const pages = usePages<Tenant>(withQuery(pathOf("tenants"), { filter: settled }), 100);
  const [shown, setShown] = useState<Tenant | undefined>();
  const [isAdding, setIsAdding] = useState(false);
  const [made, setMade] = useState<Made | undefined>();
  const [changed, setChanged] = useState<Tenant | undefined>();
  const [deleted, setDeleted] = useState<Tenant | undefined>();
  const columns = COLUMNS.map((column) =>
    column.id !== "name"
      ? column
      : {
          ...column,
          cell: (tenant: Tenant) => (
            <button type="button" className="link name" onClick={() => setShown(tenant)}>
              {tenant.name}
            </button>
          ),
        },
  );
  return (
    <>
      <header className="page-head">
        <h1>
          Tenants <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Each owns its destinations and users, and has quotas. The administrators of a tenant serve themselves.</p>
        <div className="actions">
          <button type="button" className="button is-primary" onClick={() => setIsAdding(true)}>
            Add a tenant…
          </button>
        </div>
      </header>
      <div className="filter-line">
        <Search label="Filter by name" value={filter} onChange={setFilter} />
      </div>
      <Table label="Tenants" columns={columns} pages={pages} rowKey={({ name }) => name} onOpen={setShown} empty={<Empty title={settled === "" ? "There is no tenant" : `No tenant has “${settled}” in its name`} />} />
      {shown !== undefined && (
        <TenantDialog
          tenant={shown}
          onClose={() => setShown(undefined)}
          onChange={() => {
            setChanged(shown);
            setShown(undefined);
          }}
          onDelete={() => {
            setDeleted(shown);
            setShown(undefined);
          }}
        />
      )}
      {isAdding && <QuotaForm onClose={() => setIsAdding(false)} onDone={pages.refresh} onMade={setMade} />}
      {changed !== undefined && <QuotaForm tenant={changed} onClose={() => setChanged(undefined)} onDone={pages.refresh} />}
      {deleted !== undefined && (
        <Action
          title="Delete a tenant"
          effect={
            <>
              Deletes the tenant <strong>{deleted.name}</strong> with {plural(deleted.users, "user")}. It must have no queues: it has {count(deleted.usage["queues"] ?? 0)} now.
            </>
          }
          verb="Delete the tenant"
          isDangerous
          confirm={deleted.name}
          onClose={() => setDeleted(undefined)}
          act={async () => {
            await del(pathOf("tenants", deleted.name));
            pages.refresh();
            return `Deleted the tenant ${deleted.name}`;
          }}
        />
      )}
      {made !== undefined && <MadeDialog made={made} onClose={() => setMade(undefined)} />}
    </>
  );
}

function TenantDialog({ tenant, onClose, onChange, onDelete }: { tenant: Tenant; onClose: () => void; onChange: () => void; onDelete: () => void }) {
  return (
    <Dialog title={tenant.name} onClose={onClose}>
      <Facts
        facts={[
          ["Destinations", tenant.destinations.join(", ")],
          ...QUOTAS.map((quota): [string, React.ReactNode] => [
            quota.title,
            quota.used === undefined ? unused(quota, tenant.quotas[quota.name]) : <Used tenant={tenant} quota={quota} />,
          ]),
          ["Users", count(tenant.users)],
        ]}
      />
      {tenant.is_configured && <p className="note">The configuration file has this tenant: change it there.</p>}
      <footer className="dialog-foot">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
        {!tenant.is_configured && (
          <>
            <button type="button" className="button is-quiet-danger" onClick={onDelete}>
              Delete…
            </button>
            <button type="button" className="button is-primary" onClick={onChange}>
              Change quotas…
            </button>
          </>
        )}
      </footer>
    </Dialog>
  );
}

/** A new tenant, or other quotas of one. */
function QuotaForm({ tenant, onClose, onDone, onMade }: { tenant?: Tenant; onClose: () => void; onDone: () => void; onMade?: (made: Made) => void }) {
  const id = useId();
  const [name, setName] = useState("");
  const [values, setValues] = useState(() => Object.fromEntries(QUOTAS.map((quota) => [quota.name, String(tenant?.quotas[quota.name] ?? "")])));
  const isSound = Object.values(values).every((value) => /^\d*$/.test(value.trim()));
  const numbers = () => Object.fromEntries(Object.entries(values).map(([quota, value]) => [quota, value.trim() === "" ? null : Number(value)]));
  const act = async () => {
    if (tenant !== undefined) {
      await put(pathOf("tenants", tenant.name), numbers());
      onDone();
      return `Changed the quotas of ${tenant.name}`;
    }
    const quotas = Object.entries(numbers()).filter(([, value]) => value !== null);
    const made = await post<Made>(pathOf("tenants"), { name: name.trim(), ...Object.fromEntries(quotas) });
    onDone();
    onMade?.(made);
    return `Added the tenant ${made.name}`;
  };
  return (
    <Action
      title={tenant === undefined ? "Add a tenant" : `Quotas of ${tenant.name}`}
      effect={tenant === undefined ? "It gets the destinations that begin with its name, and an administrator of its own." : "The quotas are in force at once. What is there already stays."}
      verb={tenant === undefined ? "Add 1 tenant" : "Change the quotas"}
      isReady={isSound && (tenant !== undefined || name.trim() !== "")}
      onClose={onClose}
      act={act}
    >
      {tenant === undefined && (
        <div className="field">
          <label htmlFor={`${id}-name`}>Name</label>
          <input id={`${id}-name`} value={name} onChange={(event) => setName(event.target.value)} autoComplete="off" spellCheck={false} />
        </div>
      )}
      <div className="fields quotas">
        {QUOTAS.map((quota) => (
          <div key={quota.name} className="field">
            <label htmlFor={`${id}-${quota.name}`}>{quota.title}</label>
            <input
              id={`${id}-${quota.name}`}
              inputMode="numeric"
              placeholder={quota.unset ?? "no limit"}
              value={values[quota.name] ?? ""}
              aria-invalid={!/^\d*$/.test((values[quota.name] ?? "").trim())}
              onChange={(event) => setValues({ ...values, [quota.name]: event.target.value })}
              autoComplete="off"
            />
          </div>
        ))}
      </div>
    </Action>
  );
}

function MadeDialog({ made, onClose }: { made: Made; onClose: () => void }) {
  return (
    <Dialog title={`The tenant ${made.name} is there`} onClose={onClose}>
      {made.administrator === null ? (
        <p className="note">Clients log in without users here, so it has no administrator.</p>
      ) : (
        <>
          <p className="note">The password is shown this once.</p>
          <Facts
            facts={[
              ["Administrator", <code key="administrator">{made.administrator}</code>],
              ["Password", <code key="password">{made.password}</code>],
            ]}
          />
        </>
      )}
      <p className="note">
        <code>postroad ctl tenant show {made.name}</code> prints connection strings and sample code.
      </p>
      <footer className="dialog-foot">
        <button type="button" className="button is-primary" onClick={onClose}>
          Close
        </button>
      </footer>
    </Dialog>
  );
}
