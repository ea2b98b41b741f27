// Icons, drawn for the console on a grid of 20 by 20.

import type { ReactNode } from "react";

function Icon({ children }: { children: ReactNode }) {
  return (
    <svg className="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round">
      {children}
    </svg>
  );
}

export const OverviewIcon = () => (
  <Icon>
    <path d="M3 11.5 7 8l3.5 3L17 4.5" />
    <path d="M3 16.5h14" />
  </Icon>
);
export const QueueIcon = () => (
  <Icon>
    <rect x="3" y="3.5" width="14" height="3.6" rx="1" />
    <rect x="3" y="8.4" width="14" height="3.6" rx="1" />
    <path d="M3.5 16h13" strokeDasharray="2.6 2.4" />
  </Icon>
);
export const BridgeIcon = () => (
  <Icon>
    <rect x="2.5" y="7.5" width="4.5" height="5" rx="1" />
    <rect x="13" y="7.5" width="4.5" height="5" rx="1" />
    <path d="M7 10h6" />
  </Icon>
);
export const ConnectionIcon = () => (
  <Icon>
    <path d="M7 3v4M13 3v4M5 7h10v3a5 5 0 0 1-10 0zM10 15v2.5" />
  </Icon>
);
export const ConsumerIcon = () => (
  <Icon>
    <circle cx="10" cy="7" r="3" />
    <path d="M4 16.5c.8-3 3-4.5 6-4.5s5.2 1.5 6 4.5" />
  </Icon>
);
export const SubscriptionIcon = () => (
  <Icon>
    <path d="M4 16a8 8 0 0 1 8-8M4 12a4 4 0 0 1 4-4" transform="rotate(90 8 12)" />
    <circle cx="6" cy="14" r="1.4" />
    <path d="M6 8.5a5.5 5.5 0 0 1 5.5 5.5M6 4a10 10 0 0 1 10 10" />
  </Icon>
);
export const DeadIcon = () => (
  <Icon>
    <rect x="3" y="5" width="14" height="10" rx="1.5" />
    <path d="m8 8 4 4m0-4-4 4" />
  </Icon>
);
export const ClockIcon = () => (
  <Icon>
    <circle cx="10" cy="10" r="7" />
    <path d="M10 6v4l2.8 1.8" />
  </Icon>
);
export const TransactionIcon = () => (
  <Icon>
    <path d="M4 7h11l-3-3M16 13H5l3 3" />
  </Icon>
);
export const SettingsIcon = () => (
  <Icon>
    <path d="M3 6h7M14 6h3M3 14h3M10 14h7" />
    <circle cx="12" cy="6" r="2" />
    <circle cx="8" cy="14" r="2" />
  </Icon>
);
export const SunIcon = () => (
  <Icon>
    <circle cx="10" cy="10" r="3.2" />
    <path d="M10 2.5v1.5M10 16v1.5M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M4.7 15.3l1-1M14.3 5.7l1-1" />
  </Icon>
);
export const MoonIcon = () => (
  <Icon>
    <path d="M16.5 12A7 7 0 0 1 8 3.5a7 7 0 1 0 8.5 8.5z" />
  </Icon>
);
export const AutoIcon = () => (
  <Icon>
    <circle cx="10" cy="10" r="7" />
    <path d="M10 3a7 7 0 0 1 0 14z" fill="currentColor" />
  </Icon>
);
export const SearchIcon = () => (
  <Icon>
    <circle cx="9" cy="9" r="5" />
    <path d="m13 13 4 4" />
  </Icon>
);
export const AlarmIcon = () => (
  <Icon>
    <path d="M10 3 2.5 16h15zM10 8v3.5M10 13.8v.1" />
  </Icon>
);
export const CheckIcon = () => (
  <Icon>
    <path d="m4.5 10.5 3.5 3.5 7.5-8" />
  </Icon>
);
export const CloseIcon = () => (
  <Icon>
    <path d="m5 5 10 10M15 5 5 15" />
  </Icon>
);
export const SendIcon = () => (
  <Icon>
    <path d="M17 3 9 11M17 3l-5 14-3-6-6-3z" />
  </Icon>
);
export const TrashIcon = () => (
  <Icon>
    <path d="M4 6h12M8 6V4h4v2M5.5 6l.7 10.5h7.6L14.5 6" />
  </Icon>
);
export const MoveIcon = () => (
  <Icon>
    <path d="M3 10h11M10 5.5l4.5 4.5-4.5 4.5M17.5 4v12" />
  </Icon>
);
export const MoreIcon = () => (
  <Icon>
    <path d="M3 6h14M3 10h14M3 14h14" />
  </Icon>
);
export const AuditIcon = () => (
  <Icon>
    <path d="M5 3h7l3 3v11H5zM8 9h4M8 12.5h4" />
  </Icon>
);
export const TopologyIcon = () => (
  <Icon>
    <rect x="2.5" y="7.5" width="4.5" height="5" rx="1" />
    <rect x="13" y="2.5" width="4.5" height="5" rx="1" />
    <rect x="13" y="12.5" width="4.5" height="5" rx="1" />
    <path d="M7 10c4 0 2-5 6-5M7 10c4 0 2 5 6 5" />
  </Icon>
);
export const ScheduleIcon = () => (
  <Icon>
    <rect x="3" y="4.5" width="14" height="12.5" rx="1.5" />
    <path d="M3 8.5h14M7 2.5v3.5M13 2.5v3.5M10 11v2.2l1.6 1" />
  </Icon>
);
export const TenantIcon = () => (
  <Icon>
    <path d="M3.5 17V4.5L10 3v14M10 8l6.500 1.500V17M2.500 17h15M6 7.500h1.500M6 11h1.500M13 12h1" />
  </Icon>
);
