// Scheduled messages in the order in which they are due: one with its body, and its deletion.

import { useState } from "react";
import { del, type Message, pathOf, withQuery } from "../api";
import { bytes, count, dateTime, duration } from "../format";
import { usePages, usePoll, useSettled } from "../live";
import { BodyView } from "../ui/body";
import { Action, Dialog } from "../ui/dialog";
import { TrashIcon } from "../ui/icons";
import { Empty, Failure, Loading } from "../ui/state";
import { type Column, Table } from "../ui/table";
import { Facts, Search } from "./parts";

interface Schedule {
  id: string;
  due_ms: number;
  job: string | null;
  destinations: string[];
  route: string | null;
  bytes: number | null;
  period_ms: number | null;
  times: number | null;
  cron: string | null;
}

const targets = ({ destinations }: Schedule) => (destinations.length === 0 ? "unreadable" : destinations.join(", "));

function repeats({ cron, period_ms, times }: Schedule): string | undefined {
  if (cron !== null) return `cron ${cron}`;
  if (period_ms === null) return undefined;
  const every = period_ms < 1_000 ? `${period_ms} ms` : duration(period_ms / 1_000).replace(/ 0 \w+$/, "");
  return `each ${every}${times === null ? "" : `, ${count(times)} more`}`;
}

function left(due_ms: number): string {
  const seconds = (due_ms - Date.now()) / 1_000;
  return seconds < 1 ? "now" : `in ${duration(seconds)}`;
}

export function SchedulesPage() {
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const [shown, setShown] = useState<Schedule | undefined>();
  const [ended, setEnded] = useState<Schedule | undefined>();
  const pages = usePages<Schedule>(withQuery(pathOf("schedules"), { filter: settled }), 100);
  const columns: Column<Schedule>[] = [
    { id: "due", title: "Due", width: "190px", cell: ({ due_ms }) => <span title={`${due_ms}`}>{dateTime(due_ms)}</span> },
    { id: "left", title: "Left", width: "130px", room: 2, cell: ({ due_ms }) => <span className="faint">{left(due_ms)}</span> },
    {
      id: "to",
      title: "To",
      width: "minmax(0, 1.2fr)",
      cell: (row) => (
        <button type="button" className="link name" onClick={() => setShown(row)}>
          {targets(row)}
        </button>
      ),
    },
    { id: "repeats", title: "Repeats", width: "minmax(0, 0.8fr)", room: 2, cell: (row) => <span className="name">{repeats(row) ?? <span className="zero">once</span>}</span> },
    { id: "bytes", title: "Size", width: "90px", isNumber: true, room: 2, cell: (row) => (row.bytes === null ? "–" : bytes(row.bytes)) },
    { id: "job", title: "Job", width: "minmax(0, 1fr)", room: 3, cell: ({ job, route }) => <span className="name faint" title={job ?? ""}>{route === null ? job : `redelivery of the route ${route}`}</span> },
    {
      id: "delete",
      title: "",
      width: "52px",
      cell: (row) => (
        <button type="button" className="button is-plain is-icon" aria-label={`Delete the message to ${targets(row)}, due ${dateTime(row.due_ms)}`} onClick={() => setEnded(row)}>
          <TrashIcon />
        </button>
      ),
    },
  ];
  return (
    <>
      <header className="page-head">
        <h1>
          Schedules <span className="faint">{count(pages.total)}</span>
        </h1>
        <p className="page-note">Messages that are due later, the next one first. Consumers do not see them before.</p>
      </header>
      <div className="filter-line">
        <Search label="Filter by destination" value={filter} onChange={setFilter} />
      </div>
      <Table label="Schedules" columns={columns} pages={pages} rowKey={({ id }) => id} onOpen={setShown} empty={<Empty title={settled === "" ? "No message is scheduled" : `No scheduled message goes to a destination with “${settled}” in its name`} />} />
      {shown !== undefined && (
        <ScheduleDialog
          schedule={shown}
          onClose={() => setShown(undefined)}
          onDelete={() => {
            setEnded(shown);
            setShown(undefined);
          }}
        />
      )}
      {ended !== undefined && (
        <Action
          title="Delete a scheduled message"
          effect={
            <>
              Deletes <strong>1 message</strong> to {targets(ended)}, due {dateTime(ended.due_ms)}. It is not sent{ended.period_ms === null && ended.cron === null ? "" : ", and does not repeat"}.
            </>
          }
          verb="Delete 1 message"
          isDangerous
          onClose={() => setEnded(undefined)}
          act={async () => {
            await del(pathOf("schedules", ended.id));
            pages.refresh();
            return `Deleted the scheduled message to ${targets(ended)}`;
          }}
        />
      )}
    </>
  );
}

function ScheduleDialog({ schedule, onClose, onDelete }: { schedule: Schedule; onClose: () => void; onDelete: () => void }) {
  const { data, error } = usePoll<Schedule & { message: Message | null }>(pathOf("schedules", schedule.id), 60_000);
  const message = data?.message;
  return (
    <Dialog title={`Scheduled message to ${targets(schedule)}`} onClose={onClose} isWide>
      <div className="action">
        <Facts
          facts={[
            ["Due", `${dateTime(schedule.due_ms)}, ${left(schedule.due_ms)}`],
            ["Repeats", repeats(schedule) ?? "once"],
            ["Job", schedule.job ?? "–"],
            ["Id", schedule.id],
            ["Size", schedule.bytes === null ? "–" : bytes(schedule.bytes)],
            ...Object.entries(message?.properties ?? {}).map(([name, value]): [string, string] => [name, String(value)]),
          ]}
        />
        {error !== undefined && <Failure error={error} />}
        {data === undefined && error === undefined && <Loading />}
        {message === null && <Empty title="The message cannot be read" />}
        {message != null && <BodyView body={message.body} bytes={message.bytes} />}
        <footer className="dialog-foot">
          <button type="button" className="button" onClick={onClose}>
            Close
          </button>
          <button type="button" className="button is-danger" onClick={onDelete}>
            Delete…
          </button>
        </footer>
      </div>
    </Dialog>
  );
}
