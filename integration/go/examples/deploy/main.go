// Deploys a chain of network tasks, waits until the card serves it, and says where it is.
//
//	go run ./examples/deploy -endpoint unix:/run/snic/snicd.sock -identity tenant/acme \
//		-tenant acme -dag web -bandwidth 5000000000 nat firewall
//
// With -delete it deletes the DAG instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

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
	dag := flag.String("dag", "", "the DAG's id")
	bandwidth := flag.Uint64("bandwidth", 1_000_000_000, "in bits per second")
	remove := flag.Bool("delete", false, "delete the DAG instead")
	flag.Parse()

	client, err := snic.Dial(*endpoint, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if *remove {
		err = deleteDag(ctx, client, fmt.Sprintf("tenants/%s/dags/%s", *tenant, *dag))
	} else {
		err = deploy(ctx, client, *tenant, *dag, *bandwidth, flag.Args())
	}
	if err != nil {
		details := snic.DetailsOf(err)
		fmt.Fprintf(os.Stderr, "%s: %s\n", details.Reason, status.Convert(err).Message())
		for field, what := range details.Fields {
			fmt.Fprintf(os.Stderr, "  %s: %s\n", field, what)
		}
		os.Exit(1)
	}
}

func deploy(ctx context.Context, client *snic.Client, tenant, dag string, bandwidth uint64, tasks []string) error {
	wanted := &controlv1.Dag{BandwidthBps: bandwidth}
	for i, task := range tasks {
		wanted.Nodes = append(wanted.Nodes, &controlv1.Dag_Node{Id: task, NtType: "ntTypes/" + task})
		if i > 0 {
			edge := &controlv1.Dag_Edge{FromNode: tasks[i-1], ToNode: task}
			wanted.Edges = append(wanted.Edges, edge)
		}
	}
	reply, err := client.Dags.CreateDag(ctx, &controlv1.CreateDagRequest{
		Parent: "tenants/" + tenant,
		DagId:  dag,
		Dag:    wanted,
		// If the reply gets lost, the same request can be sent again.
		RequestId: snic.RequestID(),
	})
	if err != nil {
		return err
	}
	response, err := client.Wait(ctx, reply.GetOperation())
	if err != nil {
		return err
	}
	made, ok := response.(*controlv1.Dag)
	if !ok {
		return fmt.Errorf("the operation's response is %T, expected a DAG", response)
	}
	state := strings.TrimPrefix(made.GetState().String(), "STATE_")
	fmt.Printf("%s is %s at %g Gbit/s\n", made.GetName(), state, float64(made.GetBandwidthBps())/1e9)
	for _, stage := range made.GetMapping().GetStages() {
		for _, chain := range stage.GetBranches() {
			for _, instance := range chain.GetInstances() {
				fmt.Printf("  %s\n", instance.GetRegion())
			}
		}
	}
	return nil
}

func deleteDag(ctx context.Context, client *snic.Client, name string) error {
	reply, err := client.Dags.DeleteDag(ctx, &controlv1.DeleteDagRequest{
		Name:         name,
		RequestId:    snic.RequestID(),
		AllowMissing: true,
	})
	if err != nil {
		return err
	}
	if _, err := client.Wait(ctx, reply.GetOperation()); err != nil {
		return err
	}
	fmt.Printf("%s is deleted\n", name)
	return nil
}
