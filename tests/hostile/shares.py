"""A tenant that floods over many connections, beside one with a larger share and few connections."""

import threading
import time

import broker as brokers
import openwire as o
from held import sends

# Connections and messages of each; the crowd would get twice as much as the few if it were not for their shares.
CROWD, CROWD_MESSAGES = 8, 1000
FEW, FEW_MESSAGES = 4, 400
TENANTS = '[[tenant]]\nname = "crowd"\n[[tenant]]\nname = "few"\nshare = 8\n'
SECONDS_MAX = 120


def run(binary, report, only=None):
    title = "two tenants flood: the larger share is served first, however many connections the other one has, and nothing is lost"
    if only and only not in title:
        return
    broker = brokers.new(binary, TENANTS).must_start()
    broker.case(report, title, lambda: floods(broker))
    broker.kill()


def messages(broker, tenant):
    return broker.metric(f'postroad_tenant_messages{{tenant="{tenant}"}}')


def floods(broker):
    tenants = [("crowd", CROWD, CROWD_MESSAGES), ("few", FEW, FEW_MESSAGES)]
    clients = [(o.Client(broker.port), tenant, count) for tenant, connections, count in tenants for _ in range(connections)]
    # Each is known to work for its tenant from its first message on.
    for client, tenant, _ in clients:
        client.publish(o.queue(f"{tenant}.first"), "first")
    streams = [(client, sends(client, f"{tenant}.all", count)[0]) for client, tenant, count in clients]
    floods = [threading.Thread(target=client.peer.sendall, args=(stream,), daemon=True) for client, stream in streams]
    for flood in floods:
        flood.start()
    wanted = {tenant: connections * (count + 1) for tenant, connections, count in tenants}
    end = time.monotonic() + SECONDS_MAX
    while messages(broker, "few") < wanted["few"]:
        assert time.monotonic() < end, "the few are not served"
    crowd = messages(broker, "crowd")
    while messages(broker, "crowd") < wanted["crowd"]:
        assert time.monotonic() < end, "the crowd is not served"
        time.sleep(0.05)
    waits = broker.metric('postroad_tenant_share_waits_total{tenant="crowd"}')
    for client, _, _ in clients:
        client.close()
    assert crowd < wanted["few"], f"{crowd:.0f} of the crowd were taken before {wanted['few']} of the few"
    assert 0 < waits, "the crowd never waited"
    return f"{wanted['few']} of the few, and {crowd:.0f} of the crowd meanwhile"
