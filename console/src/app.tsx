// The frame of the console: navigation, alarms, theme, and the page that the address names.

import { type ComponentType, useEffect, useState } from "react";
import { ApiError, del, get, pathOf } from "./api";
import { duration } from "./format";
import { useLive } from "./live";
import { AlertsPage } from "./pages/alerts";
import { AuditPage } from "./pages/audit";
import { BridgesPage } from "./pages/bridges";
import { ConfigurationPage } from "./pages/configuration";
import { ConnectionsPage } from "./pages/connections";
import { ConsumersPage } from "./pages/consumers";
import { DeadLettersPage } from "./pages/dead-letters";
import { LedgerPage } from "./pages/ledger";
import { OverviewPage } from "./pages/overview";
import { PlannerPage } from "./pages/planner";
import { QueuePage } from "./pages/queue";
import { QueuesPage } from "./pages/queues";
import { RoutesPage } from "./pages/routes";
import { SchedulesPage } from "./pages/schedules";
import { SignInPage } from "./pages/sign-in";
import { TenantsPage } from "./pages/tenants";
import { TopologyPage } from "./pages/topology";
import { TransactionsPage } from "./pages/transactions";
import { go, Link, to, useRoute } from "./router";
import { type Caller, showStore, shownStore, signedIn, signedOut, useSession } from "./session";
import { chooseTheme, chosenTheme, type Theme } from "./theme";
import { AlarmIcon, AuditIcon, AutoIcon, BridgeIcon, CheckIcon, ClockIcon, ConnectionIcon, ConsumerIcon, DeadIcon, MoonIcon, MoreIcon, MoveIcon, OverviewIcon, QueueIcon, ScheduleIcon, SettingsIcon, SunIcon, TenantIcon, TopologyIcon, TransactionIcon } from "./ui/icons";
import { Empty } from "./ui/state";
import { Toasts } from "./ui/toast";

/** Lists of the whole broker are for those who administer it. */
const SECTIONS: { path: string; title: string; icon: ComponentType; key: string; isOfBroker?: boolean }[] = [
  { path: "", title: "Overview", icon: OverviewIcon, key: "o" },
  { path: "queues", title: "Queues", icon: QueueIcon, key: "q" },
  { path: "dead-letters", title: "Dead letters", icon: DeadIcon, key: "d" },
  { path: "connections", title: "Connections", icon: ConnectionIcon, key: "c", isOfBroker: true },
  { path: "consumers", title: "Consumers", icon: ConsumerIcon, key: "u", isOfBroker: true },
  { path: "bridges", title: "Bridges", icon: BridgeIcon, key: "b", isOfBroker: true },
  { path: "routes", title: "Routes", icon: MoveIcon, key: "r", isOfBroker: true },
  { path: "topology", title: "Topology", icon: TopologyIcon, key: "y", isOfBroker: true },
  { path: "schedules", title: "Schedules", icon: ScheduleIcon, key: "s", isOfBroker: true },
  { path: "tenants", title: "Tenants", icon: TenantIcon, key: "n", isOfBroker: true },
  { path: "alerts", title: "Alerts", icon: AlarmIcon, key: "l", isOfBroker: true },
  { path: "transactions", title: "Transactions", icon: TransactionIcon, key: "t", isOfBroker: true },
  { path: "ledger", title: "Ledger", icon: CheckIcon, key: "e", isOfBroker: true },
  { path: "capacity", title: "Capacity", icon: ClockIcon, key: "p", isOfBroker: true },
  { path: "configuration", title: "Configuration", icon: SettingsIcon, key: "f", isOfBroker: true },
  { path: "audit", title: "Audit", icon: AuditIcon, key: "a", isOfBroker: true },
];

const address = (path: string) => (path === "" ? to() : to(path));

/** The console, or the way in. */
export function App() {
  const { state } = useSession();
  useEffect(() => {
    if (state !== "asking") return;
    // Refused for another reason, such as an unknown host: the pages say so.
    const failed = (error: unknown) => error instanceof ApiError && error.status === 401 || signedIn({ user: null, csrf: null, administers: true, is_session: false, stores: 1 });
    void get<Caller>(pathOf("session")).then(signedIn, failed);
  }, [state]);
  if (state === "asking") return null;
  return state === "out" ? <SignInPage /> : <Frame />;
}

function Frame() {
  const { parts } = useRoute();
  const [isMenuOpen, setIsMenuOpen] = useState(false);
  const section = parts[0] ?? "";
  const session = useSession();
  const sections = SECTIONS.filter(({ isOfBroker }) => isOfBroker !== true || (session.state === "in" && session.administers));
  useShortcuts();
  useEffect(() => setIsMenuOpen(false), [parts.join("/")]);
  useEffect(() => {
    const title = parts.length > 1 ? parts[1] : SECTIONS.find(({ path }) => path === section)?.title;
    document.title = `${title ?? "Not found"} · Postroad`;
  }, [parts.join("/")]);
  return (
    <div className="frame">
      <a className="skip" href="#main" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </a>
      <header className={isMenuOpen ? "side is-open" : "side"}>
        <div className="brand">
          <Link href={to()} className="brand-link">
            <Logo />
            <span>Postroad</span>
          </Link>
          <button type="button" className="button is-plain is-icon menu" aria-expanded={isMenuOpen} aria-controls="navigation" aria-label="Menu" onClick={() => setIsMenuOpen(!isMenuOpen)}>
            <MoreIcon />
          </button>
        </div>
        <nav id="navigation" className="nav" aria-label="Pages">
          {sections.map(({ path, title, icon: Icon, key }) => (
            <Link key={path} href={address(path)} className="nav-link" aria-current={path === section ? "page" : undefined}>
              <Icon />
              <span>{title}</span>
              <kbd aria-hidden="true">g {key}</kbd>
            </Link>
          ))}
        </nav>
        <div className="side-foot">
          <BrokerState />
          <StoreChoice />
          <User />
          <ThemeChoice />
        </div>
      </header>
      <main id="main" className="main" tabIndex={-1}>
        <Alarms />
        <PageOf parts={parts} />
      </main>
      <Toasts />
    </div>
  );
}

function PageOf({ parts }: { parts: string[] }) {
  const [section, name, ...rest] = parts;
  if (section === undefined) return <OverviewPage />;
  if (section === "queues" && name === undefined) return <QueuesPage />;
  if (section === "queues" && name !== undefined && rest.length <= 1) return <QueuePage key={name} name={name} tab={rest[0]} />;
  if (section === "dead-letters" && name === undefined) return <DeadLettersPage />;
  if (section === "bridges" && name === undefined) return <BridgesPage />;
  if (section === "routes" && name === undefined) return <RoutesPage />;
  if (section === "topology" && name === undefined) return <TopologyPage />;
  if (section === "schedules" && name === undefined) return <SchedulesPage />;
  if (section === "tenants" && name === undefined) return <TenantsPage />;
  if (section === "alerts" && name === undefined) return <AlertsPage />;
  if (section === "transactions" && name === undefined) return <TransactionsPage />;
  if (section === "ledger" && name === undefined) return <LedgerPage />;
  if (section === "capacity" && name === undefined) return <PlannerPage />;
  if (section === "configuration" && rest.length === 0) return <ConfigurationPage tab={name} />;
  if (section === "audit" && name === undefined) return <AuditPage />;
  if (section === "connections" && name === undefined) return <ConnectionsPage />;
  if (section === "consumers" && name === undefined) return <ConsumersPage />;
  return (
    <div className="card empty">
      <Empty title="There is no such page">
        <Link href={to()}>Go to the overview</Link>
      </Empty>
    </div>
  );
}

function Logo() {
  return (
    <svg className="logo" viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
      <rect width="32" height="32" rx="8" className="logo-ground" />
      <path d="M9 26 14 6h4l5 20h-4.2l-.9-4h-3.8l-.9 4z" className="logo-road" />
      <path d="M15.2 10h1.6l.4 2.4h-2.4zM14.5 14.6h3l.5 3h-4z" className="logo-ground" />
    </svg>
  );
}

function BrokerState() {
  const { overview, error } = useLive();
  const broker = overview?.broker;
  return (
    <div className="broker">
      <span className={`state ${error !== undefined ? "is-bad" : broker === undefined ? "" : "is-good"}`} aria-hidden="true" />
      <div>
        <div className="broker-name">{broker?.name ?? "Postroad"}</div>
        <div className="faint small">
          {error !== undefined ? "no connection" : broker === undefined ? "connecting…" : `${broker.version} · up ${duration(broker.uptime_seconds)}`}
        </div>
      </div>
    </div>
  );
}

function Alarms() {
  const { overview, error } = useLive();
  return (
    <div className="alarms" role="region" aria-label="Alarms" aria-live="polite">
      {error !== undefined && (
        <div className="alarm is-critical">
          <AlarmIcon />
          <strong>{error.status === 0 ? "No connection" : "Refused"}</strong>
          <span>{error.message} The figures below are the last ones known.</span>
        </div>
      )}
      {(overview?.alarms ?? []).map(({ severity, subject, text }) => (
        <div key={`${subject} ${text}`} className={`alarm is-${severity}`}>
          <AlarmIcon />
          <strong>{subject}</strong>
          <span>{text}</span>
        </div>
      ))}
    </div>
  );
}

/** Which store of the cluster is shown, to those who administer all of them. */
function StoreChoice() {
  const session = useSession();
  const shown = shownStore();
  if (session.state !== "in" || shown === null) return null;
  const numbers = Array.from({ length: session.stores }, (_, index) => index + 1);
  return (
    <div className="store-choice">
      <label htmlFor="store">Store</label>
      <select id="store" value={shown} onChange={(event) => showStore(Number(event.target.value), to())}>
        {numbers.map((number) => (
          <option key={number} value={number}>
            {number} of {session.stores}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Who is signed in, and the way out. */
function User() {
  const session = useSession();
  const [failure, setFailure] = useState<string | undefined>();
  if (session.state !== "in" || session.user === null) return null;
  const failed = (error: unknown) => (error instanceof ApiError && error.status === 401 ? signedOut() : setFailure(error instanceof Error ? error.message : String(error)));
  const leave = () => void del(pathOf("session")).then(signedOut, failed);
  return (
    <div className="user">
      <span className="user-name">{session.user}</span>
      {failure !== undefined && <span role="alert">Still signed in: {failure}</span>}
      {session.is_session && (
        <button type="button" className="button is-plain" onClick={leave}>
          Sign out
        </button>
      )}
    </div>
  );
}

const THEMES: { theme: Theme; title: string; icon: ComponentType }[] = [
  { theme: "light", title: "Light", icon: SunIcon },
  { theme: "system", title: "As the system", icon: AutoIcon },
  { theme: "dark", title: "Dark", icon: MoonIcon },
];

function ThemeChoice() {
  const [chosen, setChosen] = useState(chosenTheme);
  return (
    <div className="segments themes" role="group" aria-label="Theme">
      {THEMES.map(({ theme, title, icon: Icon }) => (
        <button
          key={theme}
          type="button"
          aria-pressed={chosen === theme}
          aria-label={title}
          title={title}
          onClick={() => {
            chooseTheme(theme);
            setChosen(theme);
          }}
        >
          <Icon />
        </button>
      ))}
    </div>
  );
}

/** `g` and a letter goes to a page, `/` to the search field. */
function useShortcuts() {
  useEffect(() => {
    let wasG = 0;
    const press = (event: KeyboardEvent) => {
      const target = event.target as Element;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog") !== null) return;
      if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search !== null) {
          event.preventDefault();
          search.focus();
        }
        return;
      }
      if (event.key === "g") {
        wasG = event.timeStamp;
        return;
      }
      const section = SECTIONS.find(({ key }) => key === event.key);
      if (section !== undefined && event.timeStamp - wasG < 1_000) go(address(section.path));
      wasG = 0;
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
