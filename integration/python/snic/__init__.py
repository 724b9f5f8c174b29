"""Client of snicd, the control plane of multi-tenant SmartNICs.

    from snic import Client
    from snic.control.v1 import dag_service_pb2

    with Client("unix:/run/snic/snicd.sock", identity="tenant/acme") as client:
        dag = client.dags.GetDag(dag_service_pb2.GetDagRequest(name="tenants/acme/dags/web")).dag

Each service of the API is an attribute of the client; its messages are in `snic.control.v1`.
"""

import time
import uuid
from pathlib import Path
from typing import Optional, Union

import grpc
# The response of operations that leave nothing to show must be known.
from google.protobuf import empty_pb2, symbol_database  # noqa: F401
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from snic.control.v1 import (
    audit_pb2_grpc,
    authorization_pb2_grpc,
    bitstream_pb2_grpc,
    card_pb2_grpc,
    classification_pb2_grpc,
    dag_service_pb2_grpc,
    event_pb2_grpc,
    fairness_pb2_grpc,
    network_task_pb2_grpc,
    operation_pb2,
    operation_pb2_grpc,
    orchestration_pb2_grpc,
    system_pb2_grpc,
    tenant_pb2_grpc,
    traffic_pb2_grpc,
    usage_pb2_grpc,
)

# The domain of the daemon's own errors.
DOMAIN = "snic"
# Seconds that one WaitOperation may take; longer waits are several calls.
WAIT_STEP = 60.0
# Failed attempts in a row before a watch fails: after 51 s, in which a daemon starts again.
WATCH_ATTEMPTS = 9


class SnicError(Exception):
    """An error of the daemon.

    code: the gRPC code, such as grpc.StatusCode.NOT_FOUND.
    reason: the ErrorReason as one word, such as "RESOURCE_NOT_FOUND"; empty for errors of others.
    message: a sentence for people.
    fields: what is wrong with which field of the request.
    retry_after: seconds after which the same request may succeed; None if the daemon does not say.
    """

    def __init__(self, code, message, details=()):
        self.code, self.message = code, message
        self.reason, self.metadata = "", {}
        self.fields, self.retry_after = {}, None
        for detail in details:
            info = error_details_pb2.ErrorInfo()
            bad = error_details_pb2.BadRequest()
            retry = error_details_pb2.RetryInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                self.reason, self.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(bad):
                self.fields = {found.field: found.description for found in bad.field_violations}
            elif detail.Unpack(retry):
                self.retry_after = retry.retry_delay.ToTimedelta().total_seconds()
        super().__init__(f"{self.reason or code.name}: {message}")

    @classmethod
    def of(cls, error: grpc.RpcError) -> "SnicError":
        """The error behind a failed call."""
        status = rpc_status.from_call(error)
        return cls(error.code(), error.details() or "", status.details if status else ())


def request_id() -> str:
    """A new `request_id`: a change that carries one can be sent again without harm."""
    return str(uuid.uuid4())


class Client:
    """A connection to a daemon, with a stub for each of its services.

    endpoint: "host:port", or "unix:/path" of a socket.
    identity: over a socket, who calls: "operator/name", "tenant/name" or "orchestrator/name".
    acting_for: of an operator, the tenant that it calls for, such as "tenant/acme": the tenant's
        quotas hold, and the policies about both.
    ca, certificate, key: over TCP, PEM files: the authority of the daemon's certificate, and the
        caller's own certificate and key.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        identity: Optional[str] = None,
        acting_for: Optional[str] = None,
        ca: Union[str, Path, None] = None,
        certificate: Union[str, Path, None] = None,
        key: Union[str, Path, None] = None,
    ):
        if endpoint.startswith("unix:"):
            # The name that a certificate would have; sockets have none.
            options = [("grpc.default_authority", "localhost")]
            channel = grpc.insecure_channel(endpoint, options)
        else:
            if not (ca and certificate and key):
                raise ValueError(f"{endpoint}: over TCP, ca, certificate and key are needed")
            read = [Path(path).read_bytes() for path in (ca, key, certificate)]
            channel = grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(*read))
        if identity:
            channel = grpc.intercept_channel(channel, _Header("snic-identity", identity))
        if acting_for:
            channel = grpc.intercept_channel(channel, _Header("snic-acting-for", acting_for))
        self._channel = channel
        self.audit = audit_pb2_grpc.AuditServiceStub(channel)
        self.access = authorization_pb2_grpc.AuthorizationServiceStub(channel)
        self.bitstreams = bitstream_pb2_grpc.BitstreamServiceStub(channel)
        self.cards = card_pb2_grpc.CardServiceStub(channel)
        self.rules = classification_pb2_grpc.ClassificationServiceStub(channel)
        self.dags = dag_service_pb2_grpc.DagServiceStub(channel)
        self.events = event_pb2_grpc.EventServiceStub(channel)
        self.fairness = fairness_pb2_grpc.FairnessServiceStub(channel)
        self.nt_types = network_task_pb2_grpc.NetworkTaskServiceStub(channel)
        self.operations = operation_pb2_grpc.OperationServiceStub(channel)
        self.machines = orchestration_pb2_grpc.OrchestrationServiceStub(channel)
        self.system = system_pb2_grpc.SystemServiceStub(channel)
        self.tenants = tenant_pb2_grpc.TenantServiceStub(channel)
        self.traffic = traffic_pb2_grpc.TrafficServiceStub(channel)
        self.usage = usage_pb2_grpc.UsageServiceStub(channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection."""
        self._channel.close()

    def wait(self, operation: operation_pb2.Operation, timeout: float = 600.0):
        """Waits until an operation has ended; its response: the changed resource, or Empty.

        timeout: seconds.
        Raises SnicError if the operation fails, TimeoutError if it does not end in time, and
        grpc.RpcError if a call fails.
        """
        end = time.monotonic() + timeout
        while not operation.done:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{operation.name} has not ended after {timeout} s")
            request = operation_pb2.WaitOperationRequest(name=operation.name)
            request.timeout.FromMilliseconds(int(min(left, WAIT_STEP) * 1000))
            reply = self.operations.WaitOperation(request, timeout=min(left, WAIT_STEP) + 10.0)
            operation = reply.operation
        if operation.HasField("error"):
            codes = {code.value[0]: code for code in grpc.StatusCode}
            error = operation.error
            code = codes.get(error.code, grpc.StatusCode.UNKNOWN)
            raise SnicError(code, error.message, error.details)
        name = operation.response.type_url.rsplit("/", 1)[-1]
        response = symbol_database.Default().GetSymbol(name)()
        operation.response.Unpack(response)
        return response

    def follow(self, watch, request):
        """The events of a watch, also over a restart of the daemon: it resumes after the last one.

        watch: a method such as `client.dags.WatchDags`; request: its request, whose
        `resume_revision` is kept up to date.
        Ends when the daemon ends the watch. Raises grpc.RpcError if the daemon stays away for about
        a minute, or refuses; with OUT_OF_RANGE (REVISION_EXPIRED) set `resume_revision` to 0 and
        forget what the watch does not send.
        """
        failed = 0
        while True:
            try:
                for event in watch(request):
                    failed = 0
                    request.resume_revision = event.revision
                    yield event
                return
            except grpc.RpcError as error:
                failed += 1
                if error.code() != grpc.StatusCode.UNAVAILABLE or failed >= WATCH_ATTEMPTS:
                    raise
            time.sleep(0.1 * 2**failed)


class _Header(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
):
    """Adds a header to each call."""

    def __init__(self, key: str, value: str):
        self._header = (key, value)

    def _call(self, continuation, details, request):
        metadata = [*(details.metadata or ()), self._header]
        return continuation(details._replace(metadata=metadata), request)

    intercept_unary_unary = _call
    intercept_unary_stream = _call
    intercept_stream_unary = _call
