// Why messages of a queue are not delivered: the cause, the smallest change, and the verdict on each consumer.

import { pathOf } from "../api";
import { usePoll } from "../live";
import { CheckIcon, CloseIcon } from "../ui/icons";
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
}

/** Of the queue's next message, or of one. */
export function Explain({ queue, message }: { queue: string; message?: string }) {
  const path = message === undefined ? pathOf("queues", queue, "explain") : pathOf("queues", queue, "messages", message, "explain");
  const { data, error, refresh } = usePoll<Explained>(path, 3_000);
  if (data === undefined) return error === undefined ? <Loading /> : <Failure error={error} onRetry={refresh} />;
  const { summary, remedy, queue_verdicts: ofQueue, consumer_verdicts: ofConsumers } = data;
  const isWell = remedy === null;
  return (
    <section className="explain card" aria-label="Why messages are not delivered">
      <div className={isWell ? "answer is-good" : "answer is-warning"}>
        {isWell ? <CheckIcon /> : <CloseIcon />}
        <div>
          <p className="answer-text">{summary}</p>
          {remedy !== null && (
            <p>
              <strong>The smallest change:</strong> {remedy}
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
  );
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
            <div>{text}</div>
            {blocks && remedy !== undefined && <div className="faint">{remedy}</div>}
          </div>
        </li>
      ))}
    </ul>
  );
}
