"""Prints the states of a tenant's DAGs as they change, also over a restart of the daemon.

    python watch.py --endpoint unix:/run/snic/snicd.sock --identity tenant/acme --tenant acme
"""

import argparse
import sys

import grpc

from snic import Client, SnicError
from snic.control.v1 import dag_pb2, dag_service_pb2, types_pb2


def watch(client: Client, tenant: str) -> None:
    states = {}
    request = dag_service_pb2.WatchDagsRequest(parent=f"tenants/{tenant}")
    for event in client.follow(client.dags.WatchDags, request):
        name = event.dag.name
        if event.type == types_pb2.EVENT_TYPE_BOOKMARK:
            continue
        if event.type == types_pb2.EVENT_TYPE_DELETED:
            states.pop(name, None)
            print(f"{name} is deleted", flush=True)
        elif states.get(name) != event.dag.state:
            states[name] = event.dag.state
            state = dag_pb2.Dag.State.Name(event.dag.state).removeprefix("STATE_")
            print(f"{name} is {state}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Prints the states of a tenant's DAGs.")
    parser.add_argument("--endpoint", required=True, help="host:port, or unix:/path")
    parser.add_argument("--identity", help="over a socket: who calls, such as tenant/acme")
    parser.add_argument("--ca", help="over TCP: the authority of the daemon's certificate")
    parser.add_argument("--certificate", help="over TCP: the caller's certificate")
    parser.add_argument("--key", help="over TCP: its private key")
    parser.add_argument("--tenant", required=True)
    given = parser.parse_args()
    files = {"ca": given.ca, "certificate": given.certificate, "key": given.key}
    with Client(given.endpoint, identity=given.identity, **files) as client:
        try:
            watch(client, given.tenant)
        except grpc.RpcError as error:
            print(SnicError.of(error), file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
