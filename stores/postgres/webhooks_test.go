package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook/storetest"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

func openWebhooks(t testing.TB, s *postgres.Store, name string) *postgres.WebhookStore {
	t.Helper()
	w, err := s.OpenWebhooks(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWebhooks(t *testing.T) {
	need(t)
	opts := newSchema()
	storetest.RunLasting(t, func(t *testing.T, dir string) webhook.Store {
		return openWebhooks(t, open(t, shared.url(), opts), dir)
	})
}

// A list is read in several batches.
func TestAllReturnsManyWebhooksOnce(t *testing.T) {
	opts := newSchema()
	w := openWebhooks(t, open(t, need(t).url(), opts), "press")
	defer w.Close()
	sql(t, opts.Schema, `INSERT INTO {schema}.webhooks SELECT sender, convert_to('sub_' || n, 'UTF8'), 'data'
		FROM {schema}.webhook_senders, generate_series(1, 250) AS n`)
	seen := map[string]bool{}
	for r, err := range w.All(t.Context()) {
		if err != nil || string(r.Data) != "data" || seen[r.ID] {
			t.Fatalf("got %q with %q, %v after %d records", r.ID, r.Data, err, len(seen))
		}
		seen[r.ID] = true
	}
	if len(seen) != 250 {
		t.Errorf("got %d records, want 250", len(seen))
	}
}

// A second process gets an error for the same sender, and uses another sender or waits for the first process.
func TestASingleProcessUsesTheWebhooksOfASender(t *testing.T) {
	a, b := openTwo(t)
	first := openWebhooks(t, a, "press")
	if err := first.Put(t.Context(), webhook.Record{ID: "sub_1", Data: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.OpenWebhooks(short, "press")
	if !errors.Is(err, postgres.ErrInUse) || !strings.Contains(err.Error(), `"press"`) {
		t.Errorf("a second process got %v, want ErrInUse with the name of the sender", err)
	}
	other := openWebhooks(t, b, "news")
	for r := range other.All(t.Context()) {
		t.Errorf("another sender got %s", r.ID)
	}
	if err := errors.Join(other.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	second := openWebhooks(t, b, "press")
	defer second.Close()
	for _, err := range []error{first.Put(t.Context(), webhook.Record{ID: "sub_1"}), first.Delete(t.Context(), "sub_1")} {
		if !errors.Is(err, postgres.ErrInUse) {
			t.Errorf("a change by the first process returned %v, want ErrInUse", err)
		}
	}
	for r, err := range second.All(t.Context()) {
		if err != nil || string(r.Data) != "one" {
			t.Errorf("got %q, %v; want the record of the first process", r.Data, err)
		}
	}
}

// A process reads the changes that began during the lease of another process, also if they end after the lease.
func TestChangesOfAnEarlierLeaseAreRead(t *testing.T) {
	opts, data := newSchema(), make(chan string, 1)
	a, b := open(t, need(t).url(), opts), open(t, need(t).url(), opts)
	first := openWebhooks(t, a, "press")
	defer first.Close()
	if err := first.Put(t.Context(), webhook.Record{ID: "sub_1", Data: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), need(t).url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	table := pgx.Identifier{opts.Schema, "webhooks"}.Sanitize()
	if _, err := c.Exec(t.Context(), "BEGIN; SELECT FROM "+table+" FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		if err := first.Put(t.Context(), webhook.Record{ID: "sub_1", Data: []byte("two")}); err != nil {
			t.Errorf("the change that began during the lease: %v", err)
		}
	})
	waits := func(condition string) {
		t.Helper()
		await(t, func() error {
			if n := sql(t, opts.Schema, "SELECT count(*) FROM pg_locks WHERE NOT granted AND "+condition)[0]; n != "1" ||
				len(data) > 0 {
				return fmt.Errorf("%s statements wait, and %d processes read the records, want 1 and 0", n, len(data))
			}
			return nil
		})
	}
	waits("pid IN (SELECT pid FROM pg_locks WHERE relation = '{schema}.webhooks'::regclass AND mode = 'RowExclusiveLock')")
	sql(t, opts.Schema, "UPDATE {schema}.webhook_senders SET ends = now()")
	work.Go(func() {
		second, err := b.OpenWebhooks(t.Context(), "press")
		if err != nil {
			t.Error(err)
			return
		}
		defer second.Close()
		for r := range second.All(t.Context()) {
			data <- string(r.Data)
		}
	})
	waits("relation = '{schema}.webhooks'::regclass AND mode = 'ShareLock'")
	if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	work.Wait()
	close(data)
	if got := <-data; got != "two" {
		t.Errorf("the next process read %q, want two", got)
	}
}

// A process keeps its lease, and learns that another process has it.
func TestLeaseOfWebhooks(t *testing.T) {
	opts := newSchema()
	w := openWebhooks(t, open(t, need(t).url(), opts), "press")
	defer w.Close()
	sql(t, opts.Schema, "UPDATE {schema}.webhook_senders SET ends = now() + interval '10 s'")
	await(t, func() error {
		if sql(t, opts.Schema, "SELECT ends > now() + interval '11 s' FROM {schema}.webhook_senders")[0] == "true" {
			return nil
		}
		return errors.New("the lease was not renewed")
	})
	select {
	case <-w.Lost():
		t.Error("the lease is lost, want a lease that is renewed")
	default:
	}
	sql(t, opts.Schema, "UPDATE {schema}.webhook_senders SET holder = 'other'")
	select {
	case <-w.Lost():
	case <-time.After(patience):
		t.Error("the process did not learn that it lost the lease")
	}
}

// Without the server, a process gives up its lease before it ends.
func TestLeaseOfWebhooksIsLostWithoutTheServer(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	w := openWebhooks(t, open(t, server.url(), nil), "press")
	begin := time.Now()
	server.stop()
	select {
	case <-w.Lost():
	case <-time.After(patience):
		t.Fatal("the lease was not lost")
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Logf("the lease was lost after %v", d) // a busy machine
	}
	if err := w.Close(); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Close returned %v, want ErrUnavailable", err)
	}
}

// putVariable is set in a process that stores subscriptions until it is killed. It contains the schema and the URL.
const putVariable = "PATCHBAY_TEST_PUT_WEBHOOKS"

// putWebhooks stores subscriptions, and prints the ID of each after Put returned.
func putWebhooks() bool {
	schema, url, ok := strings.Cut(os.Getenv(putVariable), "|")
	if !ok {
		return false
	}
	ctx := context.Background()
	opts := calm()
	opts.Schema = schema
	s, err := postgres.Open(ctx, url, opts)
	if err == nil {
		var w *postgres.WebhookStore
		w, err = s.OpenWebhooks(ctx, "press")
		for n := 0; err == nil; n++ {
			r := webhook.Record{ID: fmt.Sprintf("sub_%d_%d", os.Getpid(), n), Data: []byte(strings.Repeat("x", n))}
			if err = w.Put(ctx, r); err == nil {
				fmt.Println(r.ID, n)
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
	return true
}

// No subscription is lost that was acknowledged before the process was killed, and the next process gets the
// lease within 20 seconds.
func TestWebhooksSurviveKill(t *testing.T) {
	t.Parallel()
	opts := newSchema()
	url := need(t).url()
	s := open(t, url, opts)
	acknowledged := map[string]int{}
	for round := range 3 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), putVariable+"="+opts.Schema+"|"+url)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ { // reads what was printed before the end, too
			var id string
			var size int
			if _, err := fmt.Sscan(lines.Text(), &id, &size); err != nil {
				t.Fatalf("the process printed %q", lines.Text())
			}
			acknowledged[id] = size
			if n == 20+round*50 {
				_ = child.Process.Kill() // SIGKILL, at any point of its changes
			}
		}
		_ = child.Wait()
		if round < 2 { // in the last round, the lease ends by itself
			sql(t, opts.Schema, "UPDATE {schema}.webhook_senders SET ends = now()")
		}
	}
	if len(acknowledged) < 3*20 {
		t.Fatalf("%d subscriptions were acknowledged, want some of each process", len(acknowledged))
	}
	w := openWebhooks(t, s, "press")
	defer w.Close()
	for r, err := range w.All(t.Context()) {
		if size, ok := acknowledged[r.ID]; err != nil || ok && size != len(r.Data) {
			t.Errorf("got %s with %d bytes, %v; want %d bytes", r.ID, len(r.Data), err, size)
		}
		delete(acknowledged, r.ID)
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d acknowledged subscriptions are lost", len(acknowledged))
	}
}
