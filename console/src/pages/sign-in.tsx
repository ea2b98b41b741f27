// The way in, where the broker has users.

import { type FormEvent, useEffect, useId, useRef, useState } from "react";
import { pathOf, post } from "../api";
import { type Caller, signedIn } from "../session";

export function SignInPage() {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<string | undefined>();
  const [isBusy, setIsBusy] = useState(false);
  const first = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => {
    document.title = "Sign in · Postroad";
    first.current?.focus();
  }, []);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setIsBusy(true);
    setError(undefined);
    try {
      signedIn(await post<Caller>(pathOf("session"), { user, password }));
    } catch (failed) {
      setError(failed instanceof Error ? failed.message : String(failed));
      setPassword("");
      setIsBusy(false);
      first.current?.focus();
    }
  };
  return (
    <main id="main" className="sign-in" tabIndex={-1}>
      <form className="card sign-in-card" onSubmit={submit}>
        <h1>Sign in to Postroad</h1>
        {error !== undefined && (
          <p className="sign-in-error" role="alert">
            {error}
          </p>
        )}
        <div className="field">
          <label htmlFor={`${id}-user`}>User</label>
          <input ref={first} id={`${id}-user`} name="username" autoComplete="username" autoCapitalize="none" spellCheck={false} required maxLength={255} value={user} onChange={(event) => setUser(event.target.value)} />
        </div>
        <div className="field">
          <label htmlFor={`${id}-password`}>Password</label>
          <input id={`${id}-password`} name="password" type="password" autoComplete="current-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
        </div>
        <button type="submit" className="button is-primary" disabled={isBusy}>
          {isBusy ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
