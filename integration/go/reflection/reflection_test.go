// Package reflection_test is a client without any generated code.
package reflection_test

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// behaviour is the number of google.api.field_behavior.
const behaviour = 1052

// A program that knows nothing of this API but where it is: no generated code is used here.
type stranger struct {
	t      *testing.T
	ctx    context.Context
	conn   *grpc.ClientConn
	stream reflection.ServerReflection_ServerReflectionInfoClient
	files  *protoregistry.Files
}

func newStranger(t *testing.T) *stranger {
	endpoint := os.Getenv("SNIC_ENDPOINT")
	if endpoint == "" {
		t.Skip("SNIC_ENDPOINT does not say where a daemon is")
	}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, "snic-identity", "operator/root")
	stream, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &stranger{t, ctx, conn, stream, &protoregistry.Files{}}
}

func (s *stranger) ask(request *reflection.ServerReflectionRequest) [][]byte {
	s.t.Helper()
	if err := s.stream.Send(request); err != nil {
		s.t.Fatal(err)
	}
	reply, err := s.stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	if failed := reply.GetErrorResponse(); failed != nil {
		s.t.Fatalf("%v: %v", request, failed)
	}
	return reply.GetFileDescriptorResponse().GetFileDescriptorProto()
}

// learn registers files, and first those that they import.
func (s *stranger) learn(files [][]byte) {
	s.t.Helper()
	for _, bytes := range files {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(bytes, file); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.files.FindFileByPath(file.GetName()); err == nil {
			continue
		}
		for _, name := range file.GetDependency() {
			if _, err := s.files.FindFileByPath(name); err != nil {
				by := &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: name}
				s.learn(s.ask(&reflection.ServerReflectionRequest{MessageRequest: by}))
			}
		}
		made, err := protodesc.NewFile(file, s.files)
		if err == nil {
			err = s.files.RegisterFile(made)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// message makes an empty message of a type.
func (s *stranger) message(name protoreflect.FullName) *dynamicpb.Message {
	s.t.Helper()
	if _, err := s.files.FindDescriptorByName(name); err != nil {
		by := &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: string(name)}
		s.learn(s.ask(&reflection.ServerReflectionRequest{MessageRequest: by}))
	}
	found, err := s.files.FindDescriptorByName(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
}

func field(message protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return message.Get(message.Descriptor().Fields().ByName(name))
}

func TestErrorsAreReadByReflectionAlone(t *testing.T) {
	s := newStranger(t)
	request, reply := s.message("snic.control.v1.CreateTenantRequest"), s.message("snic.control.v1.CreateTenantResponse")
	id := request.Descriptor().Fields().ByName("tenant_id")
	request.Set(id, protoreflect.ValueOfString("No Id"))
	err := s.conn.Invoke(s.ctx, "/snic.control.v1.TenantService/CreateTenant", request, reply)
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("%v", err)
	}
	said := map[string]string{}
	for _, detail := range status.Convert(err).Proto().GetDetails() {
		message := s.message(detail.MessageName())
		if err := proto.Unmarshal(detail.GetValue(), message); err != nil {
			t.Fatal(err)
		}
		switch detail.MessageName() {
		case "google.rpc.ErrorInfo":
			said["reason"] = field(message, "reason").String()
			said["domain"] = field(message, "domain").String()
		case "google.rpc.BadRequest":
			said["field"] = field(field(message, "field_violations").List().Get(0).Message(), "field").String()
		}
	}
	if said["reason"] != "INVALID_FIELD" || said["domain"] != "snic" || said["field"] != "tenant_id" {
		t.Fatalf("%v", said)
	}
	for _, name := range []protoreflect.FullName{
		"google.rpc.RetryInfo", "google.rpc.QuotaFailure", "google.rpc.PreconditionFailure", "google.rpc.ResourceInfo",
	} {
		s.message(name)
	}
}

// What may be sent and what must be is there for programs that have only the descriptors.
func TestAnnotationsAreServed(t *testing.T) {
	s := newStranger(t)
	id := s.message("snic.control.v1.CreateTenantRequest").Descriptor().Fields().ByName("tenant_id")
	// As bytes: whether this program has the annotation's type does not matter.
	options, err := proto.Marshal(id.Options())
	if err != nil {
		t.Fatal(err)
	}
	behaviours := []uint64{}
	for len(options) > 0 {
		number, kind, tag := protowire.ConsumeTag(options)
		length := protowire.ConsumeFieldValue(number, kind, options[tag:])
		value := options[tag : tag+length]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		for number == behaviour && len(value) > 0 {
			one, size := protowire.ConsumeVarint(value)
			behaviours = append(behaviours, one)
			value = value[size:]
		}
		options = options[tag+length:]
	}
	// REQUIRED.
	if len(behaviours) != 1 || behaviours[0] != 2 {
		t.Fatalf("%v in %v", behaviours, id.Options())
	}
}
