"""Deploys a chain of network tasks, waits until the card serves it, and says where it is.

    python deploy.py --endpoint unix:/run/snic/snicd.sock --identity tenant/acme \\
        --tenant acme --dag web --bandwidth 5000000000 nat firewall

Repeated with the same tasks it says that the DAG exists; with `--delete` it deletes it.
"""

import argparse
import sys

import grpc

from snic import Client, SnicError, request_id
from snic.control.v1 import dag_pb2, dag_service_pb2


def deploy(client: Client, tenant: str, dag_id: str, bandwidth_bps: int, tasks: list) -> dag_pb2.Dag:
    nodes = [dag_pb2.Dag.Node(id=task, nt_type=f"ntTypes/{task}") for task in tasks]
    edges = [dag_pb2.Dag.Edge(from_node=a, to_node=b) for a, b in zip(tasks, tasks[1:])]
    request = dag_service_pb2.CreateDagRequest(
        parent=f"tenants/{tenant}",
        dag_id=dag_id,
        dag=dag_pb2.Dag(nodes=nodes, edges=edges, bandwidth_bps=bandwidth_bps),
        # If the reply gets lost, the same request can be sent again.
        request_id=request_id(),
    )
    return client.wait(client.dags.CreateDag(request).operation)


def main() -> int:
    parser = argparse.ArgumentParser(description="Deploys a chain of network tasks.")
    parser.add_argument("--endpoint", required=True, help="host:port, or unix:/path")
    parser.add_argument("--identity", help="over a socket: who calls, such as tenant/acme")
    parser.add_argument("--ca", help="over TCP: the authority of the daemon's certificate")
    parser.add_argument("--certificate", help="over TCP: the caller's certificate")
    parser.add_argument("--key", help="over TCP: its private key")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--dag", required=True)
    parser.add_argument("--bandwidth", type=int, default=1_000_000_000, help="in bits per second")
    parser.add_argument("--delete", action="store_true", help="delete the DAG instead")
    parser.add_argument("tasks", nargs="*", help="ids of network task types, in order")
    given = parser.parse_args()
    files = {"ca": given.ca, "certificate": given.certificate, "key": given.key}
    with Client(given.endpoint, identity=given.identity, **files) as client:
        try:
            if given.delete:
                name = f"tenants/{given.tenant}/dags/{given.dag}"
                request = dag_service_pb2.DeleteDagRequest(
                    name=name, request_id=request_id(), allow_missing=True
                )
                client.wait(client.dags.DeleteDag(request).operation)
                print(f"{name} is deleted")
                return 0
            dag = deploy(client, given.tenant, given.dag, given.bandwidth, given.tasks)
        except grpc.RpcError as error:
            error = SnicError.of(error)
            print(error, file=sys.stderr)
            for field, what in error.fields.items():
                print(f"  {field}: {what}", file=sys.stderr)
            return 1
        except SnicError as error:
            print(error, file=sys.stderr)
            return 1
    state = dag_pb2.Dag.State.Name(dag.state).removeprefix("STATE_")
    print(f"{dag.name} is {state} at {dag.bandwidth_bps / 1e9:g} Gbit/s")
    for stage in dag.mapping.stages:
        for chain in stage.branches:
            for instance in chain.instances:
                print(f"  {instance.region}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
