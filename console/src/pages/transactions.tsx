// Branches of XA transactions that wait for their managers, and their end by an operator.

import { useState } from "react";
import { del, pathOf, post } from "../api";
import { count } from "../format";
import { usePages } from "../live";
import { Action } from "../ui/dialog";
import { Badge, Empty } from "../ui/state";
import { type Column, Table } from "../ui/table";

interface Branch {
  branch: string;
  state: "prepared" | "committed" | "rolled back";
}

type Ending = { branch: string; verb: "commit" | "rollback" | "forget" };

const TITLES = { commit: "Commit", rollback: "Roll back", forget: "Forget" };
const EFFECTS = {
  commit: "The branch is committed in place of its transaction manager: its sends and acknowledgements take effect. If the manager decides otherwise, the transaction is torn.",
  rollback: "The branch is rolled back in place of its transaction manager: its sends are discarded, and what it acknowledged is delivered again. If the manager decides otherwise, the transaction is torn.",
  forget: "The outcome is forgotten. A manager that asks later is told that the branch is unknown.",
};

export function TransactionsPage() {
  const pages = usePages<Branch>(pathOf("transactions"), 100);
  const [ending, setEnding] = useState<Ending | undefined>();
  const button = (branch: string, verb: Ending["verb"]) => (
    <button type="button" className="button is-small" onClick={() => setEnding({ branch, verb })}>
      {TITLES[verb]}…
    </button>
  );
  const columns: Column<Branch>[] = [
    { id: "branch", title: "Branch", width: "minmax(0, 1fr)", cell: ({ branch }) => <span className="name mono">{branch}</span> },
    { id: "state", title: "State", width: "130px", room: 2, cell: ({ state }) => <Badge tone={state === "prepared" ? "warning" : "info"}>{state}</Badge> },
    {
      id: "ends",
      title: "Actions",
      width: "230px",
      cell: ({ branch, state }) => <span className="actions">{state === "prepared" ? <>{button(branch, "commit")}{button(branch, "rollback")}</> : button(branch, "forget")}</span>,
    },
  ];
  const act = async ({ branch, verb }: Ending) => {
    await (verb === "forget" ? del(pathOf("transactions", branch)) : post(pathOf("transactions", branch, verb)));
    pages.refresh();
    return `${TITLES[verb]}: ${branch}`;
  };
  return (
    <>
      <header className="page-head">
        <h1>
          Transactions <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Prepared XA branches, which wait for their managers, and those that an operator has ended.</p>
      </header>
      <Table label="Transactions" columns={columns} pages={pages} rowKey={({ branch }) => branch} empty={<Empty title="No branch waits for its manager" />} />
      {ending !== undefined && <Action title={`${TITLES[ending.verb]} one branch`} effect={<><code>{ending.branch}</code><p>{EFFECTS[ending.verb]}</p></>} verb={TITLES[ending.verb]} isDangerous onClose={() => setEnding(undefined)} act={() => act(ending)} />}
    </>
  );
}
