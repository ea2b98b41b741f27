// Dialogs: the browser's own element keeps the focus inside and closes on Escape.

import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { ApiError } from "../api";
import { CloseIcon } from "./icons";
import { say } from "./toast";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  isWide?: boolean;
}

export function Dialog({ title, onClose, children, isWide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const label = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog !== null && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      className={isWide ? "dialog is-wide" : "dialog"}
      aria-labelledby={label}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === event.currentTarget) element.current?.close();
      }}
    >
      <div className="dialog-inner">
        <header className="dialog-head">
          <h2 id={label}>{title}</h2>
          <button type="button" className="button is-plain is-icon" aria-label="Close" onClick={() => element.current?.close()}>
            <CloseIcon />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface ActionProps {
  title: string;
  /** What will happen, and to how many. */
  effect: ReactNode;
  /** The button's words. */
  verb: string;
  isDangerous?: boolean;
  /** Has to be typed first. */
  confirm?: string;
  isReady?: boolean;
  isWide?: boolean;
  onClose: () => void;
  /** Does it; says what was done. */
  act: () => Promise<string>;
  children?: ReactNode;
}

/** Asks before something is done, says what that is, and shows why it failed if it does. */
export function Action({ title, effect, verb, isDangerous, confirm, isReady = true, isWide = false, onClose, act, children }: ActionProps) {
  const [typed, setTyped] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<string | undefined>();
  const field = useId();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    setError(undefined);
    try {
      say(await act());
      onClose();
    } catch (failed) {
      setError(failed instanceof ApiError ? failed.message : String(failed));
      setIsBusy(false);
    }
  };
  const isConfirmed = confirm === undefined || typed.trim() === confirm;
  return (
    <Dialog title={title} onClose={onClose} isWide={isWide}>
      <form onSubmit={submit} className="action">
        <div className="effect">{effect}</div>
        {children}
        {confirm !== undefined && (
          <div className="field">
            <label htmlFor={field}>
              Type <code>{confirm}</code> to confirm
            </label>
            <input id={field} value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" spellCheck={false} />
          </div>
        )}
        {error !== undefined && (
          <p className="form-error" role="alert">
            {error}
          </p>
        )}
        <footer className="dialog-foot">
          <button type="button" className="button" onClick={onClose} disabled={isBusy}>
            Cancel
          </button>
          <button type="submit" className={isDangerous ? "button is-danger" : "button is-primary"} disabled={isBusy || !isConfirmed || !isReady}>
            {isBusy ? "Working…" : verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
