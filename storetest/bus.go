package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// maxPayload is the size of payloads that each bus must accept, in bytes.
	maxPayload = 1 << 20
	// unread limits the messages of a topic that no check has read yet.
	unread = 1 << 10
)

// RunBus tests that a bus conforms to [replica.Bus]. open returns two clients of a new bus.
func RunBus(t *testing.T, open func(t *testing.T) (a, b replica.Bus)) {
	run(t, open, map[string]func(t *testing.T, a, b replica.Bus){
		"messages of a publisher arrive in order": busOrder,
		"Publish returns the number of receivers": busReceivers,
		"large and empty payloads":                busSizes,
		"canceled context of Publish, Subscribe":  busCanceled,
	})
}

func subscribe(t *testing.T, b replica.Bus, topic string) (messages chan string, stop func()) {
	t.Helper()
	messages = make(chan string, unread)
	stop, err := b.Subscribe(t.Context(), topic, func(payload []byte) {
		if payload == nil {
			t.Errorf("topic %q may have lost messages", topic)
		}
		messages <- string(payload)
	})
	must(t, err)
	return messages, stop
}

func publish(t *testing.T, b replica.Bus, topic, message string, receivers int) {
	t.Helper()
	payload := []byte(message)
	if n, err := b.Publish(t.Context(), topic, payload); err != nil || n != receivers {
		t.Errorf("Publish to %q returned %d, %v; want %d receivers", topic, n, err, receivers)
	}
	clear(payload) // the bus must not retain the payload
}

func wantMessage(t *testing.T, messages chan string, want string) {
	t.Helper()
	if got := receive(t, messages); got != want {
		t.Errorf("got %.40q, want %.40q", got, want)
	}
}

func busOrder(t *testing.T, a, b replica.Bus) {
	const topics, each = 4, 12
	var received []chan string
	for i := range 2 * topics {
		messages, stop := subscribe(t, []replica.Bus{a, b}[i%2], fmt.Sprint(i/2))
		defer stop()
		received = append(received, messages)
	}
	concurrently(a, b, func(worker int, bus replica.Bus) {
		for i := range topics * each {
			publish(t, bus, fmt.Sprint(i%topics), fmt.Sprint(worker, ":", i/topics), 2)
		}
	})
	for i, messages := range received {
		next := map[string]int{} // by publisher
		for range each * concurrentUsers {
			message := receive(t, messages)
			worker, n, _ := strings.Cut(message, ":")
			if n != fmt.Sprint(next[worker]) {
				t.Fatalf("topic %d: got %q, want message %d of this publisher", i/2, message, next[worker])
			}
			next[worker]++
		}
	}
}

func busReceivers(t *testing.T, a, b replica.Bus) {
	topics := []string{"a", "A", "}{a}", "a:b", "a*", "\x00\xff", "a"}
	for i, topic := range topics {
		publish(t, a, topic, "nobody", 0)
		first, stopFirst := subscribe(t, b, topic)
		publish(t, a, topic, "to the other", 1)
		wantMessage(t, first, "to the other")
		publish(t, b, topic, "to itself", 1)
		wantMessage(t, first, "to itself")
		second, stopSecond := subscribe(t, a, topic)
		publish(t, a, topic, "to both", 2)
		wantMessage(t, first, "to both")
		wantMessage(t, second, "to both")
		for _, other := range topics[i+1 : max(i+1, len(topics)-1)] {
			publish(t, b, other, "nobody", 0)
		}
		stopFirst()
		stopSecond()
		stopFirst() // has no effect
		deadline := time.Now().Add(patience)
		for n := 1; n > 0; { // the subscriptions end soon
			var err error
			n, err = a.Publish(t.Context(), topic, []byte("late"))
			must(t, err)
			if time.Now().After(deadline) {
				t.Fatalf("topic %q has %d receivers after stop", topic, n)
			}
		}
	}
}

func busSizes(t *testing.T, a, b replica.Bus) {
	messages, stop := subscribe(t, b, "a")
	defer stop()
	for _, size := range []int{0, 1, 64 << 10, maxPayload, 0} {
		publish(t, a, "a", strings.Repeat("m", size), 1)
		wantMessage(t, messages, strings.Repeat("m", size))
	}
	large := strings.Repeat("m", maxPayload+1)
	if _, err := a.Publish(t.Context(), "a", []byte(large)); err == nil { // a bus may refuse the payload
		wantMessage(t, messages, large)
	}
	publish(t, a, "a", "after", 1)
	wantMessage(t, messages, "after")
}

func busCanceled(t *testing.T, a, b replica.Bus) {
	if stop, err := a.Subscribe(ended(t), "a", func([]byte) {}); err == nil {
		stop()
	} else {
		wantCanceled(t, "Subscribe", err)
	}
	if _, err := a.Publish(ended(t), "b", []byte("late")); err != nil {
		wantCanceled(t, "Publish", err)
	}
	messages, stop := subscribe(t, b, "b")
	defer stop()
	publish(t, a, "b", "next", 1)
	wantMessage(t, messages, "next")
}
