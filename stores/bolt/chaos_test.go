package bolt_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// roundsVariable is the environment variable with the number of rounds. Each round kills the
	// server twice.
	roundsVariable = "PATCHBAY_CHAOS_ROUNDS"
	defaultRounds  = 6
	shortRounds    = 3
	// tasksPerRound is the number of tasks that are started in a round.
	tasksPerRound = 100
	// clientWorkers is the number of concurrent requests of the test.
	clientWorkers = 20
)

// A chaosTest is a server that is killed and restarted, and its tasks.
type chaosTest struct {
	dir    string
	random *rand.Rand

	server *exec.Cmd
	stdin  io.Closer
	url    string

	mu    sync.Mutex // guards the field below
	tasks []*startedTask
}

// A startedTask is a task whose ID the client has received.
type startedTask struct {
	name, tool, id string
	revision       string
	outcome        *outcome // nil until the client has received it
	checked        bool     // after a restart of the server
}

// An outcome is the result of a task, or its error.
type outcome struct {
	text  string // of the result
	fault string // the message of the error
}

func TestTasksSurviveKillsOfTheServer(t *testing.T) {
	rounds := defaultRounds
	if testing.Short() {
		rounds = shortRounds
	}
	if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &chaosTest{dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0))}
	defer c.kill()
	interrupted, repeated := 0, 0
	for round := range rounds {
		revision := []string{"", "2025-11-25"}[round%2]
		c.start(t)
		c.startTasks(t, round, revision)
		c.start(t)
		c.finish(t, revision)
		if t.Failed() {
			t.Fatalf("failed in round %d", round)
		}
	}
	runs := c.checkJournal(t)
	for _, k := range c.tasks {
		if k.outcome.fault != "" {
			interrupted++
		}
		if runs["run "+k.name] > 1 {
			repeated++
		}
	}
	t.Logf("%d rounds, %d tasks, %d of them interrupted, %d run again", rounds, len(c.tasks), interrupted, repeated)
	if rounds >= 10 && (interrupted == 0 || repeated == 0) {
		t.Error("no kill interrupted a task and made another one run again")
	}
	c.readAll(t)
	c.checkStore(t)
}

// start starts the server with the files in the folder.
func (c *chaosTest) start(t *testing.T) {
	t.Helper()
	c.kill()
	c.server = exec.Command(os.Args[0])
	c.server.Env = append(os.Environ(), serverVariable+"="+c.dir)
	c.server.Stderr = os.Stderr
	stdin, err := c.server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	out, err := c.server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if c.url = lines.Text(); !strings.HasPrefix(c.url, "http") {
		t.Fatalf("the server printed %q, want its URL", c.url)
	}
}

// kill ends the server with SIGKILL, without a shutdown.
func (c *chaosTest) kill() {
	if c.server != nil {
		_ = c.server.Process.Kill()
		_ = c.server.Wait()
		_ = c.stdin.Close()
		c.server = nil
	}
}

func (c *chaosTest) connect(t *testing.T, revision string) *mcp.Client {
	t.Helper()
	log := slog.New(slog.DiscardHandler) // a killed server is expected
	opts := &mcp.ClientOptions{
		Revision: revision, Logger: log, Timeout: 20 * time.Second,
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"yes"}`)}, nil
		},
	}
	client, err := mcp.Connect(t.Context(), mcphttp.NewTransport(c.url, &mcphttp.TransportOptions{Logger: log}),
		tasks.Declare(opts, nil))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// each calls f for each element, several at a time.
func each[T any](all []T, f func(v T)) {
	var workers sync.WaitGroup
	next := make(chan T)
	for range clientWorkers {
		workers.Go(func() {
			for v := range next {
				f(v)
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	workers.Wait()
}

// toolOf returns the tool that the i-th task of a round calls.
func toolOf(i int) string { return []string{"plain", "again", "ask"}[i%3] }

// startTasks starts tasks, waits for some of them, and kills the server meanwhile, at a random
// moment.
func (c *chaosTest) startTasks(t *testing.T, round int, revision string) {
	t.Helper()
	client := c.connect(t, revision)
	var calls []*startedTask
	millis := map[string]int{}
	for i := range tasksPerRound {
		name := fmt.Sprintf("%d-%d", round, i)
		calls = append(calls, &startedTask{name: name, tool: toolOf(i), revision: revision})
		millis[name] = c.random.IntN(200)
	}
	allStarted, killed := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context()) // a killed server does not end Wait
	defer cancel()
	early, after := c.random.IntN(3) == 0, time.Duration(c.random.IntN(300))*time.Millisecond
	go func() {
		defer close(killed)
		if early {
			after /= 4 // while tasks are being started
		} else {
			<-allStarted
		}
		time.Sleep(after) // to kill the server at a random time
		c.kill()
		cancel()
	}()
	var handles []*tasks.Handle
	each(calls, func(k *startedTask) {
		h, err := tasks.Start(ctx, client, k.tool, callArguments{k.name, millis[k.name]})
		if err != nil {
			return // the server was killed, and the client does not know the ID of the task
		}
		if k.id = h.ID(); k.id == "" {
			t.Errorf("the call %s returned no task", k.name)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tasks = append(c.tasks, k)
		handles = append(handles, h)
	})
	close(allStarted)
	started := c.tasks[len(c.tasks)-len(handles):]
	each(started[:len(started)/2], func(k *startedTask) { k.outcome = wait(ctx, client, k) })
	<-killed
	_ = client.Close()
}

// wait waits for a task and answers its questions. It returns nil if the server did not respond.
func wait(ctx context.Context, client *mcp.Client, k *startedTask) *outcome {
	res, err := tasks.Resume(client, k.id).Wait(ctx)
	var fault *mcp.Error
	switch {
	case err == nil && res.IsError:
		return &outcome{fault: res.Text()}
	case err == nil:
		return &outcome{text: res.Text()}
	case errors.As(err, &fault):
		return &outcome{fault: fault.Message}
	}
	return nil
}

// finish waits for all tasks on a restarted server, and checks their outcomes.
func (c *chaosTest) finish(t *testing.T, revision string) {
	t.Helper()
	client := c.connect(t, revision)
	defer client.Close()
	each(c.tasks, func(k *startedTask) {
		if k.revision != revision || k.checked {
			return
		}
		got := wait(t.Context(), client, k)
		if got == nil {
			t.Errorf("%s %s: the restarted server did not respond", k.tool, k.name)
			return
		}
		if k.outcome != nil && *k.outcome != *got {
			t.Errorf("%s %s: outcome after the restart is %+v, want %+v", k.tool, k.name, *got, *k.outcome)
		}
		k.outcome, k.checked = got, true
		k.check(t)
	})
}

// check compares an outcome with those that the tool may have.
func (k *startedTask) check(t *testing.T) {
	t.Helper()
	want := "result of " + k.name
	if k.tool == "ask" {
		want += ": yes"
	}
	switch {
	case k.outcome.text == want:
	case k.outcome.fault == "":
		t.Errorf("%s %s returned %q, want %q", k.tool, k.name, k.outcome.text, want)
	case k.tool == "again":
		t.Errorf("%s %s failed with %q, want a result because it is restartable", k.tool, k.name, k.outcome.fault)
	case !strings.Contains(k.outcome.fault, "restarted"):
		t.Errorf("%s %s failed with %q, want an error that names the restart", k.tool, k.name, k.outcome.fault)
	}
}

// checkJournal checks that no step ran more often than allowed. It returns the number of runs of
// each step.
func (c *chaosTest) checkJournal(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(c.dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for line := range strings.Lines(string(file)) {
		runs[strings.TrimSpace(line)]++
	}
	for step, n := range runs {
		event, name, _ := strings.Cut(step, " ")
		i, _ := strconv.Atoi(name[strings.Index(name, "-")+1:])
		if n > 1 && toolOf(i) != "again" {
			t.Errorf("step %s of task %s ran %d times, want at most once", event, name, n)
		}
	}
	for _, k := range c.tasks {
		last := map[string]string{"plain": "run-end ", "again": "run-end ", "ask": "second-end "}[k.tool]
		if k.outcome.fault == "" && runs[last+k.name] == 0 {
			t.Errorf("%s %s has a result, but its last step did not end", k.tool, k.name)
		}
	}
	return runs
}

// readAll checks that the outcomes of all tasks of all rounds have not changed.
func (c *chaosTest) readAll(t *testing.T) {
	t.Helper()
	for _, revision := range []string{"", "2025-11-25"} {
		client := c.connect(t, revision)
		each(c.tasks, func(k *startedTask) {
			if k.revision != revision {
				return
			}
			if got := wait(t.Context(), client, k); got == nil || *got != *k.outcome {
				t.Errorf("%s %s: outcome is %+v, want %+v", k.tool, k.name, got, *k.outcome)
			}
		})
		_ = client.Close()
	}
}

// checkStore checks that the file has all tasks, and that those with outcomes are finished.
func (c *chaosTest) checkStore(t *testing.T) {
	t.Helper()
	c.kill()
	s := open(t, filepath.Join(c.dir, "tasks.db"))
	byID := map[string]*startedTask{}
	for _, k := range c.tasks {
		byID[k.id] = k
	}
	unfinished := 0
	for r, err := range s.Unfinished(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		if k := byID[r.ID]; k != nil {
			t.Errorf("%s %s is unfinished", k.tool, k.name)
		}
		unfinished++
	}
	after, n := tasks.Cursor{}, 0
	for {
		page, err := s.List(t.Context(), "", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			delete(byID, r.ID)
			after = tasks.Cursor{Created: r.Created, ID: r.ID}
			n++
		}
	}
	if len(byID) > 0 {
		t.Errorf("%d tasks are not in the store: %v", len(byID), slices.Collect(maps.Keys(byID)))
	}
	t.Logf("%d tasks in the store, %d of them unfinished, whose calls got no response", n, unfinished)
}
