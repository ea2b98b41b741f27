// Why messages of a queue are not delivered: the cause, the smallest change, and the verdict on each consumer; and
// whether and why the queue grows.

import { pathOf } from "../api";
import { count, duration, micros, plural, rate } from "../format";
import { usePoll } from "../live";
import { CheckIcon, CloseIcon, AlarmIcon } from "../ui/icons";
import { Failure, Loading } from "../ui/state";

interface Verdict {
  consumer?: string;
  connection?: string;
  code: string;
  text: string;
  remedy?: string;
  blocks: boolean;
}

interface Explained {
  message: string | null;
  summary: string;
  remedy: string | null;
  queue_verdicts: Verdict[];
  consumer_verdicts: Verdict[];
  growth?: Growth;
}

interface Growth {
  code: string;
  grows: boolean;
  text: string;
  remedy: string | null;
  window_ms: number;
  came_per_second: number;
  left_per_second: number;
  consumed_per_second: number;
  dead_lettered_per_second: number;
  expired_per_second: number;
  redelivered_per_second: number;
  drain_seconds: number | null;
  consumers: Worker[];
  consumers_left_out: number;
}

interface Worker {
  consumer: string;
  connection: string;
  settled_per_second: number | null;
  held_ms: number | null;
  waiting_percent: number | null;
  prefetch: number;
}

/** Of the queue's next message, or of one. */
export function Explain({ queue, message }: { queue: string; message?: string }) {
  const path = message === undefined ? pathOf("queues", queue, "explain") : pathOf("queues", queue, "messages", message, "explain");
  const { data, error, refresh } = usePoll<Explained>(path, 3_000);
  if (data === undefined) return error === undefined ? <Loading /> : <Failure error={error} onRetry={refresh} />;
  const { summary, remedy, queue_verdicts: ofQueue, consumer_verdicts: ofConsumers, growth } = data;
  const isWell = remedy === null;
  return (
    <>
      <section className="explain card" aria-label="Why messages are not delivered">
        <div className={isWell ? "answer is-good" : "answer is-warning"}>
          {isWell ? <CheckIcon /> : <AlarmIcon />}
          <div>
            <p className="answer-text">
              <Prose text={summary} />
            </p>
            {remedy !== null && (
              <p>
                <strong>The smallest change:</strong> <Prose text={remedy} />
              </p>
            )}
          </div>
        </div>
        <h2>{message === undefined ? "The queue and its next message" : "The message"}</h2>
        <Verdicts all={ofQueue} />
        {ofConsumers.length > 0 && (
          <>
            <h2>Consumers</h2>
            <Verdicts all={ofConsumers} />
          </>
        )}
      </section>
      {growth !== undefined && <LastMinute growth={growth} />}
    </>
  );
}

/** The rates of the queue and the work of its consumers, and why it grows. */
function LastMinute({ growth }: { growth: Growth }) {
  const { text, remedy, consumers, consumers_left_out: more } = growth;
  const isMeasured = growth.window_ms > 0;
  const rates: [string, string][] = [
    ["In", rate(growth.came_per_second)],
    ["Out", rate(growth.left_per_second)],
    ["Acknowledged", rate(growth.consumed_per_second)],
    ["Delivered again", rate(growth.redelivered_per_second)],
    ["Dead letters", rate(growth.dead_lettered_per_second)],
    ["Expired", rate(growth.expired_per_second)],
    ["Empty in", growth.drain_seconds === null ? "–" : duration(growth.drain_seconds)],
  ];
  return (
    <section className="explain card" aria-label="The last minute">
      <h2>The last minute: does the queue grow?</h2>
      <div className={remedy === null ? "answer is-good" : "answer is-warning"}>
        {remedy === null ? <CheckIcon /> : <AlarmIcon />}
        <div>
          <p className="answer-text">
            <Prose text={text} />
          </p>
          {remedy !== null && (
            <p>
              <strong>To keep up:</strong> <Prose text={remedy} />
            </p>
          )}
        </div>
      </div>
      {isMeasured && (
        <dl className="rates">
          {rates.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {consumers.length > 0 && (
        <div className="workers" tabIndex={0} role="group" aria-label="Consumers of the last minute">
          <table className="pairs" aria-label="Work of the consumers">
            <thead>
              <tr>
                <th>Consumer</th>
                <th className="is-number">Acknowledges</th>
                <th className="is-number" title="From a delivery to its acknowledgement, on average">
                  Each after
                </th>
                <th title="The consumer waits for acknowledgements of its client">Time without credit</th>
                <th className="is-number">Prefetch</th>
              </tr>
            </thead>
            <tbody>
              {consumers.map((worker) => (
                <WorkerRow key={`${worker.connection} ${worker.consumer}`} worker={worker} />
              ))}
            </tbody>
          </table>
          {more > 0 && <p className="faint">And {plural(more, "more consumer")}.</p>}
        </div>
      )}
    </section>
  );
}

function WorkerRow({ worker }: { worker: Worker }) {
  const { consumer, settled_per_second: settled, held_ms: held, waiting_percent: waiting, prefetch } = worker;
  return (
    <tr>
      <th className="mono">{consumer}</th>
      <td className="is-number">{settled === null ? "–" : rate(settled)}</td>
      <td className="is-number">{held === null ? "–" : micros(held * 1000)}</td>
      <td>
        {waiting === null ? (
          "–"
        ) : (
          <span className="share">
            <meter min={0} max={100} value={waiting} aria-label={`${waiting} % of its time without credit`} />
            {waiting} %
          </span>
        )}
      </td>
      <td className="is-number">{count(prefetch)}</td>
    </tr>
  );
}

/** A sentence of the broker: selectors and commands stand between backticks. */
function Prose({ text }: { text: string }) {
  const parts = text.split("`");
  // The place of a part never changes within a sentence.
  return parts.map((part, place) => (place % 2 === 1 ? <code key={`${place} ${part}`}>{part}</code> : part));
}

function Verdicts({ all }: { all: Verdict[] }) {
  return (
    <ul className="verdicts">
      {all.map(({ consumer, code, text, remedy, blocks }) => (
        <li key={`${consumer} ${code} ${text}`} className={blocks ? "is-blocking" : ""}>
          <span className="verdict-mark" aria-hidden="true">
            {blocks ? <CloseIcon /> : <CheckIcon />}
          </span>
          <div>
            {consumer !== undefined && <div className="mono verdict-of">{consumer}</div>}
            <div>
              <Prose text={text} />
            </div>
            {blocks && remedy !== undefined && (
              <div className="faint">
                <Prose text={remedy} />
              </div>
            )}
          </div>
        </li>
      ))}
    </ul>
  );
}
