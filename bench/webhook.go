package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

const (
	// webhookSubscriptions is the number of subscriptions, which is the default limit of a sender.
	webhookSubscriptions = 10_000
	// maxDelivery is the largest accepted CPU time of a delivery, as a multiple of a bare signed request, and
	// openDelivery the ratio of today, on a machine that runs other programs.
	maxDelivery, openDelivery = 1.3, 1.6
	// webhookStarting is the approximate time to add the subscriptions, and webhookSettling the time for which
	// a slice waits until the progress is stored.
	webhookStarting = time.Second
	webhookSettling = 1100 * time.Millisecond
)

// catalogueWebhookWorkloads measure the deliveries of the Events extension, SEP-3415.
func catalogueWebhookWorkloads() []workload {
	return []workload{{
		name: "webhook-" + strconv.Itoa(webhookSubscriptions),
		title: fmt.Sprintf("deliveries of webhooks, %d subscriptions, 1000 deliveries a second",
			webhookSubscriptions),
		clients: true,
		webhook: true,
		bounds:  []bound{{of: baseline, cpu: maxDelivery, open: openDelivery}},
	}}
}

// openWebhooks starts both senders and the receiver of their deliveries.
func (b *bench) openWebhooks(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	var err error
	if c.server, err = start(ctx, "receiver", []string{b.program("server", "receiver")}, false); err != nil {
		return nil, err
	}
	for _, name := range []string{baseline, ours} {
		argv := b.pins.argv(b.program("client", "webhook"), "-kind", name, "-url", c.server.url+"/"+name,
			"-subscriptions", strconv.Itoa(webhookSubscriptions))
		proc, err := start(ctx, name, argv, true)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.subjects = append(c.subjects, &subject{name: name, call: w.call, proc: proc,
			load: load.NewRemote(proc.in, proc.out)})
	}
	return c, nil
}
