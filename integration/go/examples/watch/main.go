// Prints the states of a tenant's DAGs as they change, also over a restart of the daemon.
//
//	go run ./examples/watch -endpoint unix:/run/snic/snicd.sock -identity tenant/acme -tenant acme
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"snic"
	controlv1 "snic/control/v1"
)

func main() {
	var options snic.Options
	endpoint := flag.String("endpoint", "", "host:port, or unix:/path")
	flag.StringVar(&options.Identity, "identity", "", "over a socket: who calls, such as tenant/acme")
	flag.StringVar(&options.CA, "ca", "", "over TCP: the authority of the daemon's certificate")
	flag.StringVar(&options.Certificate, "certificate", "", "over TCP: the caller's certificate")
	flag.StringVar(&options.Key, "key", "", "over TCP: its private key")
	tenant := flag.String("tenant", "", "the tenant's id")
	flag.Parse()

	client, err := snic.Dial(*endpoint, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer client.Close()
	if err := watch(context.Background(), client, "tenants/"+*tenant); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", snic.DetailsOf(err).Reason, status.Convert(err).Message())
		os.Exit(1)
	}
}

func watch(ctx context.Context, client *snic.Client, parent string) error {
	states := map[string]controlv1.Dag_State{}
	open := func(revision uint64) (grpc.ServerStreamingClient[controlv1.WatchDagsResponse], error) {
		request := &controlv1.WatchDagsRequest{Parent: parent, ResumeRevision: revision}
		return client.Dags.WatchDags(ctx, request)
	}
	return snic.Follow(ctx, open, func(event *controlv1.WatchDagsResponse) error {
		name, state := event.GetDag().GetName(), event.GetDag().GetState()
		before, known := states[name]
		switch {
		case event.GetType() == controlv1.EventType_EVENT_TYPE_BOOKMARK:
		case event.GetType() == controlv1.EventType_EVENT_TYPE_DELETED:
			delete(states, name)
			fmt.Printf("%s is deleted\n", name)
		case !known || before != state:
			states[name] = state
			fmt.Printf("%s is %s\n", name, strings.TrimPrefix(state.String(), "STATE_"))
		}
		return nil
	})
}
