import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import "./styles/tokens.css";
import "./styles/layout.css";
import "./styles/parts.css";
import { applyTheme, chosenTheme } from "./theme";

applyTheme(chosenTheme());
const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element for the console");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
