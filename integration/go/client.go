// Package snic is a client of snicd, the control plane of multi-tenant SmartNICs.
//
// Each service of the API is a field of [Client]; its messages are in snic/control/v1.
package snic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	// The response of operations that leave nothing to show must be known.
	_ "google.golang.org/protobuf/types/known/emptypb"

	controlv1 "snic/control/v1"
)

//go:generate buf generate

// The domain of the daemon's own errors.
const domain = "snic"

// waitStep is how long one WaitOperation may take; longer waits are several calls.
const waitStep = time.Minute

// watchAttempts is how many attempts in a row may fail before a watch fails: after 51 s, in which a daemon starts
// again.
const watchAttempts = 9

// Options say how to reach a daemon.
type Options struct {
	// Identity says, over a socket, who calls: operator/NAME, tenant/NAME or orchestrator/NAME.
	Identity string
	// CA, Certificate and Key are, over TCP, PEM files: the authority of the daemon's certificate, and the
	// caller's own certificate and key.
	CA, Certificate, Key string
}

// Client is a connection to a daemon, with a stub for each of its services.
type Client struct {
	conn *grpc.ClientConn

	Audit      controlv1.AuditServiceClient
	Access     controlv1.AuthorizationServiceClient
	Bitstreams controlv1.BitstreamServiceClient
	Cards      controlv1.CardServiceClient
	Rules      controlv1.ClassificationServiceClient
	Dags       controlv1.DagServiceClient
	Events     controlv1.EventServiceClient
	Fairness   controlv1.FairnessServiceClient
	NtTypes    controlv1.NetworkTaskServiceClient
	Operations controlv1.OperationServiceClient
	Machines   controlv1.OrchestrationServiceClient
	System     controlv1.SystemServiceClient
	Tenants    controlv1.TenantServiceClient
	Traffic    controlv1.TrafficServiceClient
}

// Dial makes a connection to host:port or unix:/path; it is established with the first call.
func Dial(endpoint string, options Options) (*Client, error) {
	var dial []grpc.DialOption
	if strings.HasPrefix(endpoint, "unix:") {
		dial = append(dial,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// The name that a certificate would have; sockets have none.
			grpc.WithAuthority("localhost"))
	} else {
		secure, err := options.tls()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", endpoint, err)
		}
		dial = append(dial, grpc.WithTransportCredentials(secure))
	}
	if options.Identity != "" {
		header := func(ctx context.Context) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "snic-identity", options.Identity)
		}
		dial = append(dial,
			grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
				invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
				return invoke(header(ctx), method, request, reply, conn, options...)
			}),
			grpc.WithStreamInterceptor(func(ctx context.Context, what *grpc.StreamDesc, conn *grpc.ClientConn, method string,
				open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
				return open(header(ctx), what, conn, method, options...)
			}))
	}
	conn, err := grpc.NewClient(endpoint, dial...)
	if err != nil {
		return nil, err
	}
	return &Client{
		conn:       conn,
		Audit:      controlv1.NewAuditServiceClient(conn),
		Access:     controlv1.NewAuthorizationServiceClient(conn),
		Bitstreams: controlv1.NewBitstreamServiceClient(conn),
		Cards:      controlv1.NewCardServiceClient(conn),
		Rules:      controlv1.NewClassificationServiceClient(conn),
		Dags:       controlv1.NewDagServiceClient(conn),
		Events:     controlv1.NewEventServiceClient(conn),
		Fairness:   controlv1.NewFairnessServiceClient(conn),
		NtTypes:    controlv1.NewNetworkTaskServiceClient(conn),
		Operations: controlv1.NewOperationServiceClient(conn),
		Machines:   controlv1.NewOrchestrationServiceClient(conn),
		System:     controlv1.NewSystemServiceClient(conn),
		Tenants:    controlv1.NewTenantServiceClient(conn),
		Traffic:    controlv1.NewTrafficServiceClient(conn),
	}, nil
}

func (options Options) tls() (credentials.TransportCredentials, error) {
	if options.CA == "" || options.Certificate == "" || options.Key == "" {
		return nil, errors.New("over TCP, CA, Certificate and Key are needed")
	}
	ca, err := os.ReadFile(options.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", options.CA)
	}
	own, err := tls.LoadX509KeyPair(options.Certificate, options.Key)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}), nil
}

// Close closes the connection.
func (client *Client) Close() error {
	return client.conn.Close()
}

// Wait waits until an operation has ended, and returns its response: the changed resource, or Empty.
// It fails with the operation's error, with that of a call, or when the context ends.
func (client *Client) Wait(ctx context.Context, operation *controlv1.Operation) (proto.Message, error) {
	for !operation.GetDone() {
		request := &controlv1.WaitOperationRequest{Name: operation.GetName(), Timeout: durationpb.New(waitStep)}
		reply, err := client.Operations.WaitOperation(ctx, request)
		if err != nil {
			return nil, err
		}
		operation = reply.GetOperation()
	}
	if failed := operation.GetError(); failed != nil {
		return nil, status.ErrorProto(&statuspb.Status{
			Code: failed.GetCode(), Message: failed.GetMessage(), Details: failed.GetDetails(),
		})
	}
	return operation.GetResponse().UnmarshalNew()
}

// Follow passes the events of a watch to take, also over a restart of the daemon: it resumes after the last
// one. open begins the watch after a revision; 0 is from the beginning.
//
// It ends when the daemon ends the watch, and fails with what take returns, when the context ends, and when the
// daemon refuses or stays away for about a minute. After OutOfRange (REVISION_EXPIRED) follow again, and forget
// what the watch does not send.
func Follow[Response any, Event interface {
	*Response
	GetRevision() uint64
}](ctx context.Context, open func(revision uint64) (grpc.ServerStreamingClient[Response], error),
	take func(Event) error) error {
	revision, failed := uint64(0), 0
	for {
		stream, err := open(revision)
		for err == nil {
			var event *Response
			if event, err = stream.Recv(); err == nil {
				failed, revision = 0, Event(event).GetRevision()
				if err := take(event); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		failed++
		if status.Code(err) != codes.Unavailable || failed >= watchAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond << failed):
		}
	}
}

// Details are what an error of the daemon says for programs.
type Details struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is the ErrorReason as one word, such as RESOURCE_NOT_FOUND; empty for errors of others.
	Reason string
	// Metadata is more about the reason, such as which resource is short, and by how much.
	Metadata map[string]string
	// Fields says what is wrong with which field of the request.
	Fields map[string]string
	// RetryAfter is after how long the same request may succeed; 0 if the daemon does not say.
	RetryAfter time.Duration
}

// DetailsOf reads the details of an error.
func DetailsOf(err error) Details {
	found := status.Convert(err)
	details := Details{Code: found.Code(), Fields: map[string]string{}}
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == domain {
				details.Reason, details.Metadata = detail.GetReason(), detail.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, field := range detail.GetFieldViolations() {
				details.Fields[field.GetField()] = field.GetDescription()
			}
		case *errdetails.RetryInfo:
			details.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	return details
}

// RequestID makes a new request id: a change that carries one can be sent again without harm.
func RequestID() string {
	return uuid.NewString()
}
